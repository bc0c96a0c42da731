package annotation

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/openfaas/faas-provider/types"
)

// setScale reads one key of scaling.
func (in *Inference) setScale(key, value string) (err error) {
	switch key {
	case ScaleMin:
		in.MinReplicas, err = integer(key, value, 0, MaxReplicas, "1")
	case ScaleMax:
		in.MaxReplicas, err = integer(key, value, 0, MaxReplicas, "4")
	case ScaleZero:
		in.ScaleZero, err = boolean(key, value)
	case ScaleZeroDuration:
		in.ZeroDuration, err = duration(key, value, LongestKeepAlive, "15m")
	case ScaleType:
		in.ScaleType = value
		if value != TypeRPS && value != TypeCapacity {
			err = &Error{Key: key, Value: value, Why: "this provider scales by rps, requests per second, or capacity, requests in flight", Example: TypeRPS}
		}
	case ScaleTarget:
		in.ScaleTarget, err = positive(key, value, math.MaxInt32, "50")
	case ScaleFactor:
		_, err = integer(key, value, 0, 100, "20")
	case ScaleTargetProportion:
		_, err = positive(key, value, 1, "0.9")
	}
	return err
}

// positive reads a number above 0 and at most most.
func positive(key, value string, most float64, example string) (float64, error) {
	n, ok := decimal(value)
	if !ok || n <= 0 || n > most {
		return 0, &Error{Key: key, Value: value, Why: fmt.Sprintf("it must be a number above 0 and at most %v", most), Example: example}
	}
	return n, nil
}

func boolean(key, value string) (bool, error) {
	switch value {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, &Error{Key: key, Value: value, Why: "it must be true or false", Example: "true"}
}

// complete fills in what depends on several keys, and checks that they agree.
func (in *Inference) complete(d types.FunctionDeployment, values map[string]string) error {
	if err := in.objective(values); err != nil {
		return err
	}
	if in.IsInference && in.Limits.CPU > 0 && in.Limits.CPU < LeastCPU {
		return &Error{Key: "limits.cpu", Value: d.Limits.CPU, Why: fmt.Sprintf("it must be at least %dm for a model", LeastCPU), Example: "250m"}
	}
	if err := in.shared(d); err != nil {
		return err
	}
	if err := in.affordable(values); err != nil {
		return err
	}
	_, in.PercentileStated = values[SLOPercentile]
	_, least := values[ScaleMin]
	_, most := values[ScaleMax]
	_, zero := values[ScaleZero]
	if !in.IsInference && !most {
		in.MaxReplicas = max(DefaultMaxReplicas, in.MinReplicas)
	}
	// An inference function has nothing to keep unless it is told to.
	if keeps := !in.IsInference || zero && !in.ScaleZero; keeps && !least {
		in.MinReplicas = DefaultMinReplicas
	}
	switch {
	case zero && !in.ScaleZero && in.MinReplicas == 0:
		return &Error{Key: ScaleMin, Value: values[ScaleMin], Why: fmt.Sprintf("it must be at least 1 where %s is false", ScaleZero), Example: "1"}
	case in.MaxReplicas > 0 && in.MinReplicas > in.MaxReplicas:
		return &Error{Key: ScaleMin, Value: values[ScaleMin],
			Why: fmt.Sprintf("it must not be above %s, which is %d", ScaleMax, in.MaxReplicas)}
	}
	if value, ok := values[ScaleTargetProportion]; ok {
		part, _ := decimal(value)
		in.ScaleTarget *= part
	}
	if factor, ok := values[ScaleFactor]; ok && !in.IsInference {
		if n, _ := decimal(factor); n == 0 {
			in.ScaleTarget = 0
		}
	}
	return nil
}

// objective refuses a deployment that says how to infer but not how fast: it
// would be taken for an ordinary function.
func (in *Inference) objective(values map[string]string) error {
	if in.IsInference {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(scale, key) {
			return &Error{Key: SLOLatency, Example: "200ms", Why: fmt.Sprintf("%s is, so the function is to infer; add the annotation with the time within which a request is to be answered", key)}
		}
	}
	return nil
}
