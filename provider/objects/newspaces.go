package objects

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// NewNamespaces says what a namespace gets that [NamespaceStore.PutNamespace] creates. The zero
// value gives it nothing. All of it is set once: an administrator may change or delete it, and
// namespaces from before keep what they have.
type NewNamespaces struct {
	// PodSecurity is its Pod Security Standard, "" for none.
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
	shadowsPolicy   = "faas-infer-shadows"
	quotaName       = "faas-infer"
)

// levels are the labels of Pod Security.
var levels = []string{"pod-security.kubernetes.io/enforce", "pod-security.kubernetes.io/audit", "pod-security.kubernetes.io/warn"}

// securityLabels returns the labels of Pod Security that a namespace has.
func securityLabels(n *corev1.Namespace) map[string]string {
	out := map[string]string{}
	for _, key := range levels {
		if value, ok := n.Labels[key]; ok {
			out[key] = value
		}
	}
	return out
}

// pending reports whether a namespace that the provider has created lacks what a new one gets.
func pending(n *corev1.Namespace) bool {
	return n.DeletionTimestamp == nil && n.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedBy && n.Annotations[NamespaceAnnotation] == pendingNamespace
}

// create makes a namespace in which functions are not allowed yet.
func (s *NamespaceStore) create(ctx context.Context, name string) (*corev1.Namespace, error) {
	labels := map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedBy}
	if s.fresh.PodSecurity != "" {
		for _, key := range levels {
			labels[key] = s.fresh.PodSecurity
		}
	}
	made, err := s.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: labels, Annotations: map[string]string{NamespaceAnnotation: pendingNamespace},
	}}, metav1.CreateOptions{FieldManager: v1alpha1.ManagedBy})
	if err != nil {
		return nil, namespaceProblem(err, "kubectl create namespace "+name+" && kubectl annotate namespace "+name+" "+NamespaceAnnotation+"=1", "namespace "+name+" was not created")
	}
	return made, nil
}

// furnish gives a new namespace its policies and its quota. It leaves those that are there as they
// are.
func (s *NamespaceStore) furnish(ctx context.Context, name string) error {
	options := metav1.CreateOptions{FieldManager: v1alpha1.ManagedBy}
	const why = "namespace %s is in the cluster, but allows no functions until the request is repeated: %s was not made"
	if s.fresh.NetworkPolicies {
		for _, p := range s.fresh.policies(name) {
			if _, err := s.client.NetworkingV1().NetworkPolicies(name).Create(ctx, p, options); err != nil && !apierrors.IsAlreadyExists(err) {
				return problemFrom(err, why, name, "its network policy "+p.Name)
			}
		}
	}
	if len(s.fresh.Quota) > 0 {
		quota := &corev1.ResourceQuota{ObjectMeta: madeMeta(name, quotaName), Spec: corev1.ResourceQuotaSpec{Hard: s.fresh.Quota}}
		if _, err := s.client.CoreV1().ResourceQuotas(name).Create(ctx, quota, options); err != nil && !apierrors.IsAlreadyExists(err) {
			return problemFrom(err, why, name, "its quota "+quotaName)
		}
	}
	return nil
}

// madeMeta returns the metadata of an object in a new namespace.
func madeMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedBy, "app.kubernetes.io/part-of": "faas-infer"}}
}

// policies returns the network policies of functions in a namespace.
func (n NewNamespaces) policies(namespace string) []*networkingv1.NetworkPolicy {
	tcp := corev1.ProtocolTCP
	selector := func(labels map[string]string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: labels}
	}
	admit := func(name string, selected map[string]string, number int32, from networkingv1.NetworkPolicyPeer) *networkingv1.NetworkPolicy {
		port := intstr.FromInt32(number)
		return &networkingv1.NetworkPolicy{ObjectMeta: madeMeta(namespace, name), Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *selector(selected), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{from}, Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}}}},
		}}
	}
	return []*networkingv1.NetworkPolicy{
		admit(functionsPolicy, map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedBy}, podspec.Port, networkingv1.NetworkPolicyPeer{
			NamespaceSelector: selector(map[string]string{corev1.LabelMetadataName: n.Provider}),
			PodSelector:       selector(map[string]string{"app.kubernetes.io/part-of": "faas-infer", "app.kubernetes.io/component": "provider"}),
		}),
		admit(membersPolicy, map[string]string{v1alpha1.MemberLabel: v1alpha1.MemberWorker}, podspec.Port, networkingv1.NetworkPolicyPeer{
			PodSelector: selector(map[string]string{v1alpha1.MemberLabel: v1alpha1.MemberMaster}),
		}),
		admit(shadowsPolicy, map[string]string{v1alpha1.PairLabel: v1alpha1.PairShadow}, podspec.RelayPort, networkingv1.NetworkPolicyPeer{
			PodSelector: selector(map[string]string{v1alpha1.PairLabel: v1alpha1.PairBody}),
		}),
	}
}
