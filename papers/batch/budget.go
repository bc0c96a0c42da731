package batch

import (
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// BudgetKey is the annotation with the maximum average cost of a request, in seconds of execution times
// 0.6 for each core and 1 for each % of a GPU: a number above 0; no bound if absent. Only a policy that
// is tuned ([batching.Kind]) accepts it. Its tuner then looks for the fastest config within the budget,
// and not for the cheapest that meets the objective.
const BudgetKey = "com.openfaas.slo.budget"

func setBudget(in *annotation.Inference, value string) error {
	if b, ok := annotation.ParseDecimal(value); !ok || b <= 0 {
		return &annotation.Error{Key: BudgetKey, Value: value, Example: "0.05",
			Why: "it must be a number above 0, in seconds of execution times 0.6 for each core and 1 for each % of a GPU"}
	}
	in.Stated = in.Stated.With(BudgetKey, value)
	return nil
}

// checkBudget refuses a budget for a policy that ignores budgets.
func checkBudget(in *annotation.Inference, value string) error {
	if batching.Of(in.Policy).Tuned {
		return nil
	}
	tuned := strings.Join(slices.DeleteFunc(batching.Names(), func(name string) bool { return !batching.Of(name).Tuned }), " or ")
	return &annotation.Error{Key: BudgetKey, Value: value,
		Why: "only the policy " + tuned + " keeps to a budget; set " + annotation.InferPolicy + " to " + tuned + ", too"}
}

// BudgetOf returns the maximum mean cost of a function's request, 0 for no bound.
func BudgetOf(f systems.Function) float64 {
	budget, _ := annotation.ParseDecimal(annotation.Stated(f.Stated).Value(BudgetKey))
	return budget
}
