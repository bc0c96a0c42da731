// Package precision measures variants of a model that differ in precision, behind real
// providers: how much more an int8 model serves than its original ([RunServe]), and whether
// requests are late or lost when a function changes from one to the other under load
// ([RunSwitch]). The models are those of the zoo, quantised as "faas-infer model variants"
// does; their accuracies are made up.
package precision

import (
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/profiler"
)

// rates are rates in requests/s by variant, one for each round.
type rates map[string][]float64

// ratio is the median rate of int8 over that of fp32.
func (r rates) ratio() float64 { return rig.Median(r[quantised]) / rig.Median(r[original]) }

// aim is the part of the engine's ratio that the provider must reach.
const aim = 0.75

// highest returns the highest rate of batches on one thread, in requests/s, 0 if there is none.
// A batch may take half the objective: its requests wait for the one before. Of batches of 1, 2
// and 4 in 10, 16 and 30 ms with an objective of 50 ms, it is 2 in 16 ms: 125/s.
func highest(of []profiler.Measurement, objective time.Duration) (rate float64) {
	for _, m := range of {
		if took := time.Duration(m.Median * float64(time.Microsecond)); m.Threads == 1 && took > 0 && took <= objective/2 {
			rate = max(rate, float64(m.Batch)/took.Seconds())
		}
	}
	return rate
}

// add adds a model's figures to a report.
func add(r *report.Report, model, way string, engine, ours rates) {
	for _, variant := range []string{original, quantised} {
		r.Add("rps."+model+"."+variant, rig.Median(ours[variant]), "requests/s", fmt.Sprintf("median of %.4g within %v; the engine alone %.4g", ours[variant], setups[model].objective, rig.Median(engine[variant])))
	}
	r.Add("rps_ratio."+model+".int8_over_fp32", ours.ratio(), "ratio", "one instance with a core, through the provider")
	r.Add("engine_ratio."+model, engine.ratio(), "ratio", "in the engine without a server, in batches that take half the objective at most; int8 by the "+way+" way")
	r.Add("share_of_engine."+model, ours.ratio()/engine.ratio(), "ratio", fmt.Sprintf("to reach: at least %v", aim))
}
