package keeper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/health"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend fails to stop instances a number of times, and then takes a while to stop them.
type backend struct {
	cluster.Backend
	leaves time.Duration

	found []cluster.Instance

	mu            sync.Mutex
	fails         int
	started, read int
	asked         []time.Time
}

func (b *backend) Instances(context.Context) ([]cluster.Instance, error) { return b.found, nil }

func (b *backend) Start(_ context.Context, spec cluster.InstanceSpec) (cluster.Instance, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.started++
	return cluster.Instance{InstanceSpec: spec, State: cluster.Starting}, nil
}

func (b *backend) Stop(ctx context.Context, _ cluster.InstanceID) error {
	b.mu.Lock()
	b.asked = append(b.asked, time.Now())
	b.fails--
	failing := b.fails >= 0
	b.mu.Unlock()
	if failing {
		return errors.New("no answer")
	}
	select {
	case <-time.After(b.leaves):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *backend) stopped() []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.asked)
}

func (b *backend) starts() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.started
}

func (b *backend) Usage(_ context.Context, id cluster.InstanceID) (cluster.Resources, error) {
	if id == "gone" {
		return cluster.Resources{}, errors.New("no such instance")
	}
	b.mu.Lock()
	b.read++
	b.mu.Unlock()
	time.Sleep(time.Second)
	return cluster.Resources{CPU: 250}, nil
}

// dispatcher takes a while to drain an instance.
type dispatcher struct {
	drains  time.Duration
	forgot  []cluster.InstanceID
	problem string
	refuse  bool
}

func (d *dispatcher) Drain(ctx context.Context, _ cluster.InstanceID) error {
	select {
	case <-time.After(d.drains):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *dispatcher) Forget(id cluster.InstanceID) bool {
	d.forgot = append(d.forgot, id)
	return false
}

func (d *dispatcher) SetProblem(problem string, refuse bool) { d.problem, d.refuse = problem, refuse }
func (d *dispatcher) Close()                                 {}

// instance is the simplest type of instance.
type instance struct {
	Kept
	up int
}

func (in *instance) Holds() cluster.Resources { return in.Config.Resources }
func (in *instance) Current() bool            { return in.Revision == 1 }
func (in *instance) Up()                      { in.up++ }

type nobody = Alone

// follower is a replica that does not lead.
type follower struct {
	nobody
	lost []cluster.InstanceID
}

func (*follower) Leads() bool                           { return false }
func (*follower) Alone() bool                           { return false }
func (f *follower) Lost(id cluster.InstanceID, _ error) { f.lost = append(f.lost, id) }

// rig is a keeper with one function.
type rig struct {
	*Keeper[*instance]
	sync.Mutex
	backend    *backend
	dispatcher *dispatcher
	fleet      Fleet[*instance]
	woken      int
}

// in runs f with a keeper in a bubble, in which time passes by itself.
func in(t *testing.T, b *backend, replicas Replicas, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{backend: b, dispatcher: &dispatcher{}}
		r.fleet = NewFleet[*instance](r.dispatcher, metrics.New(prometheus.NewRegistry()).Function("f.ns"))
		var err error
		r.Keeper, err = New[*instance](t.Context(), Options{
			Backend: b, Logger: zerolog.Nop(), Lock: &r.Mutex, Wake: func() { r.woken++ }, StopGrace: time.Second, Replicas: replicas, Discover: func(string) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		f(t, r)
		r.End()
		if err := r.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// add adds an instance that the backend is asked to start.
func (r *rig) add(id cluster.InstanceID) *instance {
	r.Lock()
	defer r.Unlock()
	in := &instance{}
	spec := cluster.InstanceSpec{ID: id, Function: "f.ns", Revision: 1, Node: "n", Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000}}}
	r.Add(in, &r.fleet, cluster.Instance{InstanceSpec: spec, State: cluster.Starting, StartedAt: time.Now()})
	r.Start(in, nil)
	return in
}

// becomes makes the backend report an instance's state.
func (r *rig) becomes(in *instance, s cluster.State) {
	seen := in.Instance
	seen.State = s
	if s == cluster.Ready {
		seen.ReadyAt = time.Now()
	}
	r.Observe(seen)
}

// An instance starts, serves, is retired once it is drained, and stopped.
func TestLife(t *testing.T) {
	in(t, &backend{}, Alone{}, func(t *testing.T, r *rig) {
		r.dispatcher.drains = 500 * time.Millisecond
		x := r.add("i")
		synctest.Wait()
		if r.backend.starts() != 1 || x.up != 0 {
			t.Errorf("started %d, up %d", r.backend.starts(), x.up)
		}
		r.becomes(x, cluster.Ready)
		r.becomes(x, cluster.Ready)
		if x.up != 1 || !x.There() || !x.AwaitReady(t.Context()) {
			t.Errorf("%+v", x)
		}
		nodes := []cluster.Node{{Name: "n", Total: cluster.Resources{CPU: 4000}}}
		if r.Free(nodes); nodes[0].Free.CPU != 3000 {
			t.Errorf("free: %+v", nodes[0].Free)
		}
		began := time.Now()
		r.Lock()
		r.Retire(x, "test")
		r.Retire(x, "test")
		r.Unlock()
		time.Sleep(time.Minute)
		if asked := r.backend.stopped(); len(asked) != 1 || asked[0].Sub(began) != 500*time.Millisecond {
			t.Errorf("stopped at %v", asked)
		}
		r.becomes(x, cluster.Exited)
		if len(r.fleet.Instances)+len(r.Instances()) > 0 || r.fleet.Failures != (Failures{}) || len(r.dispatcher.forgot) != 1 {
			t.Errorf("left: %+v, failures %+v", r.fleet.Instances, r.fleet.Failures)
		}
	})
}

// The time to load does not include the wait for room.
func TestLoadingBeginsWithTheStart(t *testing.T) {
	in(t, &backend{}, Alone{}, func(t *testing.T, r *rig) {
		x, y, z := r.add("x"), &instance{}, &instance{}
		synctest.Wait()
		spec, began := cluster.InstanceSpec{ID: "y", Function: "f.ns", Revision: 1}, time.Now()
		r.Lock()
		r.Add(y, &r.fleet, cluster.Instance{InstanceSpec: spec, State: cluster.Starting, StartedAt: began})
		r.Start(y, []cluster.InstanceID{"x"})
		r.Unlock()
		time.Sleep(time.Minute)
		r.becomes(x, cluster.Exited)
		synctest.Wait()
		started := time.Now()
		time.Sleep(2 * time.Second)
		ready := cluster.Instance{InstanceSpec: spec, State: cluster.Ready, StartedAt: started, ReadyAt: time.Now()}
		r.Observe(ready)
		if r.backend.starts() != 2 || y.Loading != 2*time.Second || !y.StartedAt.Equal(began) {
			t.Errorf("%d starts; loading took %v, the start was at %v", r.backend.starts(), y.Loading, y.StartedAt)
		}
		ready.ID = "z"
		r.Lock()
		r.Add(z, &r.fleet, ready)
		close(z.begun)
		r.Unlock()
		if z.Loading != 2*time.Second {
			t.Errorf("one of an earlier provider took %v", z.Loading)
		}
		ready.ID, ready.StartedAt = "u", time.Time{}
		u := &instance{}
		r.Lock()
		r.Add(u, &r.fleet, ready)
		close(u.begun)
		r.Unlock()
		if u.Loading != 0 {
			t.Errorf("one whose start is unknown took %v", u.Loading)
		}
	})
}

// An instance that breaks off an exchange is stopped without being drained. Its early exit
// delays the next one.
func TestLost(t *testing.T) {
	in(t, &backend{}, Alone{}, func(t *testing.T, r *rig) {
		x := r.add("i")
		synctest.Wait()
		r.becomes(x, cluster.Ready)
		r.Lost("i", errors.New("it hung up"))
		synctest.Wait()
		if len(r.backend.stopped()) != 1 || x.There() {
			t.Errorf("%d stops, %+v", len(r.backend.stopped()), x)
		}
		r.becomes(x, cluster.Exited)
		want := "an instance exited soon after it was ready: it hung up"
		if f := r.fleet.Failures; f.Why != want || f.NotBefore.Sub(time.Now()) != firstPause {
			t.Errorf("%+v", f)
		}
		if r.fleet.Tell(time.Now()); r.dispatcher.problem != want || r.dispatcher.refuse {
			t.Errorf("told %+v", r.dispatcher)
		}
	})
}

// One whose answers are errors is drained, since it may answer some requests well, and its end is no failure.
func TestLostByItsErrors(t *testing.T) {
	in(t, &backend{}, Alone{}, func(t *testing.T, r *rig) {
		r.dispatcher.drains = 500 * time.Millisecond
		x := r.add("i")
		synctest.Wait()
		r.becomes(x, cluster.Ready)
		began := time.Now()
		r.Lost("i", health.ErrAlone)
		time.Sleep(time.Minute)
		if asked := r.backend.stopped(); x.There() || len(asked) != 1 || asked[0].Sub(began) != 500*time.Millisecond {
			t.Errorf("stopped at %v, %+v", asked, x)
		}
		if r.becomes(x, cluster.Exited); r.fleet.Failures != (Failures{}) {
			t.Errorf("%+v", r.fleet.Failures)
		}
	})
}

// A replica that does not lead starts and stops nothing, and reports lost instances to the
// leader. When it begins to lead, it stops the instances that were being retired.
func TestFollower(t *testing.T) {
	f := &follower{}
	in(t, &backend{}, f, func(t *testing.T, r *rig) {
		x := r.add("i")
		synctest.Wait()
		if r.backend.starts() != 0 || !x.Retiring {
			t.Errorf("%d were started; %+v", r.backend.starts(), x)
		}
		y := &instance{}
		r.Observe(cluster.Instance{InstanceSpec: cluster.InstanceSpec{ID: "y", Function: "f.ns", Revision: 1}, State: cluster.Ready})
		r.Lock()
		r.Claim("f.ns", func(seen cluster.Instance) (*instance, string) {
			r.Add(y, &r.fleet, seen)
			return y, ""
		})
		r.Unlock()
		if y.up != 1 {
			t.Error("an instance that another replica has started is not used")
		}
		r.Lost("y", nil)
		synctest.Wait()
		if !slices.Equal(f.lost, []cluster.InstanceID{"y"}) || len(r.backend.stopped()) > 0 {
			t.Errorf("told of %v; %d stops", f.lost, len(r.backend.stopped()))
		}
		r.options.Replicas = Alone{}
		r.TakeOver(nil)
		synctest.Wait()
		if len(r.backend.stopped()) != 1 {
			t.Errorf("%d stops after it has begun to lead", len(r.backend.stopped()))
		}
	})
}

// Instances of an earlier provider are stopped if their function is unknown, and will not be
// known later.
func TestUnclaimed(t *testing.T) {
	b := &backend{found: []cluster.Instance{
		{InstanceSpec: cluster.InstanceSpec{ID: "a", Function: "f.ns"}, State: cluster.Ready},
		{InstanceSpec: cluster.InstanceSpec{ID: "b", Function: "gone.ns"}, State: cluster.Ready},
		{InstanceSpec: cluster.InstanceSpec{ID: "c", Function: "missing.ns"}, State: cluster.Ready},
	}}
	in(t, b, Alone{}, func(t *testing.T, r *rig) {
		r.Restoring(func(f string) bool { return f == "missing.ns" })
		r.Lock()
		r.StopUnclaimed(time.Now(), func(f string) bool { return f == "f.ns" })
		r.Unlock()
		synctest.Wait()
		if len(b.stopped()) != 1 {
			t.Errorf("%d stops", len(b.stopped()))
		}
		r.Lock()
		r.Claim("f.ns", func(cluster.Instance) (*instance, string) { return nil, "it is of another model" })
		r.Unlock()
		synctest.Wait()
		if len(b.stopped()) != 2 {
			t.Errorf("%d stops", len(b.stopped()))
		}
	})
}

// Four failures: after 0, 1, 1+2, 1+2+4 s; the fifth attempt, at 15 s, works.
func TestStopTriesAgain(t *testing.T) {
	b := &backend{fails: 4}
	in(t, b, Alone{}, func(t *testing.T, r *rig) {
		began := time.Now()
		r.stop("i", time.Second, nil)
		var after []time.Duration
		for _, at := range b.stopped() {
			after = append(after, at.Sub(began)/time.Second)
		}
		if !slices.Equal(after, []time.Duration{0, 1, 3, 7, 15}) {
			t.Errorf("asked after %v s", after)
		}
	})
}

// A backend that never stops an instance is asked until the keeper ends.
func TestStopGivesUpAtTheEnd(t *testing.T) {
	in(t, &backend{fails: 1 << 20}, Alone{}, func(t *testing.T, r *rig) {
		began := time.Now()
		r.Begin(func() { r.stop("i", time.Second, nil) })
		time.Sleep(100 * time.Second) // Within the pause from 63 to 127 s.
		r.End()
		if err := r.Close(t.Context()); err != nil || time.Since(began) != 100*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		r.Begin(func() { t.Error("something began after the end") })
	})
}

// Close returns when its context ends, with the errors.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backend{leaves: time.Hour, found: []cluster.Instance{{InstanceSpec: cluster.InstanceSpec{ID: "broken"}}}}
		var lock sync.Mutex
		k, err := New[*instance](t.Context(), Options{Backend: b, Logger: zerolog.Nop(), Lock: &lock, Wake: func() {}, Replicas: Alone{}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		k.Begin(func() { k.stop("slow", time.Hour, nil) })
		k.End()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err = k.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// A second reading is skipped while one is in progress. An instance that cannot be read
// uses nothing.
func TestOneReadingAtATime(t *testing.T) {
	in(t, &backend{}, Alone{}, func(t *testing.T, r *rig) {
		x, gone := r.add("i"), r.add("gone")
		r.Sample()
		r.Sample()
		time.Sleep(2 * time.Second)
		r.Sample()
		time.Sleep(2 * time.Second)
		r.Lock()
		defer r.Unlock()
		if r.backend.read != 2 || x.Usage != (cluster.Resources{CPU: 250}) || gone.Usage != (cluster.Resources{}) {
			t.Errorf("%d readings: %v, %v", r.backend.read, x.Usage, gone.Usage)
		}
	})
}

// A function's metrics count its shadows with its instances in what is used, and not as cold starts.
func TestMetricsOfShadows(t *testing.T) {
	in(t, &backend{}, Alone{}, func(t *testing.T, r *rig) {
		registry := prometheus.NewRegistry()
		recorder := metrics.New(registry).Function("f.ns")
		r.fleet = NewFleet[*instance](r.dispatcher, recorder)
		body, s, shadows := r.add("body"), &instance{}, NewFleet[*instance](r.dispatcher, recorder)
		r.Lock()
		r.Add(s, &shadows, cluster.Instance{InstanceSpec: cluster.InstanceSpec{ID: "shadow", Role: cluster.Shadow}, State: cluster.Starting})
		r.Start(s, nil)
		r.Unlock()
		r.becomes(body, cluster.Ready)
		r.becomes(s, cluster.Ready)
		r.Sample()
		time.Sleep(3 * time.Second)
		for name, want := range map[string]float64{"used_cpu_cores": 0.5, "cold_start_duration_seconds": 1} {
			if got := read(t, registry, "faas_infer_"+name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	})
}

// read is a gauge's value, or how many values a histogram has.
func read(t *testing.T, registry *prometheus.Registry, name string) float64 {
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestNewID(t *testing.T) {
	seen := map[cluster.InstanceID]bool{}
	for range 100 {
		id := NewID(strings.Repeat("x", 50) + ".space")
		if seen[id] || !strings.HasPrefix(string(id), strings.Repeat("x", 40)+"-") || len(id) != 40+1+12 {
			t.Fatalf("%q", id)
		}
		seen[id] = true
	}
}
