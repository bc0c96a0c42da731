package nodes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// An image runs on the nodes of its platforms only.
func TestRuns(t *testing.T) {
	node := func(system, architecture string) *Node {
		return &Node{Name: "n", Labels: map[string]string{corev1.LabelOSStable: system, corev1.LabelArchStable: architecture}}
	}
	both := []string{"linux/amd64", "linux/arm64"}
	for _, c := range []struct {
		n         *Node
		platforms []string
		want      bool
	}{
		{node("linux", "amd64"), nil, true},
		{node("linux", "arm64"), nil, true},
		{node("windows", "amd64"), nil, false},
		{node("linux", "arm64"), both, true},
		{node("linux", "arm64"), both[:1], false},
		{node("windows", "amd64"), both, false},
		{node("windows", "amd64"), []string{"windows/amd64"}, true},
		{&Node{Name: "says nothing"}, both[:1], true},
	} {
		if got := c.n.Runs(c.platforms); got != c.want {
			t.Errorf("%v on %v: %v", c.platforms, c.n.Labels, got)
		}
	}
}
