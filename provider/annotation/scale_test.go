package annotation

import (
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
)

func TestParseScale(t *testing.T) {
	type bounds struct {
		least, most int
		zero        bool
		after       time.Duration
		by          string
		target      float64
	}
	for _, c := range []struct {
		name   string
		labels map[string]string
		want   bounds
	}{
		{"an ordinary function has one instance, as in the rest of OpenFaaS", nil, bounds{1, 20, false, 15 * time.Minute, "rps", 5}},
		{"bounds", map[string]string{ScaleMin: "2", ScaleMax: "2"}, bounds{2, 2, false, 15 * time.Minute, "rps", 5}},
		{"a minimum above the default maximum raises it", map[string]string{ScaleMin: "25"}, bounds{25, 25, false, 15 * time.Minute, "rps", 5}},
		{"to zero", map[string]string{ScaleZero: "true", ScaleZeroDuration: "30s"}, bounds{1, 20, true, 30 * time.Second, "rps", 5}},
		{"none at all until there is a request", map[string]string{ScaleMin: "0"}, bounds{0, 20, false, 15 * time.Minute, "rps", 5}},
		{"by requests in flight", map[string]string{ScaleType: "capacity", ScaleTarget: "10", ScaleTargetProportion: "0.5"}, bounds{1, 20, false, 15 * time.Minute, "capacity", 5}},
		{"an inference function has none", map[string]string{SLOLatency: "1s"}, bounds{0, 0, false, 15 * time.Minute, "rps", 5}},
		{"unless it may not go to zero", map[string]string{SLOLatency: "1s", ScaleZero: "false"}, bounds{1, 0, false, 15 * time.Minute, "rps", 5}},
		{"how much at a time is not asked", map[string]string{ScaleFactor: "20"}, bounds{1, 20, false, 15 * time.Minute, "rps", 5}},
		{"but with 0, load changes nothing", map[string]string{ScaleFactor: "0"}, bounds{1, 20, false, 15 * time.Minute, "rps", 0}},
		{"keys of other providers are left to them", map[string]string{"com.openfaas.scale.down.window": "1m"}, bounds{1, 20, false, 15 * time.Minute, "rps", 5}},
	} {
		in, err := Parse(types.FunctionDeployment{Service: "f", Image: "functions/alpine", Labels: &c.labels})
		got := bounds{in.MinReplicas, in.MaxReplicas, in.ScaleZero, in.ZeroDuration, in.ScaleType, in.ScaleTarget}
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
}

func TestParseTakesSmallLimitsOfAProgram(t *testing.T) {
	in, err := Parse(types.FunctionDeployment{Service: "f", Image: "functions/alpine", Limits: &types.FunctionResources{CPU: "50m", Memory: "5Mi"}})
	if err != nil || in.Limits.CPU != 50 || in.Limits.Memory != 5<<20 {
		t.Errorf("Parse = %+v, %v", in.Limits, err)
	}
}
