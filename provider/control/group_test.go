package control

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// street holds the addresses of a test's replicas.
type street struct {
	mu  sync.Mutex
	all []peer.Member
}

func (s *street) add(m peer.Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(slices.Clone(s.all), m)
}

// house is one replica in it.
type house struct {
	*street
	id string
}

func (h house) Self() string { return h.id }

func (h house) Leaving() []peer.Member { return nil }

func (h house) Members() []peer.Member {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all
}

// networked is a replica that talks to the others over HTTP.
type networked struct {
	*rig
	group  *peer.Group
	server *httptest.Server
	leads  atomic.Bool
	events chan cluster.Instance
	ask    provider.Dispatcher
	stop   context.CancelFunc
	ended  chan struct{}
}

func (n *networked) deployed(f *provider.Function) {
	n.t.Helper()
	d, err := n.Deploy(n.t.Context(), f)
	if err != nil {
		n.t.Fatal(err)
	}
	n.ask = n.group.Share(f, d)
}

func (n *networked) answers(body string) error {
	got, err := n.ask.Invoke(n.t.Context(), &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Body: []byte(body)})
	if err == nil && string(got.Body) != "m:"+body {
		err = fmt.Errorf("it answered %q", got.Body)
	}
	return err
}

// kill ends a replica as kill -9 does, as far as the others see it.
func (n *networked) kill() {
	n.leads.Store(false)
	n.server.Listener.Close()
	n.server.CloseClientConnections()
	n.stop()
	<-n.ended
}

// stall is longer than the machine may ever stand still. No request is late by it, so a
// request that fails was lost.
const stall = 5 * time.Minute

// network runs n replicas of a provider on one cluster. The first leads.
func network(t *testing.T, n int) (*fakeBackend, []*networked) {
	backend, where := newFakeBackend(t), &street{}
	profiles, corrections := &fakeProfiles{kept: map[string]*profiler.Profile{}}, &fakeCorrections{kept: map[string]correction.State{}}
	var all []*networked
	for i := range n {
		r := &networked{rig: newRig(t), events: make(chan cluster.Instance, 1<<12), ended: make(chan struct{})}
		r.backend, r.registry = backend, prometheus.NewRegistry()
		r.leads.Store(i == 0)
		id := fmt.Sprintf("replica-%d", i)
		r.group = peer.New(peer.Options{Membership: house{where, id}, Leading: r.leads.Load, Tick: 20 * time.Millisecond, ColdWait: stall, Logger: zerolog.Nop()})
		o := &r.options
		o.Backend, o.Profiles, o.Corrections, o.Dial = view{backend, r.events}, profiles, corrections, backend.Dial
		o.Metrics, o.Replica, o.Tick, o.ColdWait = metrics.New(r.registry), peer.NewReplica(r.leads.Load, r.group), 20*time.Millisecond, stall
		r.open()
		r.group.Attach(o.Replica.Local())
		r.server = httptest.NewServer(r.group.Handler())
		where.add(peer.Member{ID: id, URL: r.server.URL})
		all = append(all, r)
	}
	fanned := make(chan struct{})
	backend.Work.Go(func() {
		for {
			select {
			case in := <-backend.News:
				for _, r := range all {
					r.events <- in
				}
			case <-fanned:
				return
			}
		}
	})
	for _, r := range all {
		var ctx context.Context
		ctx, r.stop = context.WithCancel(context.Background())
		go func() {
			defer close(r.ended)
			var both sync.WaitGroup
			both.Go(func() { r.group.Run(ctx) })
			both.Go(func() { r.Run(ctx) })
			both.Wait()
		}()
	}
	t.Cleanup(func() {
		for _, r := range all {
			r.stop()
			<-r.ended
			if err := r.Close(context.Background()); err != nil {
				t.Errorf("close: %v", err)
			}
			r.server.Close()
		}
		for _, in := range backend.living() {
			backend.crash(in.ID, "the test is over")
		}
		close(fanned)
		backend.Work.Wait()
	})
	return backend, all
}

// soon waits for a condition, in real time.
func soon(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(stall); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// Three replicas talk over HTTP. Whichever gets a request, the function's owner batches it,
// and the leader starts the instances. The test kills the leader under load, and then
// another replica.
func TestReplicasOverTheNetwork(t *testing.T) {
	backend, all := network(t, 3)
	for i := range 6 {
		f := all[0].function(fmt.Sprintf("f%d", i), "m", within(stall))
		for _, r := range all {
			r.deployed(f)
		}
		if i == 0 { // Each is at its owner's first.
			if err := all[2].answers("cold"); err != nil {
				t.Fatalf("a cold function: %v", err)
			}
		}
	}
	soon(t, "every replica knows the instance", func() bool {
		return !slices.ContainsFunc(all, func(r *networked) bool { d, _ := r.Describe(full("f0")); return d.Ready == 0 })
	})
	for _, r := range all {
		if err := r.answers("warm"); err != nil {
			t.Errorf("%v", err)
		}
	}
	var failed, answered atomic.Int64
	stop := make(chan struct{})
	var load sync.WaitGroup
	const clients = 8
	for range clients {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := all[2].answers("x"); err != nil {
					t.Log(err)
					failed.Add(1)
				} else {
					answered.Add(1)
				}
			}
		})
	}
	soon(t, "load", func() bool { return answered.Load() > 300 })
	before := backend.living()
	all[0].kill()
	all[1].leads.Store(true)
	all[1].Wake()
	n := answered.Load()
	soon(t, "it goes on without its leader", func() bool { return answered.Load() > n+500 })
	all[1].kill()
	all[2].leads.Store(true)
	all[2].Wake()
	n = answered.Load()
	soon(t, "it goes on with one", func() bool { return answered.Load() > n+500 })
	close(stop)
	load.Wait()
	// The next owner executes the requests that were at a killed owner.
	if f, a := failed.Load(), answered.Load(); f > 0 {
		t.Errorf("%d requests failed, %d were answered", f, a)
	}
	t.Logf("%d answered, %d failed; %d instances before, %d after", answered.Load(), failed.Load(), len(before), len(backend.living()))
}
