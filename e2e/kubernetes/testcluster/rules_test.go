package testcluster_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

func pod(namespace, name, address string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8081}}}}},
		Status:     corev1.PodStatus{PodIP: address},
	}
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
}

func policy(t *testing.T, spec string) *networkingv1.NetworkPolicy {
	t.Helper()
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}}
	if err := yaml.Unmarshal([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

// The rules follow the specification of ingress in NetworkPolicies, case by case.
func TestRules(t *testing.T) {
	front, back := map[string]string{"app": "front"}, map[string]string{"app": "back"}
	left := pod("a", "left", "10.88.0.9", front)
	left.Status.Phase = corev1.PodSucceeded
	host := pod("a", "host", "10.89.0.1", back)
	host.Spec.HostNetwork = true
	pods := []*corev1.Pod{pod("a", "front", "10.88.0.2", front), pod("a", "back", "10.88.0.3", back),
		pod("b", "front", "10.88.0.4", front), pod("b", "waits", "", front), left, host}
	for name, c := range map[string]struct {
		specs []string
		want  string
	}{
		"no policy": {},
		"nobody": {[]string{`{podSelector: {matchLabels: {app: back}}}`},
			"ip daddr 10.88.0.3 drop"},
		"all pods": {[]string{`{podSelector: {}}`},
			"ip daddr 10.88.0.2 drop; ip daddr 10.88.0.3 drop"},
		"everybody": {[]string{`{podSelector: {matchLabels: {app: back}}, ingress: [{}]}`},
			"ip daddr 10.88.0.3 accept; ip daddr 10.88.0.3 drop"},
		"pods of the same namespace": {[]string{`{podSelector: {matchLabels: {app: back}}, ingress: [{from: [{podSelector: {matchLabels: {app: front}}}], ports: [{port: 80}]}]}`},
			"ip daddr 10.88.0.3 ip saddr 10.88.0.2 tcp dport 80 accept; ip daddr 10.88.0.3 drop"},
		"pods of another namespace": {[]string{`{podSelector: {matchLabels: {app: back}}, ingress: [{from: [{namespaceSelector: {matchLabels: {name: b}}, podSelector: {matchLabels: {app: front}}}]}]}`},
			"ip daddr 10.88.0.3 ip saddr 10.88.0.4 accept; ip daddr 10.88.0.3 drop"},
		"a whole namespace": {[]string{`{podSelector: {matchLabels: {app: back}}, ingress: [{from: [{namespaceSelector: {matchLabels: {name: a}}}]}]}`},
			"ip daddr 10.88.0.3 ip saddr 10.88.0.2 accept; ip daddr 10.88.0.3 ip saddr 10.88.0.3 accept; ip daddr 10.88.0.3 drop"},
		"a name of a port, a range, another protocol": {[]string{`{podSelector: {matchLabels: {app: back}}, ingress: [{ports: [{port: http}, {port: none}, {port: 1, endPort: 9}, {protocol: UDP}]}]}`},
			"ip daddr 10.88.0.3 tcp dport 8081 accept; ip daddr 10.88.0.3 tcp dport 1-9 accept; ip daddr 10.88.0.3 meta l4proto udp accept; ip daddr 10.88.0.3 drop"},
		"addresses": {[]string{`{podSelector: {matchLabels: {app: back}}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}]}]}`},
			"ip daddr 10.88.0.3 ip saddr 10.0.0.0/8 ip saddr != 10.1.0.0/16 accept; ip daddr 10.88.0.3 drop"},
		"what one of two allows": {[]string{`{podSelector: {matchLabels: {app: back}}}`, `{podSelector: {matchLabels: {app: back}}, ingress: [{ports: [{port: 80}]}]}`},
			"ip daddr 10.88.0.3 tcp dport 80 accept; ip daddr 10.88.0.3 drop"},
	} {
		t.Run(name, func(t *testing.T) {
			s := testcluster.PolicyState{Namespaces: []*corev1.Namespace{namespace("a"), namespace("b")}, Pods: pods}
			for _, spec := range c.specs {
				s.Policies = append(s.Policies, policy(t, spec))
			}
			text, err := testcluster.PolicyRules(s)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for line := range strings.Lines(text) {
				if line = strings.TrimSpace(line); strings.HasPrefix(line, "ip daddr") {
					got = append(got, line)
				}
			}
			if rules := strings.Join(got, "; "); rules != c.want {
				t.Errorf("got  %s\nwant %s", rules, c.want)
			}
		})
	}
}

// In a cluster of IPv6 the rules are the same, and pods can still find each other on the bridge.
func TestRulesOfIPv6(t *testing.T) {
	s := testcluster.PolicyState{Namespaces: []*corev1.Namespace{namespace("a")},
		Pods:     []*corev1.Pod{pod("a", "front", "fd00:88::2", map[string]string{"app": "front"}), pod("a", "back", "fd00:88::3", map[string]string{"app": "back"})},
		Policies: []*networkingv1.NetworkPolicy{policy(t, `{podSelector: {matchLabels: {app: back}}, ingress: [{from: [{podSelector: {matchLabels: {app: front}}}, {ipBlock: {cidr: "fd00:90::/64"}}]}]}`)},
	}
	text, err := testcluster.PolicyRules(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"nd-neighbor-advert } accept", "ip6 daddr fd00:88::3 ip6 saddr fd00:88::2 accept", "ip6 daddr fd00:88::3 ip6 saddr fd00:90::/64 accept", "ip6 daddr fd00:88::3 drop"} {
		_, after, found := strings.Cut(text, want)
		if !found {
			t.Fatalf("no %q, or not after the others, in %s", want, text)
		}
		text = after
	}
}

// The project's own policies let the provider reach all instances, a master reach workers, and a body reach
// shadows on the port of the relay. They let nothing else reach an instance, not even a worker. Pods of others stay reachable.
func TestMembersReachWorkersOnly(t *testing.T) {
	text, err := os.ReadFile("../../../yaml/network-policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := testcluster.PolicyState{Pods: []*corev1.Pod{
		pod("openfaas", "provider", "10.88.0.1", map[string]string{"app.kubernetes.io/name": "faas-infer", "app.kubernetes.io/component": "provider"}),
		pod("openfaas-fn", "plain", "10.88.0.2", map[string]string{"faas_function": "plain", v1alpha1.ManagedByLabel: v1alpha1.ManagedBy}),
		pod("openfaas-fn", "master", "10.88.0.3", map[string]string{v1alpha1.MemberLabel: v1alpha1.MemberMaster, v1alpha1.ManagedByLabel: v1alpha1.ManagedBy}),
		pod("openfaas-fn", "worker", "10.88.0.4", map[string]string{v1alpha1.MemberLabel: v1alpha1.MemberWorker, v1alpha1.ManagedByLabel: v1alpha1.ManagedBy}),
		pod("openfaas-fn", "body", "10.88.0.21", map[string]string{v1alpha1.PairLabel: v1alpha1.PairBody, v1alpha1.ManagedByLabel: v1alpha1.ManagedBy}),
		pod("openfaas-fn", "shadow", "10.88.0.22", map[string]string{v1alpha1.PairLabel: v1alpha1.PairShadow, v1alpha1.ManagedByLabel: v1alpha1.ManagedBy}),
		// Pods of others in both namespaces, a function of faas-netes among them.
		pod("openfaas-fn", "figlet", "10.88.0.6", map[string]string{"faas_function": "figlet"}),
		pod("openfaas-fn", "redis", "10.88.0.7", map[string]string{"app": "redis"}),
		pod("openfaas", "queue-worker", "10.88.0.8", map[string]string{"app": "queue-worker"}),
		pod("other", "master", "10.88.0.5", map[string]string{v1alpha1.MemberLabel: v1alpha1.MemberMaster}),
	}}
	for _, name := range []string{"openfaas", "openfaas-fn", "other"} {
		n := namespace(name)
		n.Labels["kubernetes.io/metadata.name"] = name
		s.Namespaces = append(s.Namespaces, n)
	}
	for object := range strings.SplitSeq(string(text), "\n---\n") {
		p := new(networkingv1.NetworkPolicy)
		if err := yaml.Unmarshal([]byte(object), p); err != nil {
			t.Fatal(err)
		}
		s.Policies = append(s.Policies, p)
	}
	rules, err := testcluster.PolicyRules(s)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(rules) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "ip daddr") && !strings.HasPrefix(line, "ip daddr 10.88.0.1 ") {
			got = append(got, strings.ReplaceAll(line, "10.88.0.", ""))
		}
	}
	want := []string{"ip daddr 2 ip saddr 1 tcp dport 8080 accept", "ip daddr 2 drop", "ip daddr 3 ip saddr 1 tcp dport 8080 accept", "ip daddr 3 drop",
		"ip daddr 4 ip saddr 1 tcp dport 8080 accept", "ip daddr 4 ip saddr 3 tcp dport 8080 accept", "ip daddr 4 drop",
		"ip daddr 21 ip saddr 1 tcp dport 8080 accept", "ip daddr 21 drop",
		"ip daddr 22 ip saddr 1 tcp dport 8080 accept", "ip daddr 22 ip saddr 21 tcp dport 8090 accept", "ip daddr 22 drop"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Policies that cannot be enforced are refused.
func TestRefused(t *testing.T) {
	for spec, word := range map[string]string{
		`{podSelector: {}, policyTypes: [Ingress, Egress]}`:                                "policyTypes",
		`{podSelector: {}, ingress: [{ports: [{port: 9, endPort: 1}]}]}`:                   "endPort",
		`{podSelector: {matchExpressions: [{key: app, operator: Nonsense}]}}`:              "Nonsense",
		`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {"a b": c}}}]}]}`: "a b",
	} {
		_, err := testcluster.PolicyRules(testcluster.PolicyState{Pods: []*corev1.Pod{pod("a", "one", "10.88.0.2", nil)}, Policies: []*networkingv1.NetworkPolicy{policy(t, spec)}})
		if err == nil || !strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), "a/p") {
			t.Errorf("%s: %v", spec, err)
		}
	}
}
