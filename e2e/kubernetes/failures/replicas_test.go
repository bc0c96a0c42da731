package failures

import (
	"context"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/client-go/rest"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/client"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/disturb"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testprovider"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// leaseNamespace is the namespace of the replicas' election.
const leaseNamespace = "openfaas"

// members are the replicas of a test.
type members struct {
	mu  *sync.Mutex
	all *[]peer.Member
	id  string
}

// Members implements [peer.Membership].
func (m members) Members() []peer.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *m.all
}

// Leaving implements [peer.Membership].
func (m members) Leaving() []peer.Member { return nil }

// Self implements [peer.Membership].
func (m members) Self() string { return m.id }

// replica is one provider of several.
type replica struct {
	*testprovider.Rig
	id       string
	proxy    *disturb.Proxy
	election *client.Election
	server   *httptest.Server
	stop     context.CancelFunc
	ran      sync.WaitGroup
}

// replicas opens n replicas, each with its own connection to the API server.
func replicas(t *testing.T, n int, plan disturb.Plan) []*replica {
	t.Helper()
	var mu sync.Mutex
	var all []peer.Member
	profiles := new(testprovider.Profiles)
	var out []*replica
	for i := range n {
		r := &replica{id: fmt.Sprintf("replica-%d", i)}
		plan.Seed++
		r.proxy = proxy(t, plan)
		r.elect(t, r.proxy.Config())
		group := peer.New(peer.Options{Membership: members{&mu, &all, r.id}, Leading: r.election.Leading, Tick: 100 * time.Millisecond, ColdWait: 30 * time.Second, Logger: zerolog.Nop()})
		r.server = httptest.NewServer(group.Handler())
		t.Cleanup(func() {
			r.server.CloseClientConnections()
			r.server.Close()
		})
		mu.Lock()
		all = append(append([]peer.Member(nil), all...), peer.Member{ID: r.id, URL: r.server.URL})
		mu.Unlock()
		r.Rig = open(t, r.proxy.Config(), func(o *testprovider.Options) {
			o.Group = group
			o.Control = func(c *control.Options) {
				c.Replica, c.Profiles = peer.NewReplica(r.election.Leading, group), profiles
			}
		})
		out = append(out, r)
	}
	return out
}

// elect lets the replica take part in the election.
func (r *replica) elect(t *testing.T, config *rest.Config) {
	t.Helper()
	var err error
	r.election, err = client.NewElection(client.ElectionOptions{Config: config, Namespace: leaseNamespace, Name: label(t), Identity: r.id, Lease: 3 * time.Second,
		Changed: func(bool) {
			if r.Rig != nil {
				r.Controller.Wake()
			}
		}, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	r.ran.Go(func() { _ = r.election.Run(ctx) })
	t.Cleanup(func() {
		r.stop()
		r.ran.Wait()
	})
}

// leading waits until one replica leads, and returns it and the others.
func leading(t *testing.T, all []*replica) (first *replica, others []*replica) {
	t.Helper()
	eventually(t, "one replica leads", func() string {
		first, others = nil, nil
		for _, r := range all {
			if r.election.Leading() {
				if first != nil {
					return "two lead"
				}
				first = r
			} else {
				others = append(others, r)
			}
		}
		if first == nil {
			return "none does"
		}
		return ""
	})
	return first, others
}

// Two providers share their functions. Both dispatch, one starts and stops instances, and
// both know the same. When the leader loses the API server, the other leads within seconds
// and keeps the existing instances. No request is lost at either.
func TestTwoProvidersAndTheLeaderIsCutOff(t *testing.T) {
	apart(t)
	nodes(t, 3, "4")
	all := replicas(t, 2, disturb.Plan{})
	first, others := leading(t, all)
	second := others[0]
	want := map[string]int{"a": 2, "b": 3}
	for _, r := range all {
		converges(t, r.Rig, want)
	}
	before := pods(t)
	l := begin(t, 20*time.Millisecond, []string{"a", "b", "c"}, first.Rig, second.Rig)
	want["c"] = 1
	for _, r := range all {
		converges(t, r.Rig, want)
	}
	cut := time.Now()
	if err := first.proxy.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "the other leads", func() string {
		// In this order: the first one's lead may end between the two.
		if second.election.Leading() && first.election.Leading() {
			t.Fatal("both lead")
		}
		if !second.election.Leading() {
			return "it does not"
		}
		return ""
	})
	t.Logf("the other led %v after the leader was cut off", time.Since(cut).Round(10*time.Millisecond))
	scale(t, second.Rig, "a", 4)
	want["a"] = 4
	converges(t, second.Rig, want)
	stopped := 0
	for name, now := range before {
		if _, ok := pods(t)[name]; !ok {
			stopped++
			t.Logf("%s was stopped", now.Name)
		}
	}
	if stopped > 1 { // One may have been exchanged for a better one meanwhile.
		t.Errorf("%d of %d instances did not outlive the change", stopped, len(before))
	}
	l.end()
	sweep(t, all)
}

// sweep ends replicas and deletes what they leave, for the next test.
func sweep(t *testing.T, all []*replica) {
	t.Helper()
	for _, r := range all {
		r.abandon(t)
	}
	for _, p := range pods(t) {
		forceDelete(t, p)
	}
}

// abandon ends a replica like a kill.
func (r *replica) abandon(t *testing.T) {
	t.Helper()
	r.stop()
	r.ran.Wait()
	if err := r.Crash(); err != nil {
		t.Error(err)
	}
}

// The leader is killed under load, before it has done all that was ordered. The next leader
// finds its instances and does the rest. All requests sent to the other replica are
// answered.
func TestLeaderKilled(t *testing.T) {
	apart(t)
	nodes(t, 3, "4")
	all := replicas(t, 2, disturb.Plan{})
	first, others := leading(t, all)
	second := others[0]
	for _, r := range all {
		converges(t, r.Rig, map[string]int{"a": 2, "b": 3})
	}
	l := begin(t, 20*time.Millisecond, []string{"a", "b"}, second.Rig)
	scale(t, first.Rig, "b", 6)
	scale(t, second.Rig, "b", 6) // What is deployed is told to all.
	first.server.CloseClientConnections()
	first.server.Close()
	first.abandon(t)
	killed := time.Now()
	eventually(t, "the other leads", func() string {
		if !second.election.Leading() {
			return "it does not"
		}
		return ""
	})
	t.Logf("the other led %v after the leader was killed", time.Since(killed).Round(10*time.Millisecond))
	converges(t, second.Rig, map[string]int{"a": 2, "b": 6})
	l.end()
	sweep(t, others)
}

// Two providers with differently disturbed watches reach the same final state.
func TestTwoProvidersDisturbed(t *testing.T) {
	apart(t)
	nodes(t, 3, "4")
	all := replicas(t, 2, disturb.Plan{Seed: 11, Watch: disturb.Watch{Delay: 0.2, Latest: 200 * time.Millisecond, Duplicate: 0.2, Drop: 0.05, Unseen: 300 * time.Millisecond, Cut: 0.05, Expire: 0.05}})
	first, others := leading(t, all)
	l := begin(t, 50*time.Millisecond, []string{"a", "b"}, all[0].Rig, all[1].Rig)
	for _, n := range []int{5, 1, 3} {
		for _, r := range all {
			scale(t, r.Rig, "a", n)
			scale(t, r.Rig, "b", n)
		}
		for _, r := range all {
			converges(t, r.Rig, map[string]int{"a": n, "b": n})
		}
	}
	l.end()
	if x, y := state(t, first.Rig), state(t, others[0].Rig); x != y {
		t.Errorf("one knows\n%s\nthe other\n%s", x, y)
	}
	sweep(t, all)
}
