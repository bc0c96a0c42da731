// Package testprovider runs the part of a provider that serves models, without its HTTP routes, on a
// real API server. Stand-ins answer in place of the pods. Begin with Open.
package testprovider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/client"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/peer"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Options are the options of a rig.
type Options struct {
	// Config is the provider's connection to the API server.
	Config *rest.Config
	// Instances answer in place of the pods.
	Instances *StandIns
	Logger    zerolog.Logger
	// Backend and Control, if not nil, may change the options of these parts.
	Backend func(*kubernetes.Options)
	Control func(*control.Options)
	// Group connects this replica to others; nil if it is the only one.
	Group *peer.Group
	// Namespace is the namespace of all functions; [Namespace] if empty.
	Namespace string
}

// Rig runs the part of a provider that serves models, without its HTTP routes.
type Rig struct {
	// Backend records the controller's calls.
	Backend *Watched
	// Controller is the provider's controller.
	Controller *control.Controller
	own        *kubernetes.Backend
	objects    *v1alpha1.Client
	namespace  string
	group      *peer.Group
	stop       context.CancelFunc
	ran        chan struct{}

	mu          sync.Mutex
	functions   map[string]*v1alpha1.Function
	dispatchers map[string]provider.Dispatcher
	// revisions counts the deployments of each function: replicas that deploy many at the same time agree.
	revisions map[string]uint64
}

const (
	// Tick is the provider's default, as is ColdWait.
	Tick  = 100 * time.Millisecond
	grace = 10 * time.Second
	// ColdWait is how long a request waits for a first instance.
	ColdWait = 30 * time.Second
	// openPatience is how long a backend may take to read the cluster.
	openPatience = 2 * time.Minute
)

// Open makes a rig. Run starts it. The cluster must have the custom resource.
func Open(ctx context.Context, o Options) (*Rig, error) {
	config := rest.CopyConfig(o.Config)
	config.Wrap(client.RetryTransport) // The provider does the same.
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	r := &Rig{namespace: cmp.Or(o.Namespace, Namespace), functions: map[string]*v1alpha1.Function{}, dispatchers: map[string]provider.Dispatcher{}, revisions: map[string]uint64{}, group: o.Group, ran: make(chan struct{})}
	if r.objects, err = v1alpha1.NewClient(o.Config); err != nil {
		return nil, err
	}
	backend := kubernetes.Options{
		Client: client, Functions: r.function, Namespaces: func() []string { return []string{r.namespace} }, Logger: o.Logger, Dial: o.Instances.Dial,
		Args: func(spec cluster.InstanceSpec) []string { return []string{"instance", "--model", spec.Model} },
	}
	if o.Backend != nil {
		o.Backend(&backend)
	}
	known, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	if r.own, err = kubernetes.New(known, backend); err != nil {
		return nil, err
	}
	r.Backend = newWatched(r.own)
	system, err := systems.ByName(systems.Default)
	if err != nil {
		return nil, err
	}
	settings := control.Options{
		Backend: r.Backend, System: system, Cold: coldstart.NewFixed(time.Hour),
		Models: models{}, Profiles: &Profiles{}, Bundles: bundles{}, Secrets: secrets{},
		Metrics: metrics.New(prometheus.NewRegistry()), Logger: o.Logger, Policy: batching.SharedName,
		ColdWait: ColdWait, QueueLimit: 20000, Tick: Tick, StopGrace: grace, Engine: engine, Machine: machine, Dial: o.Instances.Dial,
	}
	if o.Control != nil {
		o.Control(&settings)
	}
	if r.Controller, err = control.New(ctx, settings); err != nil {
		return nil, errors.Join(err, r.own.Close())
	}
	if r.group != nil {
		r.group.Attach(settings.Replica.Local())
	}
	return r, nil
}

// Run starts to drive the functions. Functions deployed before it keep their instances.
func (r *Rig) Run() {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() {
		defer close(r.ran)
		var parts sync.WaitGroup
		if r.group != nil {
			parts.Go(func() { r.group.Run(ctx) })
		}
		r.Controller.Run(ctx)
		parts.Wait()
	}()
}

// Crash ends the rig like a killed provider: its instances keep running.
func (r *Rig) Crash() error {
	r.halt()
	return r.own.Close()
}

// Close stops all instances and ends the rig.
func (r *Rig) Close(ctx context.Context) error {
	r.halt()
	return errors.Join(r.Controller.Close(ctx), r.own.Close())
}

func (r *Rig) halt() {
	if r.stop != nil {
		r.stop()
		<-r.ran
	}
}

// Function is a function to deploy.
type Function struct {
	Name string
	// SLO is its objective.
	SLO time.Duration
	// Exec is the time of a batch of one on one core. A batch of b takes (b+1)/2 times
	// as long.
	Exec time.Duration
	// Min is the number of instances that it keeps without load, Max the maximum number;
	// 0 is no bound.
	Min, Max int
	// Device says on what it may run, as annotation.Inference has it.
	Device string
}

// Namespace is the default namespace of a rig's functions.
var Namespace = provider.DefaultNamespace

// Eligible returns the nodes that may run a function's pods, as [control.Options] asks for them.
func (r *Rig) Eligible(f *provider.Function) (nodes []string, why string) {
	return r.own.Eligible(f.Deployment)
}

// Deploy makes a function's object if there is none, and deploys the function.
func (r *Rig) Deploy(ctx context.Context, f Function) error {
	object, err := r.Object(ctx, f)
	if err != nil {
		return err
	}
	return r.DeployObject(ctx, f, object)
}

// DeployObject deploys a function that has an object, such as one that replicas share.
func (r *Rig) DeployObject(ctx context.Context, f Function, object *v1alpha1.Function) error {
	full := provider.FullName(f.Name, r.namespace)
	r.mu.Lock()
	r.functions[full] = object
	r.revisions[full]++
	revision := r.revisions[full]
	r.mu.Unlock()
	function := &provider.Function{
		Name: full, Revision: revision, CreatedAt: time.Now(), Replicas: uint64(f.Min),
		Deployment: types.FunctionDeployment{Service: f.Name, Namespace: r.namespace, Image: object.Spec.Image},
		Inference:  annotation.Inference{IsInference: true, SLO: f.SLO, Percentile: annotation.DefaultPercentile, MaxBatch: 8, MinReplicas: f.Min, MaxReplicas: f.Max, Device: f.Device},
	}
	d, err := r.Controller.Deploy(ctx, function)
	if err != nil {
		return fmt.Errorf("deploy %s: %w", f.Name, err)
	}
	if r.group != nil {
		d = r.group.Share(function, d)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dispatchers[full] = d
	return nil
}

// Object finds or makes a function's object.
func (r *Rig) Object(ctx context.Context, f Function) (*v1alpha1.Function, error) {
	objects := r.objects.Functions(r.namespace)
	made, err := objects.Create(ctx, &v1alpha1.Function{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: f.Name, Namespace: r.namespace},
		Spec:       v1alpha1.FunctionSpec{Image: image(f), Annotations: map[string]string{annotation.SLOLatency: f.SLO.String()}},
	}, metav1.CreateOptions{})
	if err == nil {
		return made, nil
	}
	// It may exist, and an API server that tests disturb may refuse to make it.
	found, missing := objects.Get(ctx, f.Name, metav1.GetOptions{})
	if missing != nil {
		return nil, fmt.Errorf("create function %s: %w", f.Name, err)
	}
	return found, nil
}

// image returns an image whose tag is the function's time. models makes the profile from
// it.
func image(f Function) string {
	return fmt.Sprintf("registry.example.com/%s:%dus@sha256:%s", f.Name, f.Exec.Microseconds(), strings.Repeat("0", 64))
}

// function returns the object of a deployed function, for the backend.
func (r *Rig) function(full string) (*v1alpha1.Function, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, ok := r.functions[full]
	return f, ok
}

// Scale sets the number of instances that a function keeps without load.
func (r *Rig) Scale(name string, replicas int) error {
	return r.Controller.Scale(provider.FullName(name, r.namespace), uint64(replicas))
}

// Ready returns the number of a function's ready instances.
func (r *Rig) Ready(name string) int {
	s, _ := r.Controller.Status(provider.FullName(name, r.namespace))
	return int(s.AvailableReplicas)
}

// Invoke sends a function one request. It returns an error unless the answer has the same
// body.
func (r *Rig) Invoke(ctx context.Context, name, body string) error {
	r.mu.Lock()
	d := r.dispatchers[provider.FullName(name, r.namespace)]
	r.mu.Unlock()
	if d == nil {
		return fmt.Errorf("%s is not deployed", name)
	}
	answer, err := d.Invoke(ctx, &frame.Request{Method: http.MethodPost, Path: "/", Header: http.Header{}, Body: []byte(body)})
	switch {
	case err != nil:
		return err
	case answer.Status != http.StatusOK || string(answer.Body) != body:
		return fmt.Errorf("%s answered %d %q to %q", name, answer.Status, answer.Body, body)
	}
	return nil
}
