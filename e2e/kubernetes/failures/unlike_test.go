package failures

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	backend "github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testprovider"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/objects"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// slower is how many times slower than the fast nodes the slow ones are.
const slower = 30

// slowInstances answer like shared.instances, on some nodes many times later.
type slowInstances struct {
	slow map[string]bool
	mu   sync.Mutex
	// on has whether a pod's address is on a slow node.
	on map[string]bool
}

func (s *slowInstances) exec(t *testing.T) func(address string, batch int) time.Duration {
	return func(address string, batch int) time.Duration {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, known := s.on[address]; !known {
			list, err := shared.client.CoreV1().Pods(where(t).namespace).List(context.Background(), metav1.ListOptions{})
			if err == nil {
				for _, p := range list.Items {
					s.on[fmt.Sprintf("%s:%d", p.Status.PodIP, 8080)] = s.slow[p.Spec.NodeName]
				}
			}
		}
		took := testprovider.Times(modelTime, batch)
		if s.on[address] {
			took *= slower
		}
		return took
	}
}

// A model was measured on the first replica's CPU only. A replica on another CPU, which does not
// lead and so measures nothing, serves it at once, although it would never find a profile of its
// own. Nodes of two types get corrections of their own, which a cluster keeps apart.
func TestUnlikeNodes(t *testing.T) {
	names := nodes(t, 2, "1")
	slow := &slowInstances{slow: map[string]bool{names[1]: true}, on: map[string]bool{}}
	for i, name := range names {
		kind := []string{"fast", "slow"}[i]
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, corev1.LabelInstanceTypeStable, kind)
		if _, err := shared.client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	instances, err := testprovider.StartStandInsOf(slow.exec(t))
	if err != nil {
		t.Fatal(err)
	}
	defer instances.Close()
	ctx, cancel := context.WithCancel(context.Background())
	history, err := objects.OpenHistoryStore(ctx, shared.client, leaseNamespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer history.Close()
	defer cancel()
	on := func(machine string, leads bool) *testprovider.Rig {
		t.Helper()
		r, err := testprovider.Open(t.Context(), testprovider.Options{
			Config: shared.Config(), Instances: instances, Namespace: where(t).namespace,
			Backend: func(b *backend.Options) { b.NodeSelector = testLabel + "=" + label(t) },
			Control: func(c *control.Options) {
				c.Profiles, c.Corrections, c.Replica = history, history, peer.NewReplica(func() bool { return leads }, nil)
				if machine != "" {
					c.Machine = machine
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Deploy(t.Context(), testprovider.Function{Name: "unlike", SLO: objective, Exec: modelTime, Min: 8}); err != nil {
			t.Fatal(err)
		}
		r.Run()
		return r
	}
	first := on("", true)
	eventually(t, "both nodes are full", func() string {
		if n := first.Ready("unlike"); n != 8 {
			return fmt.Sprintf("%d instances", n)
		}
		return ""
	})
	began := time.Now()
	second := on("another CPU", false)
	eventually(t, "the second replica knows the instances", func() string {
		if n := second.Ready("unlike"); n != 8 {
			return fmt.Sprintf("%d instances", n)
		}
		return ""
	})
	if err := second.Invoke(t.Context(), "unlike", "hello"); err != nil {
		t.Error(err)
	}
	took := time.Since(began)
	t.Logf("the second replica answered after %v", took)
	if took > time.Minute { // It gives the leader two minutes for a profile of its own machine.
		t.Errorf("the second replica answered after %v", took)
	}
	if err := second.Crash(); err != nil {
		t.Error(err)
	}

	var all sync.WaitGroup
	for i := range 80 { // More than the fast ones take in full batches.
		all.Go(func() {
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
				if err := first.Invoke(t.Context(), "unlike", fmt.Sprint(i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	batches := map[bool]int{}
	for address, n := range instances.Served() {
		batches[slow.on[address]] += n
	}
	t.Logf("%d batches on the fast node, %d on the slow one", batches[false], batches[true])
	// It stores what it has learned, and leaves its instances to the other replicas.
	if err := first.Close(t.Context()); err != nil {
		t.Error(err)
	}
	defer func() {
		if out, err := shared.Kubectl(context.Background(), "", "delete", "pods", "-n", where(t).namespace, "-l", v1alpha1.FunctionLabel+"=unlike", "--grace-period=0", "--force"); err != nil {
			t.Error(out, err)
		}
	}()
	factor := func(kind string) (most float64) {
		var s correction.State
		eventually(t, "the correction is stored", func() string {
			if s, err = history.Correction("unlike." + where(t).namespace + " on " + kind); err != nil {
				return err.Error()
			}
			return ""
		})
		for _, c := range s.Classes {
			most = max(most, c.Factor)
		}
		return most
	}
	// The times are those of the exchanges, so a busy machine makes both longer.
	fast, late := factor("fast"), factor("slow")
	t.Logf("the corrections are %.2f on fast nodes and %.2f on slow ones", fast, late)
	if late <= fast {
		t.Errorf("the corrections are %.2f on fast nodes and %.2f on slow ones", fast, late)
	}
}
