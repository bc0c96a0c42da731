package control

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// replica is one of several controllers on one cluster.
type replica struct {
	*rig
	leads atomic.Bool
	// dead: it no longer answers the others.
	dead   atomic.Bool
	events chan cluster.Instance
	others []*replica

	mu   sync.Mutex
	next map[*replica]uint64
}

// view is the cluster as one replica sees it.
type view struct {
	*fakeBackend
	events chan cluster.Instance
}

func (v view) Events() <-chan cluster.Instance { return v.events }

// Loads and the following implement [peer.Others] without a network.
func (r *replica) Loads() (out []peer.Load) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.others {
		if o.dead.Load() {
			continue
		}
		l := o.options.Replica.Local().Load(r.next[o])
		l.Boot, l.At = o.name(), time.Now()
		r.next[o] = l.Next
		out = append(out, l)
	}
	return out
}

func (r *replica) name() string { return string(rune('a' + slices.Index(r.all(), r))) }

func (r *replica) all() []*replica { return append([]*replica{r}, r.others...) }

// Wake takes effect after the call returns, as over a network.
func (r *replica) Wake() {
	go func() {
		for _, o := range r.others {
			if o.leads.Load() {
				o.Controller.Wake()
			}
		}
	}()
}

func (r *replica) Drain(ctx context.Context, id cluster.InstanceID) {
	for _, o := range r.others {
		if !o.dead.Load() {
			_ = o.options.Replica.Local().Drain(ctx, id)
		}
	}
}

func (r *replica) Park(_ context.Context, id cluster.InstanceID) bool {
	for i, o := range r.others {
		if !o.dead.Load() && !o.options.Replica.Local().Park(id) {
			for _, before := range r.others[:i] {
				before.options.Replica.Local().Serve(id, cluster.Config{})
			}
			return false
		}
	}
	return true
}

func (r *replica) Serve(id cluster.InstanceID, config cluster.Config) {
	go func() {
		for _, o := range r.others {
			o.options.Replica.Local().Serve(id, config)
		}
	}()
}

// together runs f with two replicas of a provider in a bubble. The first leads.
func together(t *testing.T, edit func(*Options), f func(leader, follower *replica)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		base := newRig(t)
		var both []*replica
		for range 2 {
			r := &replica{rig: newRig(t), events: make(chan cluster.Instance, 1<<12), next: map[*replica]uint64{}}
			r.backend, r.profiles, r.corrections = base.backend, base.profiles, base.corrections
			r.registry = prometheus.NewRegistry()
			r.options.Metrics = metrics.New(r.registry)
			r.options.Backend, r.options.Profiles, r.options.Corrections = view{base.backend, r.events}, base.profiles, base.corrections
			r.options.Dial, r.options.Replica = base.backend.Dial, peer.NewReplica(r.leads.Load, r)
			edit(&r.options)
			both = append(both, r)
		}
		both[0].others, both[1].others = both[1:], both[:1]
		both[0].leads.Store(true)
		stop := make(chan struct{})
		base.backend.Work.Go(func() {
			for {
				select {
				case in := <-base.backend.News:
					both[0].events <- in
					both[1].events <- in
				case <-stop:
					return
				}
			}
		})
		for _, r := range both {
			r.open()
		}
		for _, r := range both {
			r.run()
		}
		defer base.backend.Work.Wait()
		defer close(stop)
		defer func() {
			for _, in := range base.backend.living() {
				base.backend.crash(in.ID, "the test is over")
			}
		}()
		defer leave(t, both)
		f(both[0], both[1])
	})
}

// leave closes the replicas and checks that their instances stay.
func leave(t *testing.T, replicas []*replica) {
	before := len(replicas[0].backend.living())
	for _, r := range replicas {
		r.end()
		if err := r.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if left := len(replicas[0].backend.living()); left < before {
		t.Errorf("of %d instances %d are left after the replicas have gone; others were to go on with them", before, left)
	}
}

// both deploys the same revision at both.
func both(leader, follower *replica, name, image string, edit ...func(*provider.Function)) {
	leader.deploy(name, image, edit...)
	follower.revision = leader.revision - 1
	follower.deploy(name, image, edit...)
	for _, r := range []*replica{leader, follower} {
		r.until("measured", func() bool { return r.describe(name).Measured })
	}
}

func TestFollowerHasTheLeaderStartInstances(t *testing.T) {
	together(t, func(*Options) {}, func(leader, follower *replica) {
		both(leader, follower, "f", "m")
		if by, to := follower.models.measured(), leader.models.measured(); by != 0 || to != 1 {
			t.Errorf("the leader has measured the model %d times, the follower %d times; want 1 and 0", to, by)
		}
		follower.answered("f", "m")
		if n := leader.backend.asked(); n != 1 {
			t.Errorf("%d instances were started for one request, want 1", n)
		}
		for _, r := range []*replica{leader, follower} {
			r.until("known", func() bool { return r.describe("f").Ready == 1 })
		}
		leader.answered("f", "m") // On the same instance.
		if n := leader.backend.asked(); n != 1 {
			t.Errorf("%d instances were started for two requests, want 1", n)
		}
	})
}

func TestLeaderScalesByTheFollowersLoad(t *testing.T) {
	together(t, func(*Options) {}, func(leader, follower *replica) {
		both(leader, follower, "f", "m", func(f *provider.Function) { f.Inference.SLO = 50 * time.Millisecond })
		follower.answered("f", "m")
		// The first instance is small until the leader has heard of the load. The percentile
		// allows 100.
		if failed := follower.load("f", 2*time.Millisecond, 20*time.Second); failed > 50 {
			t.Errorf("%d requests of 10000 were not answered", failed)
		}
		if n := len(leader.backend.living()); n == 0 {
			t.Error("there is no instance under a load that only the follower sees")
		}
		leader.locked(func() {
			if n := statsOf(leader.functions[full("f")]).Arrivals; n < 9000 || n > 10100 {
				t.Errorf("the leader knows of %d requests, want about 10000", n)
			}
		})
		// Both have seen no request for longer than the keep-alive.
		leader.until("to zero", func() bool { return len(leader.backend.living()) == 0 })
	})
}

func TestFollowerStopsNothing(t *testing.T) {
	together(t, func(*Options) {}, func(leader, follower *replica) {
		both(leader, follower, "f", "m")
		follower.answered("f", "m")
		leader.leads.Store(false)
		time.Sleep(3 * keepAlive)
		if n := len(leader.backend.living()); n != 1 {
			t.Errorf("%d instances are left though nobody leads, want 1", n)
		}
		follower.leads.Store(true)
		follower.until("to zero", func() bool { return len(follower.backend.living()) == 0 })
	})
}

func TestAnotherLeads(t *testing.T) {
	together(t, func(*Options) {}, func(leader, follower *replica) {
		both(leader, follower, "f", "m")
		leader.answered("f", "m")
		done := make(chan int)
		go func() { done <- follower.load("f", 5*time.Millisecond, 30*time.Second) }()
		time.Sleep(10 * time.Second)
		before := leader.backend.living()
		leader.dead.Store(true)
		leader.leads.Store(false)
		leader.end() // As if it were killed.
		time.Sleep(time.Second)
		follower.leads.Store(true)
		time.Sleep(5 * time.Second)
		for _, in := range before {
			if !follower.lives(in.ID) {
				t.Errorf("%s, which served, is gone after another replica has taken the lead", in.ID)
			}
		}
		if failed := <-done; failed > 0 {
			t.Errorf("%d requests were not answered", failed)
		}
		asked := follower.backend.asked()
		follower.backend.crash(follower.backend.living()[0].ID, "killed")
		follower.until("replaced", func() bool { follower.answered("f", "m"); return follower.backend.asked() > asked })
		follower.leads.Store(false)
		leader.run() // Only to be closed.
	})
}

func TestUpdateReachesBothReplicas(t *testing.T) {
	together(t, func(*Options) {}, func(leader, follower *replica) {
		both(leader, follower, "f", "m")
		follower.answered("f", "m")
		old := leader.only()
		done := make(chan int)
		go func() { done <- follower.load("f", 10*time.Millisecond, 10*time.Second) }()
		// The leader knows of the update a while before the follower.
		leader.deploy("f", "m2")
		time.Sleep(3 * time.Second)
		follower.revision = leader.revision - 1
		follower.deploy("f", "m2")
		leader.until("replaced", func() bool {
			living := leader.backend.living()
			return len(living) > 0 && !leader.lives(old.ID)
		})
		if failed := <-done; failed > 0 {
			t.Errorf("%d requests were not answered during the update", failed)
		}
		follower.answered("f", "m2")
		follower.until("only the new revision's", func() bool {
			d := follower.describe("f")
			return len(d.Instances) == len(follower.backend.living()) && !slices.ContainsFunc(d.Instances, func(in cluster.Instance) bool { return in.Revision != leader.revision })
		})
		follower.locked(func() {
			fn := follower.functions[full("f")]
			for id, in := range fn.Instances {
				if in.times != fn.artefacts[0].paces[0].times {
					t.Errorf("the follower has not recognised the new revision's instance %s", id)
				}
			}
		})
	})
}

func TestFollowersBrokenInstanceIsReplaced(t *testing.T) {
	together(t, func(o *Options) {}, func(leader, follower *replica) {
		leader.backend.becomes(func(n int, _ cluster.InstanceSpec) behaviour { return behaviour{Broken: n == 0} })
		both(leader, follower, "f", "m")
		follower.answered("f", "m") // By the second one.
		if leader.backend.asked() < 2 {
			t.Error("an instance that the follower has lost was not replaced")
		}
		leader.until("gone", func() bool { return len(leader.backend.living()) == 1 })
	})
}

func TestParkedForBothReplicas(t *testing.T) {
	together(t, parks, func(leader, follower *replica) {
		both(leader, follower, "f", "m")
		follower.answered("f", "m")
		in := leader.only()
		leader.until("parked", func() bool { return leader.only().Parked })
		// The follower, whose backend does not say so, leaves it alone until the
		// leader has it serve again: the instance would complain.
		follower.answered("f", "m")
		if leader.only().ID != in.ID {
			t.Error("a request has started another instance instead of the parked one")
		}
		leader.answered("f", "m")
		leader.until("parked again", func() bool { return leader.only().Parked })
	})
}

func (m *fakeModels) measured() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.measures
}

// locked runs f under the controller's lock.
func (r *replica) locked(f func()) {
	r.Controller.mu.Lock()
	defer r.Controller.mu.Unlock()
	f()
}

// Another replica, or one that starts later, recognises instances by their fingerprint,
// even after an update that restarts nothing.
func TestInstancesAreKnownByTheirFingerprint(t *testing.T) {
	together(t, func(*Options) {}, func(leader, follower *replica) {
		both(leader, follower, "f", "m")
		leader.answered("f", "m")
		in := leader.only()
		slo := func(f *provider.Function) { f.Inference.SLO = 300 * time.Millisecond }
		leader.deploy("f", "m", slo)
		follower.end()
		leader.mu.Lock()
		follower.open() // It forgets what it knows.
		leader.mu.Unlock()
		follower.run()
		follower.revision = leader.revision - 1
		follower.deploy("f", "m", slo)
		follower.until("known", func() bool { return follower.describe("f").Ready == 1 })
		if got := follower.describe("f").Instances[0]; got.ID != in.ID || got.Revision != leader.revision {
			t.Errorf("the instance of revision %d is of revision %d to the other replica, want %d", in.Revision, got.Revision, leader.revision)
		}
		leader.leads.Store(false)
		follower.leads.Store(true)
		time.Sleep(10 * time.Second)
		if !follower.lives(in.ID) {
			t.Error("the instance was replaced")
		}
		// A changed constraint replaces the instances.
		constrained := func(f *provider.Function) { slo(f); f.Deployment.Constraints = []string{"zone=a"} }
		follower.deploy("f", "m", constrained)
		follower.until("replaced", func() bool { follower.answered("f", "m"); return !follower.lives(in.ID) })
	})
}
