package annotation

import (
	"strings"
	"testing"

	_ "github.com/faas-infer/faas-infer/papers/batch" // It keeps to budgets.
)

func TestBudget(t *testing.T) {
	in, err := Parse(deployment(map[string]string{SLOLatency: "100ms", SLOBudget: "0.05", InferPolicy: "batch"}))
	if err != nil || in.Budget != 0.05 {
		t.Errorf("%+v, %v", in, err)
	}
	for _, c := range []struct{ policy, budget, want string }{
		{"batch", "0", "above 0"}, {"batch", "-1", "above 0"}, {"batch", "NaN", "above 0"}, {"batch", "1e9", "above 0"}, {"batch", "$1", "above 0"},
		{"shared", "0.05", "only the policy batch keeps to a budget"},
	} {
		_, err := Parse(deployment(map[string]string{SLOLatency: "100ms", SLOBudget: c.budget, InferPolicy: c.policy}))
		if err == nil || !strings.Contains(err.Error(), SLOBudget) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("policy %s, budget %s: got %v", c.policy, c.budget, err)
		}
	}
}
