package kubernetes

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// A pod's grace period is its function's.
func TestPodsHaveTheirFunctionsGrace(t *testing.T) {
	f := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "openfaas-fn"}}
	b := &Backend{options: Options{
		Functions: func(string) (*v1alpha1.Function, bool) { return f, true }, Now: time.Now,
		Args:  func(cluster.InstanceSpec) []string { return nil },
		Grace: func(*v1alpha1.Function) time.Duration { return 7 * time.Minute },
	}}
	p, err := b.plan(cluster.InstanceSpec{Function: "m.openfaas-fn"}, "openfaas-fn")
	if err != nil || p.Grace != 7*time.Minute {
		t.Errorf("the grace period is %v, %v", p.Grace, err)
	}
}
