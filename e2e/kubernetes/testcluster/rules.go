package testcluster

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PolicyState is the state from which the rules for connections follow.
type PolicyState struct {
	Policies   []*networkingv1.NetworkPolicy
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
}

// chain is the table for packets between pods. It lets answers pass, and the questions for the
// hosts that have an address of IPv6. It does not affect connections from the node to its pods,
// which the kubelet needs for probes.
const chain = `add table inet policies
delete table inet policies
table inet policies {
  chain forward {
    type filter hook forward priority 10; policy accept;
    ct state established,related accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
%s  }
}
`

// protocol returns nft's name of the protocol of an address or of a range.
func protocol(address string) string {
	if strings.Contains(address, ":") {
		return "ip6"
	}
	return "ip"
}

// PolicyRules returns the nft script that replaces all rules by those of the state. A pod
// that a policy selects accepts only the connections that one of its policies allows. Every
// other pod accepts all.
func PolicyRules(s PolicyState) (string, error) {
	var rules strings.Builder
	for _, pod := range s.Pods {
		if !connected(pod) {
			continue
		}
		isolated := false
		for _, policy := range s.Policies {
			selected, err := selects(&policy.Spec.PodSelector, pod.Labels)
			if err != nil || !selected || policy.Namespace != pod.Namespace {
				if err != nil {
					return "", fmt.Errorf("policy %s/%s: %w", policy.Namespace, policy.Name, err)
				}
				continue
			}
			if slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
				return "", fmt.Errorf("policy %s/%s: only policyTypes [Ingress] can be enforced here", policy.Namespace, policy.Name)
			}
			isolated = true
			for i := range policy.Spec.Ingress {
				lines, err := s.allowed(policy, &policy.Spec.Ingress[i], pod)
				if err != nil {
					return "", fmt.Errorf("policy %s/%s, ingress[%d]: %w", policy.Namespace, policy.Name, i, err)
				}
				for _, line := range lines {
					fmt.Fprintf(&rules, "    %s daddr %s %saccept\n", protocol(pod.Status.PodIP), pod.Status.PodIP, line)
				}
			}
		}
		if isolated {
			fmt.Fprintf(&rules, "    %s daddr %s drop\n", protocol(pod.Status.PodIP), pod.Status.PodIP)
		}
	}
	return fmt.Sprintf(chain, rules.String()), nil
}

// connected reports whether a pod has its own address now.
func connected(p *corev1.Pod) bool {
	return p.Status.PodIP != "" && !p.Spec.HostNetwork && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func selects(s *metav1.LabelSelector, has map[string]string) (bool, error) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return false, err
	}
	return selector.Matches(labels.Set(has)), nil
}

// allowed returns the nft conditions of the connections to a pod that one entry of a policy
// allows.
func (s PolicyState) allowed(policy *networkingv1.NetworkPolicy, rule *networkingv1.NetworkPolicyIngressRule, pod *corev1.Pod) ([]string, error) {
	ports, err := conditions(rule.Ports, pod)
	if err != nil {
		return nil, err
	}
	sources := []string{""}
	if len(rule.From) > 0 {
		sources = nil
	}
	for i := range rule.From {
		from, err := s.sources(policy.Namespace, &rule.From[i])
		if err != nil {
			return nil, err
		}
		sources = append(sources, from...)
	}
	var all []string
	for _, source := range sources {
		for _, port := range ports {
			all = append(all, source+port)
		}
	}
	return all, nil
}

// sources returns the nft conditions for the source of a connection.
func (s PolicyState) sources(namespace string, peer *networkingv1.NetworkPolicyPeer) ([]string, error) {
	if peer.IPBlock != nil {
		condition := protocol(peer.IPBlock.CIDR) + " saddr " + peer.IPBlock.CIDR + " "
		for _, except := range peer.IPBlock.Except {
			condition += protocol(except) + " saddr != " + except + " "
		}
		return []string{condition}, nil
	}
	namespaces := map[string]bool{namespace: true}
	if peer.NamespaceSelector != nil {
		clear(namespaces)
		for _, n := range s.Namespaces {
			selected, err := selects(peer.NamespaceSelector, n.Labels)
			if err != nil {
				return nil, err
			}
			namespaces[n.Name] = selected
		}
	}
	var all []string
	for _, p := range s.Pods {
		if !connected(p) || !namespaces[p.Namespace] {
			continue
		}
		// Without a pod selector, every pod of the namespaces is selected.
		selected := peer.PodSelector == nil
		if !selected {
			var err error
			if selected, err = selects(peer.PodSelector, p.Labels); err != nil {
				return nil, err
			}
		}
		if selected {
			all = append(all, protocol(p.Status.PodIP)+" saddr "+p.Status.PodIP+" ")
		}
	}
	return all, nil
}

// conditions returns the nft conditions for the port of a connection.
func conditions(ports []networkingv1.NetworkPolicyPort, pod *corev1.Pod) ([]string, error) {
	if len(ports) == 0 {
		return []string{""}, nil
	}
	var all []string
	for _, p := range ports {
		transport := corev1.ProtocolTCP
		if p.Protocol != nil {
			transport = *p.Protocol
		}
		name := strings.ToLower(string(transport))
		switch {
		case p.Port == nil:
			all = append(all, "meta l4proto "+name+" ")
		case p.Port.Type == intstr.String:
			if number, found := named(pod, p.Port.StrVal, transport); found {
				all = append(all, fmt.Sprintf("%s dport %d ", name, number))
			}
		case p.EndPort != nil:
			if *p.EndPort < p.Port.IntVal {
				return nil, fmt.Errorf("endPort %d is below port %d", *p.EndPort, p.Port.IntVal)
			}
			all = append(all, fmt.Sprintf("%s dport %d-%d ", name, p.Port.IntVal, *p.EndPort))
		default:
			all = append(all, fmt.Sprintf("%s dport %d ", name, p.Port.IntVal))
		}
	}
	return all, nil
}

// named returns the number of a pod's named port.
func named(pod *corev1.Pod, name string, transport corev1.Protocol) (int32, bool) {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == name && (p.Protocol == transport || p.Protocol == "" && transport == corev1.ProtocolTCP) {
				return p.ContainerPort, true
			}
		}
	}
	return 0, false
}
