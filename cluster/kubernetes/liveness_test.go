package kubernetes

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
)

// The kubelet asks an instance whether it is alive only after the time that it has to load its
// model: until then it answers nothing.
func TestLivenessLeavesTimeToStart(t *testing.T) {
	if after := podspec.AliveAfter * time.Second; after <= defaultStartTimeout {
		t.Errorf("it is asked after %v, and may start for %v", after, defaultStartTimeout)
	}
}
