package annotation

import (
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/batching"
)

// SLOBudget is the maximum average cost of a request, in seconds of execution times 0.6
// for each core and 1 for each % of a GPU: a number above 0; no bound if absent. Only a
// policy that is tuned ([batching.Kind]) accepts it. Its tuner then looks for the fastest config
// within the budget, and not for the cheapest that meets SLOLatency.
const SLOBudget = "com.openfaas.slo.budget"

func budget(key, value string) (float64, error) {
	b, ok := ParseDecimal(value)
	if !ok || b <= 0 {
		return 0, &Error{Key: key, Value: value, Why: "it must be a number above 0, in seconds of execution times 0.6 for each core and 1 for each % of a GPU", Example: "0.05"}
	}
	return b, nil
}

// checkBudget refuses a budget for a policy that ignores budgets.
func (in *Inference) checkBudget(values map[string]string) error {
	if in.Budget <= 0 || batching.Of(in.Policy).Tuned {
		return nil
	}
	tuned := strings.Join(slices.DeleteFunc(batching.Names(), func(name string) bool { return !batching.Of(name).Tuned }), " or ")
	if tuned == "" {
		return &Error{Key: SLOBudget, Value: values[SLOBudget], Why: "no policy of this provider keeps to a budget"}
	}
	return &Error{Key: SLOBudget, Value: values[SLOBudget], Why: "only the policy " + tuned + " keeps to a budget; set " + InferPolicy + " to " + tuned + ", too"}
}
