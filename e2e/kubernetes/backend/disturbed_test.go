package backend_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/disturb"
)

// through returns an edit that connects a backend to the API server through a disturbing
// proxy.
func through(t *testing.T, seed uint64) func(*kubernetes.Options) {
	t.Helper()
	proxy, err := disturb.Start(shared.Config(), disturb.Plan{
		Seed:  seed,
		Watch: disturb.Watch{Delay: 0.2, Latest: 200 * time.Millisecond, Duplicate: 0.2, Drop: 0.02, Unseen: time.Second, Cut: 0.02, Expire: 0.01},
		List:  disturb.List{Stale: 0.5, Age: 2 * time.Second},
		Write: disturb.Write{Refuse: 0.1, Lose: 0.1},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		t.Logf("disturbed: %+v", proxy.Counts())
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := clientset.NewForConfig(proxy.Config())
	if err != nil {
		t.Fatal(err)
	}
	return func(o *kubernetes.Options) { o.Client = client }
}

// Watches, lists and writes are disturbed. Two replicas still end with the instances of the
// cluster: those that were started and not stopped. Each is Ready, was reported Ready once,
// and there are no others.
func TestDisturbed(t *testing.T) {
	t.Parallel()
	const instances = 40
	r := newRig(t, true)
	a, b := r.backend(through(t, 7)), r.backend(through(t, 8))
	want := map[cluster.InstanceID]bool{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range instances {
		spec := r.spec(100)
		want[spec.ID] = true
		all.Go(func() {
			if _, err := a.Start(t.Context(), spec); err != nil {
				t.Errorf("start %s: %v", spec.ID, err)
			}
			a.await(spec.ID, cluster.Ready)
			var err error
			switch n % 4 {
			case 0: // By the one that started it.
				err = endOf(t, a, spec.ID)
			case 1: // By the other, once it knows.
				b.await(spec.ID, cluster.Ready)
				err = endOf(t, b, spec.ID)
			case 2: // By hand.
				err = shared.client.CoreV1().Pods(r.namespace).Delete(t.Context(), string(spec.ID), metav1.DeleteOptions{})
			default:
				return
			}
			if err != nil {
				t.Errorf("end %s: %v", spec.ID, err)
			}
			mu.Lock()
			defer mu.Unlock()
			delete(want, spec.ID)
		})
	}
	all.Wait()
	wanted := fmt.Sprint(slices.Sorted(maps.Keys(want)))
	r.until("the cluster has what was not stopped", func() string {
		list, err := shared.client.CoreV1().Pods(r.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.InstanceLabel})
		if err != nil {
			return err.Error()
		}
		var ids []cluster.InstanceID
		for _, p := range list.Items {
			ids = append(ids, cluster.InstanceID(p.Name))
		}
		if slices.Sort(ids); fmt.Sprint(ids) != wanted {
			return fmt.Sprint(ids, " and not ", wanted)
		}
		return ""
	})
	for _, x := range []*backend{a, b} {
		r.until("a replica knows what the cluster has", func() string { return x.knows(wanted) })
		for id := range want {
			if states, _ := x.history(id); !equal(states, "ready") && !equal(states, "starting ready") {
				t.Errorf("%s was told to be %v", id, states)
			}
		}
	}
}

func endOf(t *testing.T, b *backend, id cluster.InstanceID) error {
	ctx, cancel := contextFor(t, patience)
	defer cancel()
	return b.Stop(ctx, id)
}

// knows returns "" if those instances are ready and there are no others.
func (b *backend) knows(wanted string) string {
	list, err := b.Instances(b.t.Context())
	if err != nil {
		return err.Error()
	}
	var ids []cluster.InstanceID
	for _, in := range list {
		if in.State != cluster.Ready {
			return fmt.Sprintf("%s is %s", in.ID, in.State)
		}
		ids = append(ids, in.ID)
	}
	if slices.Sort(ids); fmt.Sprint(ids) != wanted {
		return fmt.Sprint(ids, " and not ", wanted)
	}
	return ""
}
