// Package deployments runs ordinary functions on Kubernetes: each is a Deployment
// and a Service, and every replica of the provider forwards requests to its pods by
// itself. How many pods there are to be is decided by [replica.Scaler] at the
// replica that leads, from what all replicas have seen. Package provider/processes does
// the same on the local backend.
//
// A request asks nothing of the API server: pods are watched. One that starts is
// also asked itself whether it is ready, as the kubelet's probe comes once in
// seconds. What a Deployment is to be is compared with what it is whenever one of
// them changes, so that whatever was missed is made up for.
package deployments

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	metrics "k8s.io/metrics/pkg/client/clientset/versioned"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider/keeper"
	provided "github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// Peers are the provider's other replicas.
type Peers interface {
	// Loads returns what each of them last told. It does not wait.
	Loads() []peer.Load
	// Wake has the leader look at the load now. It does not wait.
	Wake()
}

// Options configure a controller.
type Options struct {
	Client kubernetes.Interface
	// Usage is where the cluster's metrics are; nil leaves usage out.
	Usage metrics.Interface
	// Functions finds the object of a function by its full name: what is made for
	// it belongs to that. It does not wait.
	Functions func(full string) (*v1alpha1.Function, bool)
	// Profiles finds the profiles that functions name; nil if there are none.
	Profiles podspec.Profiles
	// User is what instances run as, podspec.DefaultUser if 0; a negative one
	// leaves it to the image, which may then be root.
	User int64
	// PullPolicy is when nodes pull images again: Always if "".
	PullPolicy corev1.PullPolicy
	// Leading tells whether this replica changes Deployments; nil: always.
	Leading func() bool
	// Peers are the other replicas; nil if there are none.
	Peers   Peers
	Metrics *provided.Metrics
	Logger  zerolog.Logger
	// ColdWait is how long a request that finds no ready instance may wait;
	// QueueLimit how many may wait per function.
	ColdWait   time.Duration
	QueueLimit int
	// BodyTimeout is forward's BodyIdle.
	BodyTimeout time.Duration
	// Tick is the time between two looks at the load. While nothing happens it is
	// ten times as long.
	Tick time.Duration
	// Dial connects to an instance; nil means net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Controller holds the ordinary functions of one replica of the provider.
type Controller struct {
	options Options
	kick    keeper.Kick
	// applies bounds the changes that are under way at the API server.
	applies chan struct{}

	tasks *keeper.Tasks

	mu        sync.Mutex
	functions map[string]*function
	// pods and deployed are what is watched, by the function's full name, also
	// of functions that are not deployed here yet.
	pods     map[string]map[cluster.InstanceID]*instance
	deployed map[string]deployed
	// strays are functions that another controller has and whose Deployments are to
	// go.
	strays   map[string]bool
	usage    map[string]cluster.Resources
	sampling bool
	// unwatched is why the last watch failed.
	unwatched error
	// said is what was last said of the metrics that cannot be had.
	said string
}

const (
	// maxApplies is how many functions are changed at a time.
	maxApplies = 16
	// callPatience bounds one call to the API server.
	callPatience = 15 * time.Second
)

// New returns a controller that knows the pods and Deployments that there are; ctx
// bounds how long it waits for these. Run serves.
func New(ctx context.Context, o Options) (*Controller, error) {
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.PullPolicy == "" {
		o.PullPolicy = corev1.PullAlways
	}
	c := &Controller{
		options: o, kick: keeper.NewKick(), tasks: keeper.NewTasks(), applies: make(chan struct{}, maxApplies), functions: map[string]*function{},
		pods: map[string]map[cluster.InstanceID]*instance{}, deployed: map[string]deployed{}, strays: map[string]bool{}, usage: map[string]cluster.Resources{},
	}
	synced, err := c.watch()
	if err != nil {
		return nil, err
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		c.shut()
		return nil, fmt.Errorf("list the pods and Deployments of functions: %w", cmp.Or(c.unwatched, context.Cause(ctx)))
	}
	return c, nil
}

// idleTicks is how many ticks apart the looks are while nothing happens, usagePeriod
// the time between two questions for what pods use.
const (
	idleTicks   = 10
	usagePeriod = 15 * time.Second
)

// Run looks at the load every tick, and at once when something happened, until ctx
// ends.
func (c *Controller) Run(ctx context.Context) {
	keeper.Loop{
		Kick: c.kick, Look: c.reconcile,
		Rest:   func(took time.Duration) time.Duration { return keeper.Rest(took, c.options.Tick) },
		Period: usagePeriod, Sample: func(time.Time) { c.sample() },
	}.Run(ctx)
}

// Wake makes Run look at the load now.
func (c *Controller) Wake() { c.kick.Now() }

// leading reports whether this replica changes Deployments.
func (c *Controller) leading() bool { return c.options.Leading == nil || c.options.Leading() }

// Close takes no more requests and stops watching. The functions' pods stay: they
// are the cluster's. Run must have returned.
func (c *Controller) Close(context.Context) error {
	c.mu.Lock()
	for _, fn := range c.functions {
		fn.forwarder.Close()
	}
	c.mu.Unlock()
	c.shut()
	return nil
}

func (c *Controller) shut() {
	c.mu.Lock()
	c.tasks.End()
	c.mu.Unlock()
	c.tasks.Wait(context.Background())
}
