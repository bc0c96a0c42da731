package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	clientset "k8s.io/client-go/kubernetes"
	metrics "k8s.io/metrics/pkg/client/clientset/versioned"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// Options says how instances are run.
type Options struct {
	// Client should have no limit of its own on requests per second: what is asked
	// of the API server at the same time is bounded here.
	Client clientset.Interface
	// Metrics reads what instances use; nil for nothing.
	Metrics metrics.Interface
	// Namespaces are those of functions; nil for all.
	Namespaces func() []string
	// Functions finds a function by its full name, "mnist.openfaas-fn": its pods are
	// owned by it. It is asked often and should answer from a cache, as should
	// Profiles and SecretType.
	Functions func(full string) (*v1alpha1.Function, bool)
	// Profiles are what com.openfaas.profile names; nil for none.
	Profiles podspec.Profiles
	// SecretType is the type of a function's secret; nil if none is a registry's
	// credentials.
	SecretType func(namespace, name string) corev1.SecretType
	// Args are what an instance's program is told.
	Args func(cluster.InstanceSpec) []string
	// NodeSelector is which nodes instances may be on, as "pool=models"; "" for all.
	NodeSelector string
	// StartTimeout is how long an instance's program may run before it is ready; then
	// it is given up. 2 minutes if 0.
	StartTimeout time.Duration
	// Parallel is how many pods are created or deleted at the same time, 64 if 0.
	Parallel int

	Logger zerolog.Logger
	// Now is the clock, time.Now if nil.
	Now func() time.Time
	// Dial connects to an instance; nil means net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	defaultStartTimeout = 2 * time.Minute
	defaultParallel     = 64
)

// complete fills in defaults.
func (o Options) complete() (Options, labels.Selector, error) {
	if o.Client == nil || o.Functions == nil || o.Args == nil {
		return o, nil, errors.New("a backend on Kubernetes needs Options.Client, Options.Functions and Options.Args")
	}
	if o.StartTimeout <= 0 {
		o.StartTimeout = defaultStartTimeout
	}
	if o.Parallel <= 0 {
		o.Parallel = defaultParallel
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	selector, err := labels.Parse(o.NodeSelector)
	if err != nil {
		return o, nil, fmt.Errorf("node selector %q: it must be labels of nodes, as \"pool=models\": %w", o.NodeSelector, err)
	}
	return o, selector, nil
}
