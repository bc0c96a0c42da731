package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/provider/objects"
)

// instanceFlags bound what functions' instances take of their nodes.
type instanceFlags struct {
	request, limit, tmp string
	// tls is the directory of the instances' certificate, "" for none.
	tls string
	// local is read from the flags.
	local podspec.Local
}

func (f *instanceFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.request, "instance-storage-request", "", "ephemeral storage that a node keeps free for each instance, such as 64Mi (default none)")
	flags.StringVar(&f.limit, "instance-storage-limit", "", "ephemeral storage beyond which an instance is evicted, such as 2Gi (default none)")
	flags.StringVar(&f.tmp, "instance-tmp-size", "", "maximum size of /tmp of functions with a read-only root file system, such as 1Gi (default none)")
	flags.StringVar(&f.tls, "instance-tls", "", "directory with tls.crt, tls.key and ca.crt for instances of models, and of programs in images of faas-infer, which then take requests from the provider only, over TLS; needs --tls")
	flags.BoolVar(&f.local.UserNamespaces, "user-namespaces", false, "give each pod of a function a user namespace (hostUsers: false); the nodes must support it, and pods with a share of a GPU have none")
}

// complete reads the amounts.
func (f *instanceFlags) complete() error {
	for _, a := range []struct {
		flag, value string
		to          *resource.Quantity
	}{
		{"instance-storage-request", f.request, &f.local.StorageRequest},
		{"instance-storage-limit", f.limit, &f.local.StorageLimit},
		{"instance-tmp-size", f.tmp, &f.local.TmpSize},
	} {
		if a.value == "" {
			continue
		}
		var err error
		if *a.to, err = resource.ParseQuantity(a.value); err != nil || a.to.Sign() <= 0 {
			return fmt.Errorf("--%s %q: it must be an amount of bytes above 0, such as 1Gi", a.flag, a.value)
		}
	}
	if l := f.local; !l.StorageLimit.IsZero() && l.StorageRequest.Cmp(l.StorageLimit) > 0 {
		return fmt.Errorf("--instance-storage-request %q: it must not be above --instance-storage-limit, which is %s", f.request, f.limit)
	}
	return nil
}

// checkUserNamespaces refuses --user-namespaces if no node of the cluster supports them, and warns
// of the nodes that do not. It never turns them off: each replica asks at its own start, and
// replicas that decide differently would replace each other's pods.
func (p *platform) checkUserNamespaces(ctx context.Context) error {
	if !p.flags.instances.local.UserNamespaces {
		return nil
	}
	list, err := p.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		p.base.Log.Warn().Err(err).Msg("cannot check which nodes support --user-namespaces")
		return nil
	}
	lacking := withoutUserNamespaces(list.Items)
	switch {
	case len(lacking) == 0:
	case len(lacking) == len(list.Items):
		return errors.New("--user-namespaces: no node supports them, so no pod of a function could start: leave the flag out (chart: instances.userNamespaces), or use nodes with Kubernetes 1.33, containerd 2.0 or CRI-O 1.25, and Linux 6.3")
	default:
		p.base.Log.Warn().Strs("nodes", lacking).Msg("these nodes do not support --user-namespaces: pods of functions do not start there; taint them, or leave them out with --node-selector")
	}
	return nil
}

// withoutUserNamespaces returns the names of the nodes whose container runtime does not say that it
// supports user namespaces.
func withoutUserNamespaces(nodes []corev1.Node) (names []string) {
	for i := range nodes {
		supports := slices.ContainsFunc(nodes[i].Status.RuntimeHandlers, func(h corev1.NodeRuntimeHandler) bool {
			return h.Name == "" && h.Features != nil && h.Features.UserNamespaces != nil && *h.Features.UserNamespaces
		})
		if !supports {
			names = append(names, nodes[i].Name)
		}
	}
	return names
}

// spaceFlags say what namespaces get that faas-cli makes.
type spaceFlags struct {
	level    string
	policies bool
	quota    map[string]string
	// amounts are read from quota.
	amounts corev1.ResourceList
}

func (f *spaceFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.level, "namespace-pod-security", "", "Pod Security Standard of namespaces that faas-cli makes: privileged, baseline or restricted (default none)")
	flags.BoolVar(&f.policies, "namespace-network-policies", false, "give namespaces that faas-cli makes the network policies of functions")
	flags.StringToStringVar(&f.quota, "namespace-quota", nil, "ResourceQuota of namespaces that faas-cli makes, such as pods=100,requests.cpu=32")
}

// complete checks the level and reads the quota.
func (f *spaceFlags) complete() error {
	if !slices.Contains([]string{"", "privileged", "baseline", "restricted"}, f.level) {
		return fmt.Errorf("--namespace-pod-security %q: it must be privileged, baseline or restricted", f.level)
	}
	f.amounts = corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(f.quota)) {
		q, err := resource.ParseQuantity(f.quota[name])
		if err != nil || q.Sign() < 0 {
			return fmt.Errorf("--namespace-quota %s=%q: it must be an amount, for example pods=100 or requests.memory=64Gi", name, f.quota[name])
		}
		f.amounts[corev1.ResourceName(name)] = q
	}
	return nil
}

// policy returns what the namespaces get, for a provider in a namespace.
func (f *spaceFlags) policy(namespace string) objects.NewNamespaces {
	return objects.NewNamespaces{PodSecurity: f.level, NetworkPolicies: f.policies, Provider: namespace, Quota: f.amounts}
}
