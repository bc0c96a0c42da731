package failures

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/faas-infer/faas-infer/cluster"
	backend "github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testprovider"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/scaling"
)

// nodes makes new nodes for a test, each with a number of cores. Providers that the test
// opens see no others.
func nodes(t *testing.T, n int, cores string) (names []string) {
	t.Helper()
	err := shared.AddNodes(t.Context(), n, cores, "16Gi", func(node *corev1.Node) {
		node.Name = label(t) + "-" + strings.TrimPrefix(node.Name, "kwok-")
		node.Labels[corev1.LabelHostname], node.Labels[testLabel] = node.Name, label(t)
		names = append(names, node.Name)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := shared.Kubectl(context.Background(), "", append([]string{"delete", "node", "--ignore-not-found"}, names...)...); err != nil {
			t.Error(err)
		}
	})
	return names
}

// open makes a provider that connects to the API server with config, with the functions of
// every test.
func open(t *testing.T, config *rest.Config, edit func(*testprovider.Options)) *testprovider.Rig {
	t.Helper()
	in := where(t)
	o := testprovider.Options{Config: config, Instances: in.instances, Namespace: in.namespace, Logger: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)}
	o.Backend = func(b *backend.Options) { b.NodeSelector = testLabel + "=" + label(t) }
	if edit != nil {
		edit(&o)
	}
	own := o.Control
	o.Control = func(c *control.Options) {
		// So that what is too much goes within seconds.
		c.System = c.System.With(func(s *scaling.Settings) { s.Stabilisation, s.Burst = time.Second, time.Second })
		if own != nil {
			own(c)
		}
	}
	r, err := testprovider.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range functions() {
		if err := r.Deploy(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	r.Run()
	return r
}

// functions returns two functions that keep instances without load, and one that does not.
func functions() []testprovider.Function {
	return []testprovider.Function{
		{Name: "a", SLO: objective, Exec: modelTime, Min: 2},
		{Name: "b", SLO: objective, Exec: modelTime, Min: 3},
		{Name: "c", SLO: objective, Exec: modelTime, Max: 1},
	}
}

// end stops all instances and checks that no pod is left.
func end(t *testing.T, r *testprovider.Rig) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	eventually(t, "no pod is left", func() string { return strings.Join(slices.Sorted(maps.Keys(pods(t))), " ") })
}

// pods returns the instances' pods that are not being deleted, from the API server.
func pods(t *testing.T) map[string]*corev1.Pod {
	t.Helper()
	list, err := shared.client.CoreV1().Pods(where(t).namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	living := map[string]*corev1.Pod{}
	for i := range list.Items {
		if p := &list.Items[i]; p.DeletionTimestamp == nil {
			living[p.Name] = p
		}
	}
	return living
}

// state returns the final state for comparisons: the number of each function's instances by
// config.
func state(t *testing.T, r *testprovider.Rig) string {
	t.Helper()
	instances, err := r.Backend.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, in := range instances {
		name, _, _ := strings.Cut(in.Function, ".")
		counts[fmt.Sprint(name, " ", in.Config, " ", in.State)]++
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprint(counts[key], " of ", key))
	}
	return strings.Join(lines, "\n")
}

// differs compares the provider's view with the API server's and with the wanted numbers of
// ready instances. It returns "" if they agree.
func differs(t *testing.T, r *testprovider.Rig, want map[string]int) string {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got := r.Ready(name); got != want[name] {
			return fmt.Sprintf("%d instances of %s serve, want %d", got, name, want[name])
		}
	}
	instances, err := r.Backend.Instances(t.Context())
	if err != nil {
		return err.Error()
	}
	known, counts := map[string]bool{}, map[string]int{}
	for _, in := range instances {
		known[string(in.ID)] = in.State == cluster.Ready
		name, _, _ := strings.Cut(in.Function, ".")
		counts[name]++
	}
	for name, n := range want {
		if counts[name] != n { // One that is about to leave serves until it does.
			return fmt.Sprintf("%d instances of %s exist, want %d", counts[name], name, n)
		}
	}
	living := pods(t)
	for name, p := range living {
		if !known[name] || p.Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("pod %s of %s is %s, known as ready: %v", name, p.Labels[v1alpha1.FunctionLabel], p.Status.Phase, known[name])
		}
	}
	if len(known) != len(living) {
		return fmt.Sprintf("%d instances are known, %d pods exist", len(known), len(living))
	}
	return ""
}

// converges waits until the provider and the API server agree on the wanted instances.
func converges(t *testing.T, r *testprovider.Rig, want map[string]int) {
	t.Helper()
	eventually(t, "provider and API server agree", func() string { return differs(t, r, want) })
}

func eventually(t *testing.T, what string, wrong func() string) {
	t.Helper()
	tick := time.Tick(10 * time.Millisecond)
	for deadline := time.Now().Add(patience); ; <-tick {
		why := wrong()
		if why == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s; %s", patience, what, why)
		}
	}
}

// load sends requests during a test.
type load struct {
	t          *testing.T
	stop       context.CancelFunc
	all        sync.WaitGroup
	sent, lost atomic.Int64
	first      atomic.Value
	// open are the requests that are not answered yet.
	open sync.Map
}

// begin sends a request to each function at every pause, to the providers in turn.
func begin(t *testing.T, pause time.Duration, names []string, providers ...*testprovider.Rig) *load {
	ctx, stop := context.WithCancel(t.Context())
	l := &load{t: t, stop: stop}
	l.all.Go(func() {
		tick := time.Tick(pause)
		for n := 0; ; n++ {
			for i, name := range names {
				l.send(providers[(n+i)%len(providers)], name)
			}
			select {
			case <-tick:
			case <-ctx.Done():
				return
			}
		}
	})
	return l
}

// send sends a request. It does not end with the load: every sent request must be answered.
func (l *load) send(r *testprovider.Rig, name string) {
	n := l.sent.Add(1)
	l.open.Store(n, true)
	l.all.Go(func() {
		defer l.open.Delete(n)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.Invoke(ctx, name, "request"); err != nil {
			l.lost.Add(1)
			l.first.CompareAndSwap(nil, fmt.Sprintf("%s: %v", name, err))
		}
	})
}

// catchUp waits until all requests so far are answered. A request whose instance dies is
// retried only once.
func (l *load) catchUp() {
	l.t.Helper()
	sent := l.sent.Load()
	eventually(l.t, "what was sent is answered", func() (waits string) {
		l.open.Range(func(n, _ any) bool {
			if n.(int64) <= sent {
				waits = fmt.Sprintf("request %d is not", n)
			}
			return waits == ""
		})
		return waits
	})
}

// end waits for all answers and fails the test if one is missing.
func (l *load) end() {
	l.t.Helper()
	l.stop()
	l.all.Wait()
	if n := l.lost.Load(); n > 0 {
		l.t.Errorf("%d of %d requests were not answered; the first: %v", n, l.sent.Load(), l.first.Load())
	}
	l.t.Logf("%d requests answered", l.sent.Load()-l.lost.Load())
}

// of lists a function's pods, in the order of their names.
func of(t *testing.T, name string) (out []*corev1.Pod) {
	t.Helper()
	living := pods(t)
	for _, pod := range slices.Sorted(maps.Keys(living)) {
		if living[pod].Labels[v1alpha1.FunctionLabel] == name {
			out = append(out, living[pod])
		}
	}
	return out
}

// address returns the address of a pod's instance.
func address(p *corev1.Pod) string { return p.Status.PodIP + ":8080" }

// lose makes pods' instances unreachable, as at their end, until the provider has noticed
// it. kwok gives their addresses to the next pods.
func lose(t *testing.T, r *testprovider.Rig, lost []*corev1.Pod, how func()) {
	t.Helper()
	var addresses []string
	for _, p := range lost {
		addresses = append(addresses, address(p))
	}
	where(t).instances.Lose(addresses...)
	how()
	eventually(t, "the provider knows what is gone", func() string {
		instances, err := r.Backend.Instances(t.Context())
		if err != nil {
			return err.Error()
		}
		left := ""
		for _, p := range lost {
			i := slices.IndexFunc(instances, func(in cluster.Instance) bool { return string(in.ID) == p.Name })
			if i < 0 {
				where(t).instances.Restore(address(p))
			} else {
				left = fmt.Sprintf("%s is %s", instances[i].ID, instances[i].State)
			}
		}
		return left
	})
}

// forceDelete deletes a pod at once.
func forceDelete(t *testing.T, p *corev1.Pod) {
	t.Helper()
	now := int64(0)
	err := shared.client.CoreV1().Pods(p.Namespace).Delete(context.Background(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	// Where it has broken off a request, the provider may have been first.
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}
