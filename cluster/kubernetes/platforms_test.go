package kubernetes

import (
	"slices"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"
	corev1 "k8s.io/api/core/v1"
)

// In a cluster of several architectures and systems a function may start only where its image
// runs. In one of a single kind every node is allowed, as before.
func TestEligibleByPlatform(t *testing.T) {
	b := still(4, 0)
	d := types.FunctionDeployment{Service: "m"}
	if got, why := b.Eligible(d, "linux/amd64"); got != nil || why != "" {
		t.Errorf("nodes that do not say: %v, %q", got, why)
	}
	for name, platform := range map[string][2]string{"n0000": {"linux", "amd64"}, "n0001": {"linux", "arm64"}, "n0002": {"windows", "amd64"}, "n0003": {"linux", "amd64"}} {
		n := *b.fleet.nodes[name]
		n.Labels = map[string]string{"disk": "ssd", corev1.LabelOSStable: platform[0], corev1.LabelArchStable: platform[1]}
		b.fleet.set(name, &n)
	}
	for _, c := range []struct {
		platforms, constraints, want []string
		why                          string
	}{
		{platforms: []string{"linux/amd64"}, want: []string{"n0000", "n0003"}},
		{platforms: []string{"linux/amd64", "linux/arm64"}, want: []string{"n0000", "n0001", "n0003"}},
		{platforms: []string{"linux/arm64"}, constraints: []string{"disk=ssd"}, want: []string{"n0001"}},
		{want: []string{"n0000", "n0001", "n0003"}}, // What runs where is not known; windows runs none.
		{platforms: []string{"linux/s390x"}, want: []string{}, why: "linux/s390x"},
	} {
		d.Constraints = c.constraints
		if got, why := b.Eligible(d, c.platforms...); !slices.Equal(got, c.want) || got == nil || !strings.Contains(why, c.why) {
			t.Errorf("%v: %v, %q", c.platforms, got, why)
		}
	}
	for _, name := range []string{"n0001", "n0002"} {
		b.fleet.set(name, nil)
	}
	d.Constraints = nil
	if got, why := b.Eligible(d, "linux/amd64"); got != nil || why != "" {
		t.Errorf("a single kind: %v, %q", got, why)
	}
}
