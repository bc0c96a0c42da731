// Package backend_test runs cluster/kubernetes against a real API server, scheduler and
// controller manager. On kwok's nodes every pod becomes ready at once. Nodes without kwok
// have no kubelet, and the test writes the status of their pods. Begin with rig.
package backend_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// shared has the cluster of all tests. Each test has its own namespace and nodes.
var shared struct {
	*testcluster.Cluster
	client    clientset.Interface
	functions *v1alpha1.Client
}

// patience is how long each step may take on a busy machine. The garbage collector looks
// for new kinds every 30 s, and clients that lost the API server retry once a minute.
const patience = 4 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	// They mostly wait, whatever the machine's cores.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	c, err := testcluster.Start(ctx, testcluster.Options{Kwok: true})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	shared.Cluster = c
	if err := c.Define(ctx, "../../../yaml/crd.yaml"); err != nil {
		return 1, err
	}
	if shared.client, err = clientset.NewForConfig(c.Config()); err != nil {
		return 1, err
	}
	if shared.functions, err = v1alpha1.NewClient(c.Config()); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// rig has one test's namespace, node and function.
type rig struct {
	t         *testing.T
	namespace string
	node      string
	function  *v1alpha1.Function
	// answers has instances answer whoever asks them.
	answers atomic.Bool
	started int
}

var rigs atomic.Int32

// newRig makes a namespace with a function "m" and a node, with or without kwok.
func newRig(t *testing.T, kwok bool) *rig {
	t.Helper()
	r := &rig{t: t, namespace: fmt.Sprintf("t%d", rigs.Add(1))}
	if err := shared.Namespaces(t.Context(), nil, r.namespace); err != nil {
		t.Fatal(err)
	}
	r.node = r.namespace + "-node"
	r.addNode(r.node, kwok, nil)
	f := &v1alpha1.Function{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: r.namespace}, Spec: v1alpha1.FunctionSpec{Image: "m"}}
	var err error
	if r.function, err = shared.functions.Functions(r.namespace).Create(t.Context(), f, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) addNode(name string, kwok bool, edit func(*corev1.Node)) {
	r.t.Helper()
	err := shared.AddNodes(r.t.Context(), 1, "8", "8Gi", func(n *corev1.Node) {
		n.Name = name
		n.Labels[corev1.LabelHostname], n.Labels["test"] = name, r.namespace
		if !kwok {
			maps.DeleteFunc(n.Annotations, func(string, string) bool { return true })
		}
		if edit != nil {
			edit(n)
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// dial connects to a listener of the test, or fails.
func (r *rig) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if !r.answers.Load() {
		return nil, errors.New("nobody there")
	}
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		buffer := make([]byte, 4096)
		if _, err := server.Read(buffer); err == nil {
			_, _ = server.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
		}
	}()
	return client, nil
}

func (r *rig) options() kubernetes.Options {
	return kubernetes.Options{
		Client:     shared.client,
		Namespaces: func() []string { return []string{r.namespace} },
		Functions: func(full string) (*v1alpha1.Function, bool) {
			return r.function, full == "m."+r.namespace
		},
		Args:         func(s cluster.InstanceSpec) []string { return []string{"instance", "--model", s.Model} },
		NodeSelector: "test=" + r.namespace,
		Logger:       zerolog.New(zerolog.NewTestWriter(r.t)).Level(zerolog.WarnLevel),
		Dial:         r.dial,
	}
}

// backend is one replica's backend, with its recorded events.
type backend struct {
	*kubernetes.Backend
	t *testing.T

	mu     sync.Mutex
	events []cluster.Instance
}

func (r *rig) backend(change ...func(*kubernetes.Options)) *backend {
	r.t.Helper()
	o := r.options()
	for _, c := range change {
		c(&o)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	k, err := kubernetes.New(ctx, o)
	if err != nil {
		r.t.Fatal(err)
	}
	b := &backend{Backend: k, t: r.t}
	if _, err := k.Instances(ctx); err != nil {
		r.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for in := range k.Events() {
			b.mu.Lock()
			b.events = append(b.events, in)
			b.mu.Unlock()
		}
	}()
	r.t.Cleanup(func() {
		if err := k.Close(); err != nil {
			r.t.Error(err)
		}
		<-done
	})
	return b
}

// spec returns the spec of an instance with a CPU share in millicores.
func (r *rig) spec(cpu int) cluster.InstanceSpec {
	r.started++
	return cluster.InstanceSpec{
		ID: cluster.InstanceID(fmt.Sprintf("m-%s-%d", r.namespace, r.started)), Function: "m." + r.namespace, Revision: 1, Node: r.node,
		Config: cluster.Config{Batch: 4, Resources: cluster.Resources{CPU: cpu, Memory: 64 << 20}}, Artefact: cluster.Artefact{Bundle: "example.com/m:1", Model: "/bundle/model.onnx"},
	}
}

// start starts an instance and waits until its pod is on its node.
func (r *rig) start(b *backend, cpu int) cluster.InstanceSpec {
	r.t.Helper()
	spec := r.spec(cpu)
	in, err := b.Start(r.t.Context(), spec)
	if err != nil || in.State != cluster.Starting {
		r.t.Fatalf("start: %+v, %v", in, err)
	}
	r.until("the pod is scheduled", func() string {
		if pod := r.pod(spec.ID); pod == nil || pod.Spec.NodeName != r.node {
			return fmt.Sprintf("%+v", pod)
		}
		return ""
	})
	return spec
}

// history returns the reported states of an instance.
func (b *backend) history(id cluster.InstanceID) (states []cluster.State, last cluster.Instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, in := range b.events {
		if in.ID == id {
			states, last = append(states, in.State), in
		}
	}
	return states, last
}

// await waits until an instance was reported in a state.
func (b *backend) await(id cluster.InstanceID, state cluster.State) cluster.Instance {
	b.t.Helper()
	var last cluster.Instance
	eventually(b.t, fmt.Sprintf("%s is %s", id, state), func() string {
		var states []cluster.State
		if states, last = b.history(id); last.State != state {
			return fmt.Sprint(states, last.Reason)
		}
		return ""
	})
	return last
}

func (r *rig) until(what string, done func() string) {
	r.t.Helper()
	eventually(r.t, what, done)
}

// eventually waits until done returns "".
func eventually(t *testing.T, what string, done func() string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		state := done()
		if state == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s; it is %s", patience, what, state)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// pod returns an instance's pod, nil if there is none.
func (r *rig) pod(id cluster.InstanceID) *corev1.Pod {
	pod, err := shared.client.CoreV1().Pods(r.namespace).Get(r.t.Context(), string(id), metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return pod
}

func (r *rig) podIsGone(id cluster.InstanceID) {
	r.t.Helper()
	r.until("the pod is gone", func() string {
		if pod := r.pod(id); pod != nil {
			return string(pod.Status.Phase)
		}
		return ""
	})
}

// say changes a pod's status as a kubelet would.
func (r *rig) say(id cluster.InstanceID, change func(*corev1.PodStatus)) {
	r.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error { // Others write to it, too.
		pod, err := shared.client.CoreV1().Pods(r.namespace).Get(r.t.Context(), string(id), metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&pod.Status)
		_, err = shared.client.CoreV1().Pods(r.namespace).UpdateStatus(r.t.Context(), pod, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		r.t.Fatalf("the status of pod %s: %v", id, err)
	}
}

// serves sets a pod's status to running and ready.
func (r *rig) serves(id cluster.InstanceID) {
	r.t.Helper()
	r.say(id, func(s *corev1.PodStatus) {
		s.Phase, s.PodIP = corev1.PodRunning, "10.1.2.3"
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	})
}

func (r *rig) one(b *backend) cluster.Node {
	r.t.Helper()
	list, err := b.Nodes(r.t.Context())
	if err != nil || len(list) != 1 {
		r.t.Fatalf("nodes %+v, %v", list, err)
	}
	return list[0]
}

func equal(states []cluster.State, want string) bool {
	var words []string
	for _, s := range states {
		words = append(words, string(s))
	}
	return strings.Join(words, " ") == want
}

func contextFor(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}
