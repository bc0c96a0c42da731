package annotation

import "github.com/faas-infer/faas-infer/batching"

// SLOBudget is the maximum average cost of a request, in seconds of execution times 0.6
// for each core and 1 for each % of a GPU: a number above 0; no bound if absent. Only the
// policy [batching.BatchName] accepts it. That policy then looks for the fastest config
// within the budget (BATCH Eq. 3), and not for the cheapest that meets SLOLatency.
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
	if in.Budget > 0 && !batching.Of(in.Policy).Tuned {
		return &Error{Key: SLOBudget, Value: values[SLOBudget], Why: "only the policy " + batching.BatchName + " keeps to a budget; set " + InferPolicy + " to " + batching.BatchName + ", too"}
	}
	return nil
}
