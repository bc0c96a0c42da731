// Package deployments runs ordinary functions on Kubernetes: each function is a Deployment and
// a Service, and every replica of the provider forwards requests to the pods by itself. It does
// not decide how many pods there should be: [replica.Scaler] does at the replica that leads, from
// the load that all replicas have seen. Begin with Controller.reconcile. Package
// provider/processes does the same on the local backend.
//
// A request never waits for the API server: the controller watches pods. It also probes a
// starting pod itself, since the kubelet's probe comes only every few seconds. It compares each
// Deployment with its target whenever one of them changes, and so recovers from missed events.
package deployments

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	metrics "k8s.io/metrics/pkg/client/clientset/versioned"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/keeper"
	provided "github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// Peers are the provider's other replicas.
type Peers interface {
	// Loads returns the latest load of each of them. It does not wait.
	Loads() []peer.Load
	// Wake makes the leader look at the load now. It does not wait.
	Wake()
}

// Options configure a controller.
type Options struct {
	Client kubernetes.Interface
	// Usage reads the cluster's metrics; if nil, the controller shows no usage.
	Usage metrics.Interface
	// Functions finds the Function object by the function's full name. That object owns
	// the objects made for the function. Functions does not wait.
	Functions func(full string) (*v1alpha1.Function, bool)
	// Profiles finds the profiles that functions name, nil if there are none.
	Profiles podspec.Profiles
	// User is the user ID of instances, podspec.DefaultUser if 0. If it is negative, the
	// image decides, and may run as root.
	User int64
	// Local bounds what each instance takes of its node.
	Local podspec.Local
	// Watchdog returns the arguments with which a deployment's image starts our watchdog, nil if
	// another server is in it. If set, such instances speak TLS. Certify makes a namespace have their
	// certificate; it must be set too.
	Watchdog func(ctx context.Context, d types.FunctionDeployment) ([]string, error)
	Certify  func(ctx context.Context, namespace string) error
	// PullPolicy is when nodes pull images again; "" means Always.
	PullPolicy corev1.PullPolicy
	// Leading reports whether this replica changes Deployments; if nil, it always does.
	Leading func() bool
	// Peers are the other replicas; nil if there are none.
	Peers   Peers
	Metrics *provided.Metrics
	Logger  zerolog.Logger
	// Decisions gets what the controller does while it leads, and why; nil for nothing.
	Decisions *decisions.Log
	// ColdWait is how long a request without a ready instance may wait. QueueLimit is the
	// maximum number of waiting requests per function.
	ColdWait   time.Duration
	QueueLimit int
	// BodyTimeout is BodyIdle of [forward.Options].
	BodyTimeout time.Duration
	// Tick is the time between two looks at the load. It is ten times as long while
	// nothing happens.
	Tick time.Duration
	// Dial connects to an instance; the default is net.Dialer's DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Controller holds the ordinary functions of one replica of the provider.
type Controller struct {
	keeper.Base[*function]
	options Options
	// applies bounds the number of concurrent changes at the API server.
	applies chan struct{}

	tasks *keeper.Tasks

	mu        sync.Mutex
	functions map[string]*function
	// pods and deployed are the watched pods and Deployments by the function's full
	// name. They include those of functions that are not deployed here yet.
	pods     map[string]map[cluster.InstanceID]*instance
	deployed map[string]deployed
	// strays are functions of another controller that still have a Deployment, which
	// must be deleted.
	strays   map[string]bool
	usage    map[string]cluster.Resources
	sampling bool
	// watchError is the error of the last watch that failed.
	watchError error
	// usageError is why the last reading of the usage failed, "" if it did not.
	usageError string
}

const (
	// maxApplies is the maximum number of functions that are changed at a time.
	maxApplies = 16
	// callTimeout bounds one call to the API server.
	callTimeout = 15 * time.Second
)

// New returns a controller that knows the existing pods and Deployments. ctx bounds how long it
// waits for their list. Call Run to make it work.
func New(ctx context.Context, o Options) (*Controller, error) {
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.PullPolicy == "" {
		o.PullPolicy = corev1.PullAlways
	}
	c := &Controller{
		options: o, tasks: keeper.NewTasks(), applies: make(chan struct{}, maxApplies), functions: map[string]*function{},
		pods: map[string]map[cluster.InstanceID]*instance{}, deployed: map[string]deployed{}, strays: map[string]bool{}, usage: map[string]cluster.Resources{},
	}
	c.Base = keeper.NewBase(&c.mu, c.functions, o.Metrics, keeper.Answers[*function]{
		Describe: (*function).description, Status: (*function).status, Release: c.Release,
	})
	synced, err := c.watch()
	if err != nil {
		return nil, err
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		_ = c.Close(ctx) // It returns nil.
		return nil, fmt.Errorf("list the pods and Deployments of functions: %w", cmp.Or(c.watchError, context.Cause(ctx)))
	}
	return c, nil
}

// usagePeriod is the time between two readings of the pods' usage.
const usagePeriod = 15 * time.Second

// Run looks at the load every tick, and at once after an event, until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	c.Loop(ctx, c.options.Tick, keeper.Loop{Look: c.reconcile, Period: usagePeriod, Sample: func(time.Time) { c.sample() }})
}

// leading reports whether this replica changes Deployments.
func (c *Controller) leading() bool { return c.options.Leading == nil || c.options.Leading() }

// Close refuses further requests and stops watching. The functions' pods keep running. Run must
// have returned.
func (c *Controller) Close(context.Context) error {
	c.End(c.tasks)
	c.tasks.Wait(context.Background())
	return nil
}
