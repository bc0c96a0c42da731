package capacity

import (
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Recall remembers what a function's instances may be and serve, at loads that it
// had. Load is measured ten times a second and hardly ever twice the same; what
// follows from it by queueing hardly changes. So it is computed for loads on a grid
// ([Grained]), and once for each.
type Recall struct {
	options Options
	// slo, percentile and configs are what the answers hold for.
	slo        time.Duration
	percentile float64
	queue      Queue
	configs    []Candidate
	chosen     map[chosenAt][]Choice
	ranges     map[rangeAt]Range
	smaller    map[smallerAt][]Choice
}

// chosenAt, rangeAt and smallerAt are questions.
type (
	chosenAt struct {
		load    float64
		crowded bool
	}
	rangeAt struct {
		artefact   string
		config     cluster.Config
		exec, mean time.Duration
		load       float64
	}
	smallerAt struct {
		artefact string
		config   cluster.Config
		largest  int
		load     float64
	}
)

// maxAnswers bounds how many answers of a kind are remembered.
const maxAnswers = 256

// About forgets what does not hold for such a function.
func (r *Recall) About(o Options, slo time.Duration, percentile float64, queue Queue, configs []Candidate) {
	if r.chosen != nil && r.options == o && r.slo == slo && r.percentile == percentile && r.queue == queue && slices.Equal(r.configs, configs) {
		return
	}
	r.options, r.slo, r.percentile, r.queue, r.configs = o, slo, percentile, queue, append(r.configs[:0], configs...)
	r.chosen, r.ranges, r.smaller = map[chosenAt][]Choice{}, map[rangeAt]Range{}, map[smallerAt][]Choice{}
}

// grain is the part by which loads on the grid differ, 1.1 %.
const grain = 1.0 / 64

// Grained is the least load on the grid that is not below load, nor below one
// request per second: a power of 2^(1/64). For 1000/s it is 2^(638/64) = 1002.1/s.
func Grained(load float64) float64 {
	return math.Exp2(grain * math.Ceil(math.Log2(max(load, SomeLoad))/grain-1e-9))
}

// remember adds an answer.
func remember[Q comparable, A any](all map[Q]A, q Q, a A) A {
	if len(all) >= maxAnswers {
		clear(all)
	}
	all[q] = a
	return a
}

// at is the load that an answer depends on: none for Algorithm 1.
func (r *Recall) at(load float64) float64 {
	if !r.options.Jointly(r.queue) {
		return 0
	}
	return Grained(load)
}

// Choices are what instances of the function may be as a part of a load. They must
// not be changed.
func (r *Recall) Choices(load float64, crowded bool) []Choice {
	q := chosenAt{load: r.at(load), crowded: crowded}
	if a, known := r.chosen[q]; known {
		return a
	}
	return remember(r.chosen, q, r.options.Choices(Demand{
		RPS: load, SLO: r.slo, Percentile: r.percentile, Configs: r.configs, Queue: r.queue, Crowded: crowded,
	}))
}

// Range is the range of an instance that runs with c, at a load.
func (r *Recall) Range(c Candidate, load float64) Range {
	o := r.options
	q := rangeAt{artefact: c.Artefact, config: c.Config, exec: c.Exec, mean: c.Mean, load: r.at(load)}
	if q.load == 0 {
		return o.Bounds(c.Config.Batch, c.Exec, r.slo, r.queue)
	}
	if a, known := r.ranges[q]; known {
		return a
	}
	a := o.Bounds(c.Config.Batch, c.Exec, r.slo, r.queue)
	if a.Up = Serves(c, r.configs, o.AtRandom(r.slo, q.load, r.percentile)); a.Up == 0 && c.Exec > 0 {
		a.Up = min(1/c.Exec.Seconds(), q.load) // Nothing better is known.
	}
	return remember(r.ranges, q, a)
}

// Below are the choices at a load to which the quota of an instance may be lowered that can
// take so large batches.
func (r *Recall) Below(has Candidate, largest int, load float64) []Choice {
	q := smallerAt{artefact: has.Artefact, config: has.Config, largest: largest, load: r.at(load)}
	if a, known := r.smaller[q]; known {
		return a
	}
	return remember(r.smaller, q, InPlace(r.Choices(load, false), has, largest, false))
}
