package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// Of a pod's addresses the first counts that this machine can reach.
func TestAddress(t *testing.T) {
	pod := func(ips ...string) *corev1.Pod {
		p := &corev1.Pod{}
		p.Labels = map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedBy, v1alpha1.InstanceLabel: "i", v1alpha1.FunctionLabel: "f"}
		for _, ip := range ips {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
		}
		if len(ips) > 0 {
			p.Status.PodIP = ips[0]
		}
		return Trim(p)
	}
	for want, p := range map[string]*corev1.Pod{"": pod(), "10.0.0.1:8080": pod("10.0.0.1"), "[fd00::1]:8080": pod("fd00::1")} {
		if got := Address(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	both := []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}
	for _, c := range []struct {
		has  families
		want string
	}{{families{v4: true, v6: true}, "10.0.0.1"}, {families{v4: true}, "10.0.0.1"}, {families{v6: true}, "fd00::1"}, {families{}, "10.0.0.1"}} {
		if got := choose(both, c.has); got != c.want {
			t.Errorf("%+v: %s, want %s", c.has, got, c.want)
		}
	}
	if p := pod("10.0.0.1", "fd00::1"); len(p.Status.PodIPs) != 2 || Address(p) == "" {
		t.Errorf("trimmed to %v", p.Status.PodIPs)
	}
}
