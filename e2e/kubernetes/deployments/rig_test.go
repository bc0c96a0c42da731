package deployments

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/client"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/deployments"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

const (
	namespace = "openfaas-fn"
	patience  = 2 * time.Minute
	coldWait  = time.Minute
)

// shared has the cluster of all tests of the package.
var shared struct {
	sync.Mutex
	cluster *testcluster.Cluster
}

func TestMain(m *testing.M) {
	code := m.Run()
	if c := shared.cluster; c != nil {
		if err := c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// rig is a cluster with its clients and the network of a test.
type rig struct {
	*testing.T
	cluster  *testcluster.Cluster
	client   clientset.Interface
	dynamic  dynamic.Interface
	network  *network
	revision atomic.Uint64

	mu        sync.Mutex
	functions map[string]*v1alpha1.Function
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, cluster: start(t), functions: map[string]*v1alpha1.Function{}}
	r.revision.Store(uint64(time.Now().UnixMicro()))
	var err error
	config := r.cluster.Config()
	config.Wrap(client.RetryTransport)
	if r.client, err = clientset.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if r.dynamic, err = dynamic.NewForConfig(r.cluster.Config()); err != nil {
		t.Fatal(err)
	}
	r.network = newNetwork(t, r.client)
	return r
}

// start starts the cluster on the first call. The cluster refuses pods that are not
// restricted.
func start(t *testing.T) *testcluster.Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster != nil {
		return shared.cluster
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	c, err := testcluster.Start(ctx, testcluster.Options{Kwok: true, APIServerArgs: []string{testcluster.DualStack}})
	if err != nil {
		t.Fatal(err)
	}
	shared.cluster = c
	if err := c.AddNodes(ctx, 2, "16", "32Gi", nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Namespaces(ctx, map[string]string{"openfaas": "1"}, namespace, "openfaas"); err != nil {
		t.Fatal(err)
	}
	if err := c.Define(ctx, "../../../yaml/crd.yaml"); err != nil {
		t.Fatal(err)
	}
	if out, err := c.Kubectl(ctx, "", "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"); err != nil {
		t.Fatal(out, err)
	}
	return c
}

// replica is one replica of the provider.
type replica struct {
	*deployments.Controller
	rig  *rig
	stop func()
}

func (r *rig) replica(edit ...func(*deployments.Options)) *replica {
	r.Helper()
	o := deployments.Options{
		Client: r.client, Functions: r.object, Profiles: kubernetes.NewProfiles(r.dynamic, r.client, "openfaas"),
		Metrics: metrics.New(prometheus.NewRegistry()), Logger: zerolog.New(zerolog.NewTestWriter(r.T)).Level(zerolog.WarnLevel),
		ColdWait: coldWait, QueueLimit: 10000, Tick: 50 * time.Millisecond, Dial: r.network.Dial,
	}
	for _, e := range edit {
		e(&o)
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	c, err := deployments.New(ctx, o)
	if err != nil {
		r.Fatal(err)
	}
	p := &replica{Controller: c, rig: r}
	run, end := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		c.Run(run)
	}()
	p.stop = sync.OnceFunc(func() {
		end()
		<-ran
		_ = c.Close(context.Background())
	})
	r.Cleanup(p.stop)
	return p
}

// object returns the Function of a full name, as the provider's informer would.
func (r *rig) object(full string) (*v1alpha1.Function, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, ok := r.functions[full]
	return f, ok
}

// function returns a deployment in the form in which the provider's server passes it to the
// controller.
func (r *rig) function(d types.FunctionDeployment) *provider.Function {
	r.Helper()
	if d.Namespace == "" {
		d.Namespace = namespace
	}
	in, err := annotation.Parse(d)
	if err != nil {
		r.Fatal(err)
	}
	return &provider.Function{Name: provider.FullName(d.Service, d.Namespace), Deployment: d, Inference: in,
		Revision: r.revision.Add(1), Replicas: uint64(in.MinReplicas)}
}

// deploy deploys as the server does: first at the controller, then in the store.
func (p *replica) deploy(d types.FunctionDeployment) (*provider.Function, provider.Dispatcher) {
	p.rig.Helper()
	f := p.rig.function(d)
	dispatcher, err := p.Deploy(p.rig.Context(), f)
	if err != nil {
		p.rig.Fatal(err)
	}
	p.rig.put(f)
	return f, dispatcher
}

// put stores a function as an object.
func (r *rig) put(f *provider.Function) {
	r.Helper()
	d := f.Deployment
	object := v1alpha1.Function{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: d.Service, Namespace: d.Namespace}, Spec: v1alpha1.FunctionSpec{Image: d.Image}}
	text, err := json.Marshal(object)
	if err != nil {
		r.Fatal(err)
	}
	var raw unstructured.Unstructured
	if err := json.Unmarshal(text, &raw.Object); err != nil {
		r.Fatal(err)
	}
	delete(raw.Object, "status")
	kept, err := r.dynamic.Resource(v1alpha1.Resource).Namespace(d.Namespace).Apply(r.Context(), d.Service, &raw, metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err != nil {
		r.Fatal(err)
	}
	object.UID = kept.GetUID()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.functions[f.Name] == nil {
		r.Cleanup(func() { r.forget(f) })
	}
	r.functions[f.Name] = &object
}

// forget deletes a function's object. Objects that belong to it are deleted with it.
func (r *rig) forget(f *provider.Function) {
	r.mu.Lock()
	delete(r.functions, f.Name)
	r.mu.Unlock()
	err := r.dynamic.Resource(v1alpha1.Resource).Namespace(f.Deployment.Namespace).Delete(context.Background(), f.Deployment.Service, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		r.Error(err)
	}
}

// await polls until done returns "". Otherwise done returns what is missing.
func (r *rig) await(what string, done func() string) {
	r.Helper()
	r.awaitFor(patience, what, done)
}

func (r *rig) awaitFor(patience time.Duration, what string, done func() string) {
	r.Helper()
	missing := ""
	for began := time.Now(); time.Since(began) < patience; time.Sleep(10 * time.Millisecond) {
		if missing = done(); missing == "" {
			return
		}
	}
	r.Fatalf("%s: %s", what, missing)
}

// ready waits until a function has n ready instances.
func (p *replica) ready(f *provider.Function, n int) {
	p.rig.Helper()
	p.readyWithin(patience, f, n)
}

func (p *replica) readyWithin(patience time.Duration, f *provider.Function, n int) {
	p.rig.Helper()
	p.rig.awaitFor(patience, f.Name, func() string {
		d, _ := p.Describe(f.Name)
		if d.Ready == n && d.Wanted == uint64(n) && len(d.Instances) == n {
			return ""
		}
		return fmt.Sprintf("%d ready of %d, want %d (%s)", d.Ready, d.Wanted, n, d.Problem)
	})
}

func (r *rig) deployment(f *provider.Function) *appsv1.Deployment {
	r.Helper()
	d, err := r.client.AppsV1().Deployments(f.Deployment.Namespace).Get(r.Context(), f.Deployment.Service, metav1.GetOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return d
}

// pods returns the pods of a function that are not being deleted.
func (r *rig) pods(f *provider.Function) []corev1.Pod {
	r.Helper()
	list, err := r.client.CoreV1().Pods(f.Deployment.Namespace).List(r.Context(), metav1.ListOptions{LabelSelector: "faas_function=" + f.Deployment.Service})
	if err != nil {
		r.Fatal(err)
	}
	var there []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			there = append(there, p)
		}
	}
	return there
}

// invoke sends one request.
func invoke(ctx context.Context, d provider.Dispatcher, path string) (*frame.Response, error) {
	return send(ctx, d, http.MethodPost, path)
}

func send(ctx context.Context, d provider.Dispatcher, method, path string) (*frame.Response, error) {
	return d.Invoke(ctx, &frame.Request{Method: method, Path: path, Header: http.Header{}, Body: []byte("x")})
}

// load sends requests from several clients until stopped, and counts answers other than
// 200.
type load struct {
	sent      atomic.Int64
	failures  chan string
	stop      func()
	revisions sync.Map
}

func (r *rig) load(d provider.Dispatcher, clients int, path string) *load {
	return r.loadOf(d, clients, http.MethodPost, path)
}

func (r *rig) loadOf(d provider.Dispatcher, clients int, method, path string) *load {
	l := &load{failures: make(chan string, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	for range clients {
		wait.Go(func() {
			for ctx.Err() == nil {
				answer, err := send(context.Background(), d, method, path)
				switch {
				case err != nil:
					l.fail(err.Error())
				case answer.Status != http.StatusOK:
					l.fail(strconv.Itoa(answer.Status) + ": " + string(answer.Body))
				default:
					l.revisions.Store(http.Header(answer.Header).Get("Revision"), true)
				}
				l.sent.Add(1)
				time.Sleep(5 * time.Millisecond) // The clients' own pace.
			}
		})
	}
	l.stop = sync.OnceFunc(func() {
		cancel()
		wait.Wait()
	})
	r.Cleanup(l.stop)
	return l
}

func (l *load) fail(why string) {
	select {
	case l.failures <- why:
	default:
	}
}

// end stops the load and fails the test if a request was lost.
func (l *load) end(r *rig) {
	r.Helper()
	l.stop()
	close(l.failures)
	for why := range l.failures {
		r.Errorf("a request was lost: %s", why)
	}
	r.Logf("%d requests", l.sent.Load())
}

// profile creates a profile until the test ends.
func (r *rig) profile(name, text string) {
	r.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{kubernetes.ProfileLabel: "true"}}, Data: map[string]string{kubernetes.ProfileKey: text}}
	if _, err := r.client.CoreV1().ConfigMaps("openfaas").Create(r.Context(), config, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		_ = r.client.CoreV1().ConfigMaps("openfaas").Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}

func pairs(kv ...string) *map[string]string {
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return &m
}

func contains(text, part string) string {
	if strings.Contains(text, part) {
		return ""
	}
	return fmt.Sprintf("%q has no %q", text, part)
}
