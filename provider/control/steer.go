package control

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/steering"
)

// steer sets the level by which the engine multiplies the function's load. It rises while
// too many requests miss the objective. The lock is held.
func (fn *function) steer(now time.Time, f *scaling.Function, stats dispatch.Stats) {
	seen := steering.Seen{
		InTime: stats.InTime, Late: stats.Late, Refused: stats.Refused, Slow: stats.Slow, Percentile: fn.Inference.Percentile,
		Full: fn.Unplaced != "" || fn.fallsBack, Rate: f.Rate, Planned: fn.carried,
	}
	for _, in := range fn.Sorted() {
		seen.Start = max(seen.Start, in.Loading)
		switch {
		case in.serves():
			seen.Capacity += in.Config.CPU + in.Config.GPU
			seen.Changing = seen.Changing || in.previousConfig != nil
		case in.State == cluster.Starting && !in.Retiring:
			seen.Changing = true
		}
	}
	before := fn.steering.Level()
	changed := fn.steering.Look(now, seen)
	f.Level, f.Credit = fn.steering.Level(), fn.steering.Credit()
	if !changed {
		return
	}
	if level := fn.steering.Level(); level > before || level == 1 { // It falls in many small steps; only the last is logged.
		fn.log.Info().Float64("level", fn.steering.Level()).
			Bool("missed", fn.steering.Troubled()).Msg("changed the level of capacity by the share of missed objectives")
		decided(fn, now, decisions.Steer, decisions.Fields{Level: level, Load: f.Rate})
	}
	fn.Metrics.SetLevel(fn.steering.Level())
}
