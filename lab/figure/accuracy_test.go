package figure

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/lab/scenario"
	"github.com/faas-infer/faas-infer/variant"
)

// Functions that prefer accuracy answer all of a load of which their most accurate variants answer
// some 60 %, nearly as accurately as the machines allow, and never below their floors: 71, 76 and
// 69.5 %, of which vgg13 with 69.9 % is the lowest that is left.
func TestAccuracyScaling(t *testing.T) {
	out := simulated(t, "accuracy-scaling", scenario.Overrides{Duration: 14 * time.Minute})
	between(t, out, "accuracy_scaling.served_ratio", 1.4, 2)
	between(t, out, "accuracy_scaling.within_slo_pct", 99, 100)
	between(t, out, "accuracy_scaling.share_of_bound", 0.96, 1)
	between(t, out, "accuracy_scaling.share_of_rise", 0.3, 1)
	between(t, out, "accuracy_scaling.lowest", 69.9, 69.9)
}

// The example of optimum's comment, and machines that carry all with the best or hardly anything.
func TestOptimum(t *testing.T) {
	v := func(accuracy, cost float64) variant.Variant {
		return variant.Variant{Accuracy: accuracy, RPS: 1, Cost: cost, Latency: time.Second}
	}
	late := v(99, 0.1)
	late.Latency = time.Minute
	functions := []scenario.Function{{SLO: 2 * time.Second, Variants: []variant.Variant{v(80, 3), v(70, 1), late}}}
	for machines, want := range map[float64]float64{20: 750, 30: 800, 100: 800, 10: 700} {
		if got := optimum(functions, []float64{10}, machines); math.Abs(got-want) > 0.01 {
			t.Errorf("machines for %v: %v, want %v", machines, got, want)
		}
	}
	if got := cheapest(functions, []float64{10}); got != 700 {
		t.Errorf("the cheapest: %v, want 700", got)
	}
}
