package objects

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	applynetworkingv1 "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// NewNamespaces says what a namespace gets that [NamespaceStore.PutNamespace] creates. The zero
// value gives it nothing.
type NewNamespaces struct {
	// PodSecurity is its Pod Security Standard, "" for none. It is set once: an administrator
	// may change it.
	PodSecurity string
	// NetworkPolicies lets only the provider reach functions, and only a set's master its
	// workers, as the installation does in its own namespace. Provider is the namespace of the
	// provider.
	NetworkPolicies bool
	Provider        string
	// Quota bounds what all pods of the namespace take together; empty for no bound.
	Quota corev1.ResourceList
}

// The names of the objects in a new namespace.
const (
	functionsPolicy = "faas-infer-functions"
	membersPolicy   = "faas-infer-members"
	quotaName       = "faas-infer"
)

// levels are the labels of Pod Security.
var levels = []string{"pod-security.kubernetes.io/enforce", "pod-security.kubernetes.io/audit", "pod-security.kubernetes.io/warn"}

// labels returns the labels of Pod Security for a namespace that is applied. found is the namespace
// as it is, nil if it is new: the labels of an old one stay as they are.
func (n NewNamespaces) labels(found *corev1.Namespace) map[string]string {
	out := map[string]string{}
	for _, key := range levels {
		if found != nil {
			if value, ok := found.Labels[key]; ok {
				out[key] = value
			}
		} else if n.PodSecurity != "" {
			out[key] = n.PodSecurity
		}
	}
	return out
}

// furnish gives a namespace that the provider has made its policies and its quota.
func (s *NamespaceStore) furnish(ctx context.Context, name string) error {
	options := metav1.ApplyOptions{FieldManager: v1alpha1.ManagedBy, Force: true}
	if s.fresh.NetworkPolicies {
		for _, p := range s.fresh.policies(name) {
			if _, err := s.client.NetworkingV1().NetworkPolicies(name).Apply(ctx, p, options); err != nil {
				return problemFrom(err, "network policy %s was not made in namespace %s", *p.Name, name)
			}
		}
	}
	if len(s.fresh.Quota) > 0 {
		quota := applycorev1.ResourceQuota(quotaName, name).WithLabels(madeLabels()).WithSpec(applycorev1.ResourceQuotaSpec().WithHard(s.fresh.Quota))
		if _, err := s.client.CoreV1().ResourceQuotas(name).Apply(ctx, quota, options); err != nil {
			return problemFrom(err, "quota %s was not made in namespace %s", quotaName, name)
		}
	}
	return nil
}

func madeLabels() map[string]string {
	return map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedBy, "app.kubernetes.io/part-of": "faas-infer"}
}

// policies returns the network policies of functions in a namespace.
func (n NewNamespaces) policies(namespace string) []*applynetworkingv1.NetworkPolicyApplyConfiguration {
	port := applynetworkingv1.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromInt32(podspec.Port))
	admit := func(name string, selected map[string]string, from *applynetworkingv1.NetworkPolicyPeerApplyConfiguration) *applynetworkingv1.NetworkPolicyApplyConfiguration {
		return applynetworkingv1.NetworkPolicy(name, namespace).WithLabels(madeLabels()).WithSpec(applynetworkingv1.NetworkPolicySpec().
			WithPodSelector(applymetav1.LabelSelector().WithMatchLabels(selected)).WithPolicyTypes(networkingv1.PolicyTypeIngress).
			WithIngress(applynetworkingv1.NetworkPolicyIngressRule().WithFrom(from).WithPorts(port)))
	}
	provider := applynetworkingv1.NetworkPolicyPeer().
		WithNamespaceSelector(applymetav1.LabelSelector().WithMatchLabels(map[string]string{corev1.LabelMetadataName: n.Provider})).
		WithPodSelector(applymetav1.LabelSelector().WithMatchLabels(map[string]string{"app.kubernetes.io/name": "faas-infer", "app.kubernetes.io/component": "provider"}))
	master := applynetworkingv1.NetworkPolicyPeer().
		WithPodSelector(applymetav1.LabelSelector().WithMatchLabels(map[string]string{v1alpha1.MemberLabel: v1alpha1.MemberMaster}))
	return []*applynetworkingv1.NetworkPolicyApplyConfiguration{
		admit(functionsPolicy, map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedBy}, provider),
		admit(membersPolicy, map[string]string{v1alpha1.MemberLabel: v1alpha1.MemberWorker}, master),
	}
}
