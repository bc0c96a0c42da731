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

// tuned is a batching policy of one function that records arrivals, and whose batch size and timeout a
// tuner chooses. All its instances have one config. The tuner is that of the system with the policy's name.
type tuned struct {
	batching.Policy
	name string
	mu   sync.Mutex
	// arrivals are the times of requests since the controller's last look. choice and
	// timeout are the optimiser's latest choice.
	arrivals []time.Time
	choice   cluster.Config
	timeout  time.Duration
	// tuner was made for the function in tunedFor; list are the candidates that it
	// considered last. Only the controller uses them.
	tuner    systems.Tuner
	tunedFor systems.Function
	list     []capacity.Candidate
	// search runs until found is closed; it is nil if none runs.
	search systems.Search
	found  chan struct{}
}

// maxArrivals bounds arrivals, in case the controller does not look for long.
const maxArrivals = 1 << 16

// Add implements [batching.Policy].
func (t *tuned) Add(now time.Time, r batching.Request) {
	t.mu.Lock()
	if len(t.arrivals) < maxArrivals {
		t.arrivals = append(t.arrivals, now)
	}
	t.mu.Unlock()
	t.Policy.Add(now, r)
}

// takeArrivals returns the recorded arrivals and clears them.
func (t *tuned) takeArrivals() []time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	arrivals := t.arrivals
	t.arrivals = nil
	return arrivals
}

// choose returns the candidates that the optimiser has chosen for a load, the best first, and
// whether the choice has changed. Without load the choice stays: replacing instances would
// help nobody. The first choice is small and is made at once. Later ones run in the
// background, and a later look takes their result; requests arrive meanwhile.
func (t *tuned) choose(now time.Time, rate float64, of systems.Function, times systems.Times, room systems.Room) (list []capacity.Candidate, changed bool) {
	if t.tuner == nil || t.tunedFor != of {
		system, err := systems.ByName(t.name)
		if err != nil {
			return nil, false
		}
		t.tuner, t.tunedFor, t.list, t.search = system.Tuner(of, times), of, nil, nil
	}
	if t.tuner == nil {
		return nil, false
	}
	for _, at := range t.takeArrivals() {
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
	go func(s systems.Search) {
		defer close(found)
		s.Run()
	}(t.search)
	return t.list, false
}

// take applies the result of the finished search.
func (t *tuned) take() (list []capacity.Candidate, changed bool) {
	list, _ = t.search.Take()
	t.search = nil
	if len(list) == 0 {
		return t.list, false
	}
	t.list = list
	choice, timeout := list[0].Config, list[0].Timeout
	t.mu.Lock()
	defer t.mu.Unlock()
	changed = choice != t.choice || timeout != t.timeout
	t.choice, t.timeout = choice, timeout
	return list, changed
}

// promisedOf returns the function as the optimiser sees it.
func promisedOf(f *provider.Function) systems.Function {
	in := f.Inference
	return systems.Function{Name: f.Name, SLO: in.SLO, Percentile: in.Percentile, MaxBatch: in.MaxBatch, Stated: string(in.Stated)}
}

// tune restricts the engine to the optimiser's choice for f's load. It makes the engine
// replace instances with other resources or smaller batches. While there is load, the
// engine must keep as many instances as the optimiser says. The lock is held.
func (fn *function) tune(now time.Time, f *scaling.Function, nodes []cluster.Node) {
	if !fn.measured() || len(f.Configs) == 0 {
		return
	}
	// A tuner chooses for one model: the first that is accurate enough.
	of := fn.artefacts[slices.IndexFunc(fn.artefacts, fn.accurate)]
	list, changed := fn.tuned.choose(now, f.Rate, promisedOf(fn.Function), corrected{fn, of}, fn.room(f, nodes))
	if len(list) == 0 {
		return
	}
	f.Configs = of.named(slices.Clone(list))
	if f.Rate > 0 {
		f.Min = max(f.Min, fn.tuned.tuner.Instances())
	}
	for i, in := range fn.Sorted() {
		r := &f.Instances[i]
		if in.Config.CPU != list[0].Config.CPU || in.batch < list[0].Config.Batch {
			r.Replace()
		} else {
			r.Config.Batch = list[0].Config.Batch
			r.Exec, r.Mean = in.table[r.Config.Batch-1], 0
		}
		if changed && in.serves() {
			in.tell()
		}
	}
}

// set limits an instance's batches to the chosen size and sets the chosen timeout.
func (t *tuned) set(d *batching.Instance) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.choice.Batch > 0 && t.choice.Batch <= d.Config.Batch {
		d.Config.Batch = t.choice.Batch
		d.Exec = slices.Clone(d.Exec[:t.choice.Batch])
		d.Timeout = t.timeout
	}
}
