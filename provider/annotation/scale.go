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
			err = &Error{Key: key, Value: value, Why: "it must be rps (requests per second) or capacity (requests in flight)", Example: TypeRPS}
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

// positive reads a number above 0 and at most maximum.
func positive(key, value string, maximum float64, example string) (float64, error) {
	n, ok := ParseDecimal(value)
	if !ok || n <= 0 || n > maximum {
		return 0, &Error{Key: key, Value: value, Why: fmt.Sprintf("it must be a number above 0 and at most %v", maximum), Example: example}
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

// complete sets the fields that depend on several keys, and checks that the keys agree.
func (in *Inference) complete(d types.FunctionDeployment, values map[string]string) error {
	if err := in.checkSource(); err != nil {
		return err
	}
	if err := in.requireSLO(values); err != nil {
		return err
	}
	if err := in.Canary.complete(values, in.IsInference); err != nil {
		return err
	}
	if in.IsInference && in.Limits.CPU > 0 && in.Limits.CPU < LeastCPU {
		return &Error{Key: "limits.cpu", Value: d.Limits.CPU, Why: fmt.Sprintf("it must be at least %dm for a model", LeastCPU), Example: "250m"}
	}
	if in.IsInference && in.Limits.Memory > 0 && in.Limits.Memory < LeastModelMemory {
		return tooLittleMemory(d, LeastModelMemory, "an instance of a model takes beside the weights")
	}
	if err := in.refuseWholeGPUs(d); err != nil {
		return err
	}
	if err := in.agree(values); err != nil {
		return err
	}
	if in.Shortest > in.SLO {
		return &Error{Key: SLOLatencyMin, Value: values[SLOLatencyMin], Why: fmt.Sprintf("it must be at most %s, which is %v", SLOLatency, in.SLO), Example: in.SLO.String()}
	}
	if in.Shortest == 0 {
		in.Shortest = in.SLO
	}
	if err := in.checkPartition(values); err != nil {
		return err
	}
	if err := in.checkShapes(); err != nil {
		return err
	}
	_, in.PercentileStated = values[SLOPercentile]
	_, minStated := values[ScaleMin]
	_, maxStated := values[ScaleMax]
	_, zero := values[ScaleZero]
	if !in.IsInference && !maxStated {
		in.MaxReplicas = max(DefaultMaxReplicas, in.MinReplicas)
	}
	// An inference function keeps no instance unless the deployment asks for one.
	if keeps := !in.IsInference || zero && !in.ScaleZero; keeps && !minStated {
		in.MinReplicas = DefaultMinReplicas
	}
	switch {
	case zero && !in.ScaleZero && in.MinReplicas == 0:
		return &Error{Key: ScaleMin, Value: values[ScaleMin], Why: fmt.Sprintf("it must be at least 1 if %s is false", ScaleZero), Example: "1"}
	case in.MaxReplicas > 0 && in.MinReplicas > in.MaxReplicas:
		return &Error{Key: ScaleMin, Value: values[ScaleMin],
			Why: fmt.Sprintf("it must not be above %s, which is %d", ScaleMax, in.MaxReplicas)}
	}
	if value, ok := values[ScaleTargetProportion]; ok {
		part, _ := ParseDecimal(value)
		in.ScaleTarget *= part
	}
	if factor, ok := values[ScaleFactor]; ok && !in.IsInference {
		if n, _ := ParseDecimal(factor); n == 0 {
			in.ScaleTarget = 0
		}
	}
	return nil
}

// requireSLO refuses a deployment with keys of inference but without SLOLatency.
// Otherwise it would be deployed as an ordinary function.
func (in *Inference) requireSLO(values map[string]string) error {
	if in.IsInference {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(scaleKeys, key) && !OfCallers(key) && !CanarySettings(key) {
			return &Error{Key: SLOLatency, Example: "200ms", Why: fmt.Sprintf("%s needs it; add the annotation with the longest time from a request's arrival to its answer", key)}
		}
	}
	return nil
}
