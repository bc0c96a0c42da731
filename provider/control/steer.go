package control

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/steering"
)

// steer multiplies the load that the engine plans for by what the function's requests
// have shown to be missing. The lock is held.
func (c *Controller) steer(now time.Time, fn *function, f *scaling.Function, stats dispatch.Stats) {
	seen := steering.Seen{InTime: stats.InTime, Late: stats.Late, Refused: stats.Refused, Percentile: fn.Inference.Percentile, Full: fn.unplaced != "" || fn.fallsBack, Planned: fn.carried}
	for _, in := range fn.sorted() {
		switch {
		case in.serves():
			seen.Capacity += in.Config.CPU + in.Config.GPU
			seen.Changing = seen.Changing || in.before != nil
		case in.State == cluster.Starting && !in.retiring:
			seen.Changing = true
		}
	}
	before := fn.steering.Level()
	if !fn.steering.Look(now, seen) {
		f.Level = before
		return
	}
	if level := fn.steering.Level(); level > before || level == 1 { // It settles in many small steps.
		c.options.Logger.Info().Str("function", fn.Name).Float64("level", fn.steering.Level()).
			Bool("missed", fn.steering.Troubled()).Msg("capacity follows what requests experience")
	}
	fn.metrics.SetLevel(fn.steering.Level())
	f.Level = fn.steering.Level()
}

// slower is by how much the times of the configs that serve have grown from one list of
// candidates to the next, at the least.
func slower(before, after []capacity.Candidate, instances []*instance) float64 {
	least := 0.0
	exec := func(from []capacity.Candidate, c cluster.Config) time.Duration {
		for _, x := range from {
			if x.Config == c {
				return x.Exec
			}
		}
		return 0
	}
	for _, in := range instances {
		if was, is := exec(before, in.Config), exec(after, in.Config); in.serves() && was > 0 && is > 0 {
			if by := float64(is) / float64(was); least == 0 || by < least {
				least = by
			}
		}
	}
	return max(1, least)
}
