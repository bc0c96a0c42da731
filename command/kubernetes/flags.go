package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	metrics "k8s.io/metrics/pkg/client/clientset/versioned"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/client"
	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/async/queue"
)

// providerFlags are the flags of a provider on Kubernetes.
type providerFlags struct {
	command.ProviderFlags
	kubeconfig, namespace, service, lease string
	leaseDuration                         time.Duration
	pod, functions                        string
	nodeSelector, pullPolicy, images      string
	modelClaims                           map[string]string
	modelImage                            string
	plain, copies                         []string
	copiesKey                             string
	user                                  int64
	placeholders                          placeholderFlags
	instances                             instanceFlags
	spaces                                spaceFlags
	publish                               publishFlags
	credentials                           credentialFlags
	// imagesSize is the maximum size of the images directory, read from imagesLimit.
	imagesSize  resource.Quantity
	imagesLimit string
}

// NewProviderCommand returns "faas-infer-kubernetes provider".
func NewProviderCommand() *cobra.Command {
	var f providerFlags
	c := &cobra.Command{
		Use:   "provider",
		Short: "Run the OpenFaaS provider in a Kubernetes cluster",
		Long: `provider takes the place of faas-netes and of the gateway. Functions are custom
resources (kind Function, group faas-infer.dev), so both kubectl and faas-cli can
deploy them. Instances of models are pods that the provider sizes and places; ordinary
functions are Deployments with Services. Several replicas may run. All of them serve
requests; one of them, elected by a Lease, starts and stops instances.

Outside the cluster, it uses --kubeconfig and must reach the pods' addresses.
Functions and their pods stay when it ends.`,
		Example: `  faas-infer-kubernetes provider --listen 0.0.0.0:8081
  faas-infer-kubernetes provider --kubeconfig ~/.kube/config --namespace openfaas --log-level debug
  kubectl get functions -n openfaas-fn`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.complete(); err != nil {
				return err
			}
			return f.Serve(cmd.Context(), &platform{flags: &f})
		},
	}
	flags := c.Flags()
	f.Register(flags)
	f.RegisterTLS(flags)
	f.RegisterDoors(flags)
	f.publish.register(flags)
	f.placeholders.register(flags)
	f.credentials.register(flags)
	f.instances.register(flags)
	f.spaces.register(flags)
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG, or the pod's service account)")
	flags.StringVar(&f.namespace, "namespace", "", "the provider's own namespace, with its Lease, profiles and histories (default $POD_NAMESPACE, or openfaas)")
	flags.StringVar(&f.functions, "functions-namespace", provider.DefaultNamespace, "namespace of functions that name none; it needs no annotation")
	flags.StringVar(&f.service, "service", "faas-infer", "the provider's own Service, through which its replicas find each other; \"\" for a single replica")
	flags.StringVar(&f.lease, "lease", "faas-infer", "the Lease that elects the replica that scales")
	flags.DurationVar(&f.leaseDuration, "lease-duration", client.DefaultLease, "how long the Lease holds without being renewed; a shorter one is followed sooner after a crash, and is written more often")
	flags.StringVar(&f.pod, "pod", "", "this replica's name (default $POD_NAME, or the host name)")
	flags.StringVar(&f.nodeSelector, "node-selector", "", "labels of the nodes for models' instances, such as pool=models")
	flags.StringVar(&f.pullPolicy, "pull-policy", "Always", "when nodes pull ordinary functions' images: Always, IfNotPresent or Never; models' images are pulled by digest")
	flags.StringVar(&f.images, "images", "", "directory that keeps the bundles of models' images (default STATE/images)")
	flags.StringVar(&f.imagesLimit, "images-size", "8Gi", "maximum size of that directory; beyond it, bundles unused for an hour are evicted, least recently used first")
	flags.StringVar(&f.modelImage, "model-image", "", "image in which models run that functions name by URI: faas-infer's base, such as registry.example.com/faas-infer/base:v1 (default none: such models are refused)")
	flags.StringToStringVar(&f.modelClaims, "model-claims", nil, "claims that are mounted in the provider's pods, from which models may come by URIs pvc://CLAIM/PATH, such as models=/mnt/models")
	flags.StringSliceVar(&f.plain, "plain-registry", nil, "registries that use plain HTTP, such as registry.local:5000")
	flags.StringSliceVar(&f.copies, "copies", nil, "namespaces with the PersistentVolumeClaim "+copiesClaim+", by which the instances of a model on one node share one prepared copy")
	flags.StringVar(&f.copiesKey, "copies-key", "", "file with the key that the provider shows to the nodes' agents, which have the same; a file that does not exist is no key")
	flags.Int64Var(&f.user, "function-user", 0, "user ID of ordinary functions (default 12000; negative: the image's user)")
	return c
}

// complete fills in the defaults that depend on the environment, and checks the flags.
func (f *providerFlags) complete() error {
	f.namespace = cmp.Or(f.namespace, os.Getenv("POD_NAMESPACE"), "openfaas")
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("--pod has no default: %w", err)
	}
	f.pod = cmp.Or(f.pod, os.Getenv("POD_NAME"), host)
	if f.service != "" {
		f.AllowHosts(serviceNames(f.service, f.namespace)...)
	}
	if !annotation.IsName(f.functions) {
		return fmt.Errorf("--functions-namespace %q: it must be the name of a namespace, such as openfaas-fn", f.functions)
	}
	for _, claim := range slices.Sorted(maps.Keys(f.modelClaims)) {
		if dir := f.modelClaims[claim]; !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
			return fmt.Errorf("--model-claims %s=%s: it must be an absolute path, such as %[1]s=/mnt/%[1]s", claim, dir)
		}
	}
	if f.modelClaims == nil {
		f.modelClaims = map[string]string{}
	}
	f.Downloads.Claims = f.modelClaims
	provider.DefaultNamespace, queue.DefaultNamespace = f.functions, f.functions
	if f.imagesSize, err = resource.ParseQuantity(f.imagesLimit); err != nil || f.imagesSize.Sign() < 0 {
		return fmt.Errorf("--images-size %q: it must be an amount of bytes, such as 8Gi", f.imagesLimit)
	}
	f.leaseDuration = cmp.Or(f.leaseDuration, client.DefaultLease)
	if f.leaseDuration < minLease || f.leaseDuration > maxLease {
		return fmt.Errorf("--lease-duration %v: it must be from %v to %v", f.leaseDuration, minLease, maxLease)
	}
	if err := errors.Join(f.instances.complete(), f.spaces.complete()); err != nil {
		return err
	}
	switch f.pullPolicy {
	case "Always", "IfNotPresent", "Never":
		return nil
	}
	return fmt.Errorf("--pull-policy %q: it must be Always, IfNotPresent or Never", f.pullPolicy)
}

// minLease and maxLease bound --lease-duration: Kubernetes counts a lease in whole seconds, and
// while none leads nothing is scaled.
const minLease, maxLease = 3 * time.Second, 2 * time.Minute

// serviceNames are the names by which pods address a Service, the gateway for one.
func serviceNames(service, namespace string) []string {
	full := service + "." + namespace
	return []string{service, full, full + ".svc", full + ".svc.cluster.local"}
}

// identity returns a name that is unique to this run of this replica.
func (f *providerFlags) identity() string { return f.pod + "_" + string(uuid.NewUUID()) }

// clients are the clients of the API server.
type clients struct {
	config  *rest.Config
	core    clientset.Interface
	dynamic dynamic.Interface
	metrics metrics.Interface
}

// connect makes the clients. They have no rate limit: the callers limit their requests in
// flight, and the API server has priorities of its own.
func connect(kubeconfig string) (clients, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return clients{}, fmt.Errorf("cannot reach the cluster: %w; run in a pod, or give --kubeconfig", err)
	}
	config.QPS, config.UserAgent = -1, "faas-infer"
	config.Wrap(client.RetryTransport)
	c := clients{config: config}
	var failed [3]error
	c.core, failed[0] = clientset.NewForConfig(config)
	c.dynamic, failed[1] = dynamic.NewForConfig(config)
	c.metrics, failed[2] = metrics.NewForConfig(config)
	if err := errors.Join(failed[:]...); err != nil {
		return clients{}, fmt.Errorf("create clients of the cluster: %w", err)
	}
	return c, nil
}
