package batch

import (
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

func TestBudgetAnnotation(t *testing.T) {
	parse := func(policy, budget string) (annotation.Inference, error) {
		keys := map[string]string{annotation.SLOLatency: "100ms", BudgetKey: budget, annotation.InferPolicy: policy}
		return annotation.Parse(types.FunctionDeployment{Service: "f", Image: "f", Annotations: &keys})
	}
	in, err := parse(Name, "0.05")
	if got := BudgetOf(systems.Function{Stated: string(in.Stated)}); err != nil || got != 0.05 {
		t.Errorf("%v of %+v, %v", got, in, err)
	}
	if got := BudgetOf(systems.Function{}); got != 0 {
		t.Errorf("%v without a budget", got)
	}
	for _, c := range []struct{ policy, budget, want string }{
		{"batch", "0", "above 0"}, {"batch", "-1", "above 0"}, {"batch", "NaN", "above 0"}, {"batch", "1e9", "above 0"}, {"batch", "$1", "above 0"},
		{"shared", "0.05", "only the policy batch keeps to a budget"},
	} {
		_, err := parse(c.policy, c.budget)
		if err == nil || !strings.Contains(err.Error(), BudgetKey) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("policy %s, budget %s: got %v", c.policy, c.budget, err)
		}
	}
}
