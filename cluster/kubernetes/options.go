package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/labels"
	clientset "k8s.io/client-go/kubernetes"
	metrics "k8s.io/metrics/pkg/client/clientset/versioned"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// Options says how the backend runs instances.
type Options struct {
	// Client should have no limit of its own on requests per second. The backend
	// limits the requests that it has in flight.
	Client clientset.Interface
	// Metrics reads the instances' usage; if nil, Usage returns zeros.
	Metrics metrics.Interface
	// Namespaces returns the namespaces of functions; nil for all.
	Namespaces func() []string
	// Functions finds a function by its full name, "mnist.openfaas-fn". The function
	// owns its pods. Functions is called often and should answer from a cache, as
	// should Profiles.
	Functions func(full string) (*v1alpha1.Function, bool)
	// Profiles finds the profiles that com.openfaas.profile names; nil for none.
	Profiles podspec.Profiles
	// Args returns the arguments of an instance's program.
	Args func(cluster.InstanceSpec) []string
	// Local bounds what each instance takes of its node.
	Local podspec.Local
	// Grace returns how long an instance of a function may take to answer its requests when
	// its pod is evicted; nil for 30 s. Stop has a limit of its own.
	Grace func(*v1alpha1.Function) time.Duration
	// Copies returns the claim with the node's prepared copies for an instance, "" for none; nil for
	// none at all.
	Copies func(cluster.InstanceSpec) string
	// Content returns the name of the model's content for an instance whose image does not have the model, ""
	// for others; nil for none at all. Feed brings it to such an instance at an address, "http://IP:PORT", over
	// connections of client, and calls sent with the bytes that are on their way. It returns nil when
	// the instance has it, and an error that wraps [ErrNoContent] if it cannot be had.
	Content func(cluster.InstanceSpec) string
	Feed    func(ctx context.Context, client *http.Client, spec cluster.InstanceSpec, address string, sent func(int64)) error
	// Certificate returns the files of the instances' certificate of now, as a Secret has them;
	// nil for instances without TLS.
	Certificate func() map[string][]byte
	// Leading reports whether this replica starts, stops and resizes instances; nil for always.
	Leading func() bool
	// NodeSelector selects the nodes for instances, for example "pool=models"; "" for
	// all.
	NodeSelector string
	// StartTimeout is how long an instance's program may run before it is ready. After
	// that the instance is given up. 2 minutes if 0.
	StartTimeout time.Duration
	// Parallel is the maximum number of pods that are created or deleted at the same
	// time, 64 if 0.
	Parallel int

	Logger zerolog.Logger
	// Now is the clock, time.Now if nil.
	Now func() time.Time
	// Dial connects to an instance over its network; nil means net.Dialer's, which knows none with TLS.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	defaultStartTimeout = 2 * time.Minute
	defaultParallel     = 64
)

// complete fills in defaults.
func (o Options) complete() (Options, labels.Selector, error) {
	if o.Client == nil || o.Functions == nil || o.Args == nil {
		return o, nil, errors.New("set Options.Client, Options.Functions and Options.Args: the backend on Kubernetes needs them")
	}
	if o.StartTimeout <= 0 {
		o.StartTimeout = defaultStartTimeout
	}
	if o.Parallel <= 0 {
		o.Parallel = defaultParallel
	}
	if o.Leading == nil {
		o.Leading = func() bool { return true }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	selector, err := labels.Parse(o.NodeSelector)
	if err != nil {
		return o, nil, fmt.Errorf("node selector %q: it must be labels of nodes, such as \"pool=models\": %w", o.NodeSelector, err)
	}
	return o, selector, nil
}
