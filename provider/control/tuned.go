package control

import (
	"slices"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// tuned is BATCH's buffer of one function: a batching policy that notes when each
// request comes, and is set again as the arrivals change (BATCH §III). Its instances
// are all alike.
type tuned struct {
	batching.Policy
	mu sync.Mutex
	// came is when requests came since the controller looked; choice is what the
	// optimiser chose last, and timeout with it.
	came    []time.Time
	choice  cluster.Config
	timeout time.Duration
	// tuner was made for of, and list is what it considered last. They are the
	// controller's alone.
	tuner *systems.Tuner
	of    systems.Function
	list  []capacity.Candidate
	// search is under way until found is closed; nil if none is.
	search *systems.Search
	found  chan struct{}
}

// maxNoted bounds came, for a controller that does not get to look.
const maxNoted = 1 << 16

// Add implements [batching.Policy].
func (t *tuned) Add(now time.Time, r batching.Request) {
	t.mu.Lock()
	if len(t.came) < maxNoted {
		t.came = append(t.came, now)
	}
	t.mu.Unlock()
	t.Policy.Add(now, r)
}

// noted takes what was noted.
func (t *tuned) noted() []time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	came := t.came
	t.came = nil
	return came
}

// choose is what the buffer and its instances are to be set to under a load, and
// whether that is something else than before. Without a load it stays as it is: no
// instance is exchanged for nobody. Requests come in meanwhile. But for the first
// choice, which is of little, nobody waits for the optimiser: what it has found is taken
// at the next look.
func (t *tuned) choose(now time.Time, rate float64, of systems.Function, times systems.Times, room systems.Room) (list []capacity.Candidate, changed bool) {
	if t.tuner == nil || t.of != of {
		system, err := systems.ByName(systems.Batch)
		if err != nil {
			return nil, false
		}
		t.tuner, t.of, t.list, t.search = system.Tuner(of, times), of, nil, nil
	}
	for _, at := range t.noted() {
		t.tuner.Arrived(at)
	}
	if t.search != nil {
		select {
		case <-t.found:
			return t.take()
		default:
			return t.list, false
		}
	}
	if rate <= 0 && len(t.list) > 0 {
		return t.list, false
	}
	t.tuner.Within(room)
	if t.search = t.tuner.Begin(now, rate); t.search == nil {
		return t.list, false
	}
	if len(t.list) == 0 {
		t.search.Run()
		return t.take()
	}
	found := make(chan struct{})
	t.found = found
	go func(s *systems.Search) {
		defer close(found)
		s.Run()
	}(t.search)
	return t.list, false
}

// take takes in what the search has found.
func (t *tuned) take() (list []capacity.Candidate, changed bool) {
	list, _ = t.tuner.Take(t.search)
	t.search = nil
	if len(list) == 0 {
		return t.list, false
	}
	t.list = list
	choice, timeout := list[0].Config, t.tuner.Timeout(list[0].Config)
	t.mu.Lock()
	defer t.mu.Unlock()
	changed = choice != t.choice || timeout != t.timeout
	t.choice, t.timeout = choice, timeout
	return list, changed
}

// promisedOf is what the policy must know of a function.
func promisedOf(f *provider.Function) systems.Function {
	in := f.Inference
	return systems.Function{Name: f.Name, SLO: in.SLO, Percentile: in.Percentile, MaxBatch: in.MaxBatch, Budget: in.Budget}
}

// tune leaves the engine only what the optimiser chose for the load that f has, and
// has instances replaced that have other resources, or take smaller batches; and has it
// keep as many as these are to be while there is a load. The lock is held.
func (fn *function) tune(now time.Time, f *scaling.Function, nodes []cluster.Node) {
	if !fn.measured() || len(f.Configs) == 0 {
		return
	}
	// BATCH's buffer is for one model.
	list, changed := fn.tuned.choose(now, f.Rate, promisedOf(fn.Function), corrected{fn, fn.artefacts[0]}, fn.room(f, nodes))
	if len(list) == 0 {
		return
	}
	f.Configs = fn.artefacts[0].named(slices.Clone(list))
	if f.Rate > 0 {
		f.Min = max(f.Min, fn.tuned.tuner.Instances())
	}
	for i, in := range fn.Sorted() {
		r := &f.Instances[i]
		if in.Config.CPU != list[0].Config.CPU || in.batch < list[0].Config.Batch {
			r.Revision = 0
		} else {
			r.Config.Batch = list[0].Config.Batch
			r.Exec, r.Mean = in.table[r.Config.Batch-1], 0
		}
		if changed && in.serves() {
			in.tell()
		}
	}
}

// set is what the buffer is told of an instance: no larger batches than were chosen,
// and the timeout with them.
func (t *tuned) set(d *batching.Instance) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.choice.Batch > 0 && t.choice.Batch <= d.Config.Batch {
		d.Config.Batch = t.choice.Batch
		d.Exec = slices.Clone(d.Exec[:t.choice.Batch])
		d.Timeout = t.timeout
	}
}
