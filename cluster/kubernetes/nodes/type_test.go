package nodes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A node's type is its CPU, as exactly as the cluster says it.
func TestTypeOf(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{}, Annotations: map[string]string{}}}
	check := func(want string) {
		t.Helper()
		if got := Read(Trim(n)).Type; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	check("")
	n.Labels[corev1.LabelArchStable] = "amd64"
	check("amd64")
	n.Annotations[CPUAnnotation] = "AMD EPYC 7B13"
	check("AMD EPYC 7B13")
	n.Labels[corev1.LabelInstanceTypeStable] = "m7a.large"
	check("m7a.large")
	n.Labels[cpuModel[0]], n.Labels[cpuModel[1]] = "AMD", "25"
	check("m7a.large")
	n.Labels[cpuModel[2]] = "17"
	check("AMD 25 17")
	before := Read(n)
	n.Labels[cpuModel[2]] = "1"
	if before.Same(Read(n)) {
		t.Error("another type is the same node")
	}
}
