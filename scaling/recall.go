package scaling

import (
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// recall remembers what a function's instances may be and serve, at loads that it
// had. Load is measured ten times a second and hardly ever twice the same; what
// follows from it by queueing hardly changes. So it is computed for loads on a grid
// ([grained]), and once for each.
type recall struct {
	// slo, percentile and configs are what the answers hold for.
	slo        time.Duration
	percentile float64
	configs    []Candidate
	chosen     map[chosenAt][]choice
	ranges     map[rangeAt]Range
	smaller    map[smallerAt][]choice
}

// chosenAt, rangeAt and smallerAt are questions.
type (
	chosenAt struct {
		load    float64
		crowded bool
	}
	rangeAt struct {
		config     cluster.Config
		exec, mean time.Duration
		load       float64
	}
	smallerAt struct {
		config cluster.Config
		load   float64
	}
)

// mostAnswers bounds how many answers of a kind are remembered.
const mostAnswers = 256

// about forgets what does not hold for f.
func (r *recall) about(f *Function) {
	if r.chosen != nil && r.slo == f.SLO && r.percentile == f.Percentile && slices.Equal(r.configs, f.Configs) {
		return
	}
	r.slo, r.percentile, r.configs = f.SLO, f.Percentile, append(r.configs[:0], f.Configs...)
	r.chosen, r.ranges, r.smaller = map[chosenAt][]choice{}, map[rangeAt]Range{}, map[smallerAt][]choice{}
}

// grain is the part by which loads on the grid differ, 1.1 %.
const grain = 1.0 / 64

// grained is the least load on the grid that is not below load, nor below one
// request per second: a power of 2^(1/64). For 1000/s it is 2^(638/64) = 1002.1/s.
func grained(load float64) float64 {
	return math.Exp2(grain * math.Ceil(math.Log2(max(load, someLoad))/grain-1e-9))
}

// remember adds an answer.
func remember[Q comparable, A any](all map[Q]A, q Q, a A) A {
	if len(all) >= mostAnswers {
		clear(all)
	}
	all[q] = a
	return a
}

// choices are what instances of the function may be, as a part of its load, or of
// rps if that is more. They must not be changed.
func (v *view) choices(rps float64, crowded bool) []choice {
	q := chosenAt{crowded: crowded}
	if v.joint {
		q.load = grained(max(v.demand, rps))
	}
	all := v.memory.chosen
	if a, known := all[q]; known {
		return a
	}
	d := v.wanted(rps)
	d.crowded = crowded
	return remember(all, q, v.engine.settings.choices(d))
}

// recalled is the range of an instance at a load.
func (v *view) recalled(in *Running, load float64) Range {
	o := v.engine.settings.Options
	if !v.joint {
		return o.bounds(in.Config.Batch, in.Exec, v.SLO, v.Queue)
	}
	q := rangeAt{config: in.Config, exec: in.Exec, mean: in.Mean, load: grained(load)}
	all := v.memory.ranges
	if a, known := all[q]; known {
		return a
	}
	r := o.bounds(in.Config.Batch, in.Exec, v.SLO, v.Queue)
	if r.Up = serves(in, v.Configs, o.atRandom(v.SLO, q.load, v.Percentile)); r.Up == 0 && in.Exec > 0 {
		r.Up = min(1/in.Exec.Seconds(), q.load) // Nothing better is known.
	}
	return remember(all, q, r)
}

// below are the choices at the peak to which an instance's quota may be lowered.
func (v *view) below(config cluster.Config) []choice {
	q := smallerAt{config: config}
	if v.joint {
		q.load = grained(v.peak)
	}
	all := v.memory.smaller
	if a, known := all[q]; known {
		return a
	}
	return remember(all, q, others(v.choices(v.peak, false), config, false))
}
