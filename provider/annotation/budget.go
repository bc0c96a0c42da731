package annotation

import "github.com/faas-infer/faas-infer/batching"

// SLOBudget is the most that a request may cost on average, in seconds of execution
// times 0.6 for each core and 1 for each % of a GPU: a number above 0; no bound if
// absent. With it the policy [batching.BatchName], which alone knows of budgets, does
// not look for the cheapest config that meets SLOLatency, but for the fastest that the
// budget buys (BATCH Eq. 3).
const SLOBudget = "com.openfaas.slo.budget"

func budget(key, value string) (float64, error) {
	b, ok := decimal(value)
	if !ok || b <= 0 {
		return 0, &Error{Key: key, Value: value, Why: "it must be a number above 0, of seconds of execution times 0.6 for each core", Example: "0.05"}
	}
	return b, nil
}

// affordable checks that a budget is for a policy that knows of budgets.
func (in *Inference) affordable(values map[string]string) error {
	if in.Budget > 0 && !batching.Of(in.Policy).Tuned {
		return &Error{Key: SLOBudget, Value: values[SLOBudget], Why: "only the policy " + batching.BatchName + " keeps to a budget: set " + InferPolicy + " to it, too"}
	}
	return nil
}
