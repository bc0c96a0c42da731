package capacity

import (
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Recall caches a function's choices and ranges by load. The load is measured ten times a second
// and hardly ever repeats exactly, but the results of queueing hardly change with it. So Recall
// calculates them once for each load on a grid ([Grained]).
type Recall struct {
	options Options
	// slo, percentile, queue and configs are those for which the answers are valid.
	slo        time.Duration
	percentile float64
	queue      Queue
	configs    []Candidate
	// list is the first of the caller's configs.
	list    *Candidate
	chosen  map[chosenAt][]Choice
	ranges  map[rangeAt]Range
	smaller map[smallerAt][]Choice
}

// chosenAt, rangeAt and smallerAt are the caches' keys.
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
		strict     bool
	}
	smallerAt struct {
		artefact string
		config   cluster.Config
		largest  int
		load     float64
	}
)

// maxAnswers bounds the size of each cache.
const maxAnswers = 256

// About clears the caches if they are not for such a function. The caller must not change a list of
// configs later: of thousands of functions, few have another list than at the last pass.
func (r *Recall) About(o Options, slo time.Duration, percentile float64, queue Queue, configs []Candidate) {
	same := len(configs) > 0 && len(configs) == len(r.configs) && r.list == &configs[0]
	if r.list = nil; len(configs) > 0 {
		r.list = &configs[0]
	}
	if r.chosen != nil && r.options == o && r.slo == slo && r.percentile == percentile && r.queue == queue && (same || slices.Equal(r.configs, configs)) {
		return
	}
	r.options, r.slo, r.percentile, r.queue, r.configs = o, slo, percentile, queue, append(r.configs[:0], configs...)
	r.chosen, r.ranges, r.smaller = map[chosenAt][]Choice{}, map[rangeAt]Range{}, map[smallerAt][]Choice{}
}

// grain is the grid's step in log₂; neighbouring loads differ by 1.1 %.
const grain = 1.0 / 64

// Grained is the least load on the grid that is not below load or one request per second. The
// grid has the powers of 2^(1/64). For 1000/s it is 2^(638/64) = 1002.1/s.
func Grained(load float64) float64 {
	return math.Exp2(grain * math.Ceil(math.Log2(max(load, SomeLoad))/grain-1e-9))
}

// remember adds an answer to a cache and returns it.
func remember[Q comparable, A any](all map[Q]A, q Q, a A) A {
	if len(all) >= maxAnswers {
		clear(all)
	}
	all[q] = a
	return a
}

// at is the load on which an answer depends. It is 0 for Algorithm 1, which does not depend on
// it.
func (r *Recall) at(load float64) float64 {
	if !r.options.Jointly(r.queue) {
		return 0
	}
	return Grained(load)
}

// Choices returns the possible instances of the function at a load. The caller must not change
// them.
func (r *Recall) Choices(load float64, crowded bool) []Choice {
	q := chosenAt{load: r.at(load), crowded: crowded}
	if a, known := r.chosen[q]; known {
		return a
	}
	return remember(r.chosen, q, r.options.Choices(Demand{
		RPS: load, SLO: r.slo, Percentile: r.percentile, Configs: r.configs, Queue: r.queue, Crowded: crowded,
	}))
}

// Range returns the range of an instance that runs with c, at a load. It is what the
// instance serves late if no batch is in time, because it is there anyway.
func (r *Recall) Range(c Candidate, load float64) Range { return r.rangeOf(c, load, false) }

// InTime is Range without what is served late: nothing if no batch is in time.
func (r *Recall) InTime(c Candidate, load float64) Range { return r.rangeOf(c, load, true) }

func (r *Recall) rangeOf(c Candidate, load float64, strict bool) Range {
	o := r.options
	q := rangeAt{artefact: c.Artefact, config: c.Config, exec: c.Exec, mean: c.Mean, load: r.at(load), strict: strict}
	if q.load == 0 {
		if strict && !o.Meets(c, r.slo) {
			return Range{}
		}
		return o.Bounds(c.Config, c.Exec, r.slo, r.queue)
	}
	if a, known := r.ranges[q]; known {
		return a
	}
	a := o.Bounds(c.Config, c.Exec, r.slo, r.queue)
	if a.Up = Serves(c, r.configs, o.AtRandom(r.slo, q.load, r.percentile)); a.Up == 0 && c.Exec > 0 && !strict {
		a.Up = min(float64(c.Config.Streams())/c.Exec.Seconds(), q.load) // No better estimate exists.
	}
	return remember(r.ranges, q, a)
}

// Below returns the choices at a load to which an instance's quota may be lowered. largest is the
// largest batch that the instance can take.
func (r *Recall) Below(has Candidate, largest int, load float64) []Choice {
	q := smallerAt{artefact: has.Artefact, config: has.Config, largest: largest, load: r.at(load)}
	if a, known := r.smaller[q]; known {
		return a
	}
	return remember(r.smaller, q, InPlace(r.Choices(load, false), has, largest, false))
}
