package sets

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// A closed backend's sets live on, and the next one takes them over: their masters are told their
// workers again, a worker that is missing is started, and what never was a whole set is stopped.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		first := on(t, m, true)
		for _, id := range []cluster.InstanceID{"whole", "lame", "headless"} {
			first.begin(spec(id))
		}
		time.Sleep(2 * time.Second)
		first.begin(spec("half"))
		first.close()
		if len(m.ids()) != 12 {
			t.Errorf("it left %v", m.ids())
		}
		if err := first.Stop(t.Context(), "whole"); err == nil {
			t.Error("a closed backend stops something")
		}
		m.kill(m.at("lame", 2))
		m.kill("headless")
		m.kill(m.at("half", 1))

		second := on(t, m, true)
		all, err := second.Instances(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		states := map[cluster.InstanceID]cluster.State{}
		for _, in := range all {
			states[in.ID] = in.State
			if in.Config != spec("s").Config || in.Set != "" || in.Plan != threeParts || in.Revision != 7 {
				t.Errorf("%+v", in)
			}
		}
		if want := fmt.Sprint(map[cluster.InstanceID]cluster.State{"whole": cluster.Ready, "lame": cluster.Starting, "half": cluster.Starting}); fmt.Sprint(states) != want {
			t.Errorf("got %v, want %v", states, want)
		}
		time.Sleep(time.Minute)
		got := second.told()
		for _, want := range []string{"lame ready", "half stopping", "half exited"} {
			if !strings.Contains(got, want) {
				t.Errorf("%q was not told: %s", want, got)
			}
		}
		if len(m.ids()) != 6 || second.calls() != 2 {
			t.Errorf("left: %v", m.ids())
		}
		second.close()
		time.Sleep(time.Minute)
	})
}

// A replica that follows tells the same as the leader and does nothing. When it leads, it does
// what is due.
func TestReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		leader, follower := on(t, m, true), on(t, m, false)
		leader.begin(spec("s"))
		time.Sleep(2 * time.Second)
		if got := follower.told(); got != "s starting, s ready" || follower.calls() != 0 {
			t.Errorf("the follower tells %s", got)
		}
		config := spec("s").Config
		config.CPU = 6000
		if err := leader.Resize(t.Context(), "s", config); err != nil {
			t.Fatal(err)
		}
		if got := follower.told(); got != "s ready" || follower.last["s"].Config != config {
			t.Errorf("the follower tells %s: %+v", got, follower.last["s"])
		}
		leader.close() // It dies, and nobody leads.
		m.kill(m.at("s", 1))
		time.Sleep(time.Minute)
		if len(m.ids()) != 2 || follower.told() != "" || follower.only() != cluster.Ready {
			t.Errorf("nobody leads, and there are %v", m.ids())
		}
		follower.lead(true)
		time.Sleep(5 * time.Second)
		if len(m.ids()) != 3 || follower.calls() != 1 || follower.only() != cluster.Ready {
			t.Errorf("the new leader leaves %v", m.ids())
		}
		if in := m.get(m.at("s", 1)); in.Config != config.Share() {
			t.Errorf("the new worker has %v", in.Config)
		}
		follower.lead(false)
		m.kill("s")
		time.Sleep(time.Minute)
		if got := follower.told(); got != "s stopping" || len(m.ids()) != 2 {
			t.Errorf("%s, left: %v", got, m.ids())
		}
		follower.lead(true)
		time.Sleep(5 * time.Second)
		if got := follower.told(); got != "s exited" || len(m.ids()) != 0 {
			t.Errorf("%s, left: %v", got, m.ids())
		}
		follower.close()
		time.Sleep(time.Minute)
	})
}

// When the backend below is closed first, the backend of sets ends, too.
func TestClosedBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		r := on(t, m, true)
		r.ready()
		_ = m.views[0].Close()
		synctest.Wait()
		if _, open := <-r.Events(); open {
			t.Error("its events go on")
		}
		r.close()
		if len(m.ids()) != 3 {
			t.Errorf("left: %v", m.ids())
		}
		time.Sleep(time.Minute)
	})
}

// FuzzSets starts, stops, resizes, parks and kills at random. A set that has a dead worker is not
// ready for longer than it takes to replace that, and no member is left once all sets were stopped.
func FuzzSets(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			m := newMachine()
			m.startTime, m.loadTime, m.stopTime = time.Duration(random.IntN(200))*time.Millisecond, time.Duration(random.IntN(800))*time.Millisecond, time.Duration(random.IntN(400))*time.Millisecond
			r := on(t, m, true)
			chance := func(percent int) bool { return random.IntN(100) < percent }
			var failing sync.Mutex
			faults := rand.New(rand.NewPCG(seed, 2))
			m.failing(func(what string, _ cluster.InstanceSpec) error {
				failing.Lock()
				defer failing.Unlock()
				if what != "stop" && faults.IntN(100) < 10 {
					return fmt.Errorf("no %s", what)
				}
				return nil
			})
			var calls sync.WaitGroup
			for n := range 40 {
				id := cluster.InstanceID(fmt.Sprintf("s%d", random.IntN(4)))
				switch {
				case chance(40):
					calls.Go(func() { _, _ = r.Start(context.Background(), spec(cluster.InstanceID(fmt.Sprintf("s%d", n%4)))) })
				case chance(50):
					if id := m.at(id, random.IntN(3)); id != "" {
						m.kill(id)
					}
				case chance(30):
					calls.Go(func() {
						ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
						defer cancel()
						_ = r.Stop(ctx, id)
					})
				case chance(50):
					config := spec(id).Config
					config.CPU = 3000 * (1 + random.IntN(3))
					calls.Go(func() { _ = r.Resize(context.Background(), id, config) })
				default:
					calls.Go(func() { _ = r.Park(context.Background(), id) })
				}
				time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
			}
			calls.Wait()
			m.failing(func(string, cluster.InstanceSpec) error { return nil })
			time.Sleep(time.Minute) // All that is due is done by now.
			all, err := r.Instances(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, in := range all {
				for number := range 3 {
					if in.State != cluster.Ready || m.at(in.ID, number) == "" {
						t.Errorf("set %s is %s, with members %v", in.ID, in.State, m.ids())
					} else if member := m.get(m.at(in.ID, number)); member.Config != in.Config.Share() || member.Parked != in.Parked {
						t.Errorf("set %s has %v, member %d %v", in.ID, in.Config, number, member.Config)
					}
				}
			}
			if n := len(m.ids()); n != 3*len(all) {
				t.Errorf("%d sets have %d members", len(all), n)
			}
			for _, in := range all {
				if err := r.Stop(t.Context(), in.ID); err != nil {
					t.Error(err)
				}
			}
			if n := m.ids(); len(n) != 0 {
				t.Errorf("left: %v", n)
			}
			r.told()
			r.mu.Lock()
			for id, in := range r.last {
				if in.State != cluster.Exited {
					t.Errorf("%s is %s to the last", id, in.State)
				}
			}
			r.mu.Unlock()
			r.close()
			time.Sleep(time.Minute)
		})
	})
}

// A new ID is a DNS label, and no two are the same.
func TestMemberID(t *testing.T) {
	for _, set := range []cluster.InstanceID{"s", "mnist-0123456789ab", cluster.InstanceID(strings.Repeat("a", 63)), cluster.InstanceID(strings.Repeat("a", 53) + "---------b")} {
		a, b := memberID(set, 255), memberID(set, 255)
		if a == b || len(a) > 63 || strings.Contains(string(a), "--") || !strings.HasPrefix(string(a), string(set[:1])) || !strings.Contains(string(a), "-255-") {
			t.Errorf("%s and %s", a, b)
		}
	}
}
