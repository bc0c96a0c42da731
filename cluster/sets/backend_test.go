package sets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// All members are started at the same time. Drivers see one instance, which is ready once its
// master was told its workers.
func TestLife(t *testing.T) {
	try(t, func(t *testing.T, r *rig) {
		r.startTime = time.Second
		want := spec("s")
		began := time.Now()
		in := r.begin(want)
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v", took)
		}
		if in.State != cluster.Starting || in.Address != "/s" || in.Network != "unix" || in.Config != want.Config || in.Node != "a" || in.Nodes != nil || in.Set != "" || in.StartedAt != began.Add(time.Second) && in.StartedAt != began {
			t.Errorf("%+v", in)
		}
		for number := range 3 {
			member := r.get(r.at("s", number))
			if member.Set != "s" || member.Member != number || member.Config != want.Config.Share() || member.Plan != threeParts || (member.ID == "s") != (number == 0) || !strings.HasPrefix(string(member.ID), "s") || member.Node != "a" {
				t.Errorf("member %d: %+v", number, member)
			}
		}
		r.mu.Lock()
		r.refuses = errors.New("not yet")
		r.mu.Unlock()
		time.Sleep(1100 * time.Millisecond)
		if r.told() != "" || r.only() != cluster.Starting {
			t.Error("it is ready without workers")
		}
		r.mu.Lock()
		r.refuses = nil
		r.mu.Unlock()
		time.Sleep(time.Second)
		if got := r.told(); got != "s ready" || r.calls() != 2 {
			t.Error(got)
		}
		all, err := r.Instances(t.Context())
		if err != nil || len(all) != 1 || all[0].ReadyAt.Sub(began) < 2*time.Second {
			t.Errorf("%+v, %v", all, err)
		}
		if used, err := r.Usage(t.Context(), "s"); err != nil || used != (cluster.Resources{CPU: 300, Memory: 30}) {
			t.Errorf("%+v, %v", used, err)
		}
		if _, err := r.Usage(t.Context(), "unknown"); err == nil {
			t.Error("an unknown instance uses something")
		}
		if nodes, err := r.Nodes(t.Context()); err != nil || len(nodes) != 1 {
			t.Error(nodes, err)
		}
		if _, err := r.Start(t.Context(), want); err == nil {
			t.Error("two sets with one ID")
		}
		r.history()
		if err := r.Stop(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if got, log := r.told(), r.history(); got != "s stopping, s exited" || r.reason("s") != "stopped" || log[0] != "exited s" || len(log) != 3 {
			t.Error(got, r.reason("s"), log)
		}
		if err := r.Stop(t.Context(), "s"); err != nil || len(r.ids()) != 0 || r.only() != "" {
			t.Error(err, r.ids())
		}
	})
}

// Instances that are no sets pass through.
func TestOthersPass(t *testing.T) {
	try(t, func(t *testing.T, r *rig) {
		plain := spec("plain")
		plain.Config.Parts, plain.Plan = 0, ""
		r.begin(plain)
		time.Sleep(2 * time.Second)
		if err := r.Park(t.Context(), "plain"); err != nil {
			t.Error(err)
		}
		if all, err := r.Instances(t.Context()); err != nil || len(all) != 1 || !all[0].Parked {
			t.Error(all, err)
		}
		if err := r.Resize(t.Context(), "plain", plain.Config); err != nil {
			t.Error(err)
		}
		if used, err := r.Usage(t.Context(), "plain"); err != nil || used.CPU != 100 {
			t.Error(used, err)
		}
		if err := r.Stop(t.Context(), "plain"); err != nil {
			t.Error(err)
		}
		if got := r.told(); got != "plain ready, plain ready, plain ready, plain stopping, plain exited" {
			t.Error(got)
		}
	})
}

// A set of which one member cannot be started leaves nothing behind, also if another member takes
// long to start, and if one cannot be stopped at first.
func TestFailedStart(t *testing.T) {
	try(t, func(t *testing.T, r *rig) {
		stops := 0
		r.failing(func(what string, spec cluster.InstanceSpec) error {
			if what == "start" && spec.Member == 1 {
				return errors.New("not enough capacity")
			}
			if what == "stop" {
				if stops++; stops < 3 {
					return errors.New("no answer")
				}
			}
			return nil
		})
		_, err := r.Start(t.Context(), spec("s"))
		if err == nil || !strings.HasPrefix(err.Error(), "start s: member 1 of 3: not enough capacity") {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if r.told() != "" || len(r.ids()) != 0 || r.only() != "" {
			t.Errorf("left: %v", r.ids())
		}
		for name, change := range map[string]func(*cluster.InstanceSpec){
			"plan: EOF": func(s *cluster.InstanceSpec) { s.Plan = "" },
			"the plan is of 3 members, and the config of 2": func(s *cluster.InstanceSpec) { s.Config.Parts = 2 },
			"nodes has 2 entries":                           func(s *cluster.InstanceSpec) { s.Nodes = []string{"a", "b"} },
		} {
			bad := spec("bad")
			change(&bad)
			if _, err := r.Start(t.Context(), bad); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.Start(ended, spec("t")); !errors.Is(err, context.Canceled) || len(r.ids()) != 0 {
			t.Error(err)
		}
	})
}

// A worker that exits is replaced at once, and the master is told. Drivers see nothing of it.
func TestWorkerIsReplaced(t *testing.T) {
	try(t, func(t *testing.T, r *rig) {
		r.ready()
		first := r.at("s", 1)
		time.Sleep(time.Minute)
		r.kill(first)
		time.Sleep(20 * time.Millisecond)
		second := r.at("s", 1)
		if second == "" || second == first || r.get(second).Config != spec("s").Config.Share() {
			t.Fatalf("%q replaces %q", second, first)
		}
		if r.calls() != 0 || r.only() != cluster.Ready {
			t.Error("it is connected before it is ready")
		}
		time.Sleep(2 * time.Second)
		if r.calls() != 1 || r.told() != "" || r.only() != cluster.Ready {
			t.Error("it is not connected")
		}
	})
}

// Workers that never become ready end the set.
func TestHopelessWorker(t *testing.T) {
	try(t, func(t *testing.T, r *rig) {
		r.ready()
		starts := 0
		r.failing(func(what string, _ cluster.InstanceSpec) error {
			if what == "start" {
				starts++
				return errors.New("not enough capacity")
			}
			return nil
		})
		r.kill(r.at("s", 2)) // It was ready, so it does not count.
		time.Sleep(time.Minute)
		if got := r.told(); got != "s stopping, s exited" || starts != 3 || len(r.ids()) != 0 {
			t.Errorf("%s after %d starts", got, starts)
		}
		if why := r.reason("s"); why != "member 2 of 3 exited 3 times before it was ready: not enough capacity" {
			t.Error(why)
		}
	})
}

// A set whose master exits has exited, with the master's reason, once its workers are gone.
func TestMasterExits(t *testing.T) {
	try(t, func(t *testing.T, r *rig) {
		r.ready()
		r.kill("s")
		if got := r.told(); got != "s stopping" {
			t.Error(got)
		}
		time.Sleep(time.Second)
		if got := r.told(); got != "s exited" || r.reason("s") != "killed" || len(r.ids()) != 0 {
			t.Error(got, r.reason("s"), r.ids())
		}
	})
}

// Members may exit at any moment of a start, a stop and a change of the share.
func TestRaces(t *testing.T) {
	for name, race := range map[string]func(t *testing.T, r *rig){
		"a worker exits while the set starts": func(t *testing.T, r *rig) {
			r.failing(func(what string, spec cluster.InstanceSpec) error {
				if what == "start" && spec.Member == 2 && len(r.happened) < 3 {
					time.AfterFunc(0, func() { r.kill(spec.ID) })
				}
				return nil
			})
			r.begin(spec("s"))
			time.Sleep(5 * time.Second)
			if got := r.told(); got != "s ready" || len(r.ids()) != 3 {
				t.Error(got, r.ids())
			}
		},
		"the master exits while the set starts": func(t *testing.T, r *rig) {
			r.begin(spec("s"))
			r.kill("s")
			time.Sleep(5 * time.Second)
			if got := r.told(); got != "s stopping, s exited" || len(r.ids()) != 0 {
				t.Error(got, r.ids())
			}
		},
		"the set is stopped while it starts": func(t *testing.T, r *rig) {
			r.startTime = time.Second
			started := make(chan error)
			go func() {
				_, err := r.Start(t.Context(), spec("s"))
				started <- err
			}()
			time.Sleep(500 * time.Millisecond)
			if err := r.Stop(t.Context(), "s"); err != nil {
				t.Error(err)
			}
			if err := <-started; err == nil || len(r.ids()) != 0 || r.told() != "" {
				t.Error(err, r.ids())
			}
		},
		"a worker exits while the set is stopped": func(t *testing.T, r *rig) {
			r.ready()
			r.stopTime = time.Second
			time.AfterFunc(500*time.Millisecond, func() { r.kill(r.at("s", 1)) })
			if err := r.Stop(t.Context(), "s"); err != nil {
				t.Error(err)
			}
			if got := r.told(); got != "s stopping, s exited" || len(r.ids()) != 0 {
				t.Error(got, r.ids())
			}
		},
		"the set is stopped while a worker is replaced": func(t *testing.T, r *rig) {
			r.ready()
			r.startTime = time.Second
			r.kill(r.at("s", 1))
			time.Sleep(500 * time.Millisecond)
			if err := r.Stop(t.Context(), "s"); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Second)
			if got := r.told(); got != "s stopping, s exited" || len(r.ids()) != 0 {
				t.Error(got, r.ids())
			}
		},
		"a worker exits while the share changes": func(t *testing.T, r *rig) {
			r.ready()
			more := spec("s").Config
			more.CPU = 6000
			go r.kill(r.at("s", 2))
			if err := r.Resize(t.Context(), "s", more); err == nil || !strings.Contains(err.Error(), "member 2 of 3: no such instance") {
				t.Error(err)
			}
			time.Sleep(5 * time.Second)
			if got := r.shares(); got != "[1000 1000 1000]" || r.only() != cluster.Ready {
				t.Error(got)
			}
		},
		"a worker is replaced while the share changes": func(t *testing.T, r *rig) {
			r.ready()
			more := spec("s").Config
			more.CPU = 6000
			r.kill(r.at("s", 2))
			time.Sleep(20 * time.Millisecond)
			if err := r.Resize(t.Context(), "s", more); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Second)
			if got := r.shares(); got != "[2000 2000 2000]" || r.only() != cluster.Ready {
				t.Error(got)
			}
		},
		"it is killed when it does not stop in time": func(t *testing.T, r *rig) {
			r.ready()
			r.stopTime = time.Hour
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if err := r.Stop(ctx, "s"); err != nil || time.Since(began) != time.Second || len(r.ids()) != 0 {
				t.Error(err, time.Since(began), r.ids())
			}
		},
		"a worker cannot be stopped": func(t *testing.T, r *rig) {
			r.ready()
			r.failing(func(what string, spec cluster.InstanceSpec) error {
				if what == "stop" && spec.Member == 1 {
					return errors.New("no answer")
				}
				return nil
			})
			if err := r.Stop(t.Context(), "s"); err == nil || len(r.ids()) != 1 || r.told() != "s stopping" {
				t.Error(err, r.ids())
			}
			r.failing(func(string, cluster.InstanceSpec) error { return nil })
			if err := r.Stop(t.Context(), "s"); err != nil || len(r.ids()) != 0 || r.told() != "s exited" {
				t.Error(err, r.ids())
			}
		},
	} {
		t.Run(name, func(t *testing.T) { try(t, race) })
	}
}

// shares lists the members' CPU shares, 0 for a parked one.
func (r *rig) shares() string {
	synctest.Wait()
	r.machine.mu.Lock()
	defer r.machine.mu.Unlock()
	shares := make([]int, 3)
	for _, in := range r.instances {
		if shares[in.Member] = in.Config.CPU; in.Parked {
			shares[in.Member] = 0
		}
	}
	return fmt.Sprint(shares)
}

// Each member gets its share of a change, or none does.
func TestShares(t *testing.T) {
	try(t, func(t *testing.T, r *rig) {
		r.begin(spec("s"))
		config := spec("s").Config
		if err := r.Resize(t.Context(), "s", config); err == nil {
			t.Error("a starting set was resized")
		}
		time.Sleep(2 * time.Second)
		fails := ""
		r.failing(func(what string, spec cluster.InstanceSpec) error {
			if fails == fmt.Sprint(what, spec.Member) {
				return errors.New("no room")
			}
			return nil
		})
		type step struct {
			cpu    int
			parked bool
			fails  string
			want   string
		}
		for _, s := range []step{
			{6000, false, "", "[2000 2000 2000]"}, {9000, false, "resize2", "[2000 2000 2000]"}, {6000, true, "park0", "[2000 2000 2000]"},
			{6000, true, "", "[0 0 0]"}, {3000, false, "resize1", "[0 0 0]"}, {3000, false, "", "[1000 1000 1000]"},
		} {
			config.CPU, fails = s.cpu, s.fails
			err := error(nil)
			if s.parked {
				err = r.Park(t.Context(), "s")
			} else {
				err = r.Resize(t.Context(), "s", config)
			}
			if got := r.shares(); got != s.want || (err != nil) != (s.fails != "") {
				t.Errorf("%+v: %s, %v", s, got, err)
			}
			all, _ := r.Instances(t.Context())
			if all[0].Parked != (s.want == "[0 0 0]") || !all[0].Parked && fmt.Sprint(slices.Repeat([]int{all[0].Config.CPU / 3}, 3)) != s.want {
				t.Errorf("%+v: %+v", s, all[0])
			}
		}
		if got := r.told(); got != "s ready" {
			t.Error(got)
		}
	})
}
