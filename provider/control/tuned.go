package control

import (
	"slices"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/policy"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/scaling"
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
	tuner *policy.Tuner
	of    policy.Function
	list  []scaling.Candidate
}

// mostNoted bounds came, for a controller that does not get to look.
const mostNoted = 1 << 16

// Add implements [batching.Policy].
func (t *tuned) Add(now time.Time, r batching.Request) {
	t.mu.Lock()
	if len(t.came) < mostNoted {
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
// instance is exchanged for nobody. Requests come in meanwhile.
func (t *tuned) choose(now time.Time, rate float64, of policy.Function, times policy.Times) (list []scaling.Candidate, changed bool) {
	if t.tuner == nil || t.of != of {
		system, err := policy.ByName(policy.Batch)
		if err != nil {
			return nil, false
		}
		t.tuner, t.of, t.list = system.Tuner(of, times), of, nil
	}
	for _, at := range t.noted() {
		t.tuner.Arrived(at)
	}
	if rate <= 0 && len(t.list) > 0 {
		return t.list, false
	}
	if list, _ = t.tuner.Candidates(now, rate); len(list) == 0 {
		return nil, false
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
func promisedOf(f *provider.Function) policy.Function {
	in := f.Inference
	return policy.Function{Name: f.Name, SLO: in.SLO, Percentile: in.Percentile, MaxBatch: in.MaxBatch, Budget: in.Budget}
}

// corrected are a function's times as they are now. The lock is held when they are
// asked for.
type corrected struct {
	controller *Controller
	function   *function
}

// Configs implements policy.Times.
func (t corrected) Configs() []cluster.Config {
	var all []cluster.Config
	for _, c := range t.function.candidates {
		all = append(all, c.Config)
	}
	return all
}

// Exec implements policy.Times.
func (t corrected) Exec(c cluster.Config, b int) (time.Duration, bool) {
	table := t.controller.table(t.function, c.Batch, c.CPU)
	if b < 1 || b > len(table) {
		return 0, false
	}
	return table[b-1], true
}

// Spread implements policy.Times: the times are those of the promised percentile.
func (t corrected) Spread() float64 { return 0 }

// tune leaves the engine only what the optimiser chose for the load that f has, and
// has instances replaced that have other resources, or take smaller batches. The lock
// is held.
func (c *Controller) tune(now time.Time, fn *function, f *scaling.Function) {
	if fn.profile == nil || len(f.Configs) == 0 {
		return
	}
	list, changed := fn.tuned.choose(now, f.Rate, promisedOf(fn.Function), corrected{c, fn})
	if len(list) == 0 {
		return
	}
	f.Configs = list
	for i, in := range fn.sorted() {
		r := &f.Instances[i]
		if in.Config.CPU != list[0].Config.CPU || in.batch < list[0].Config.Batch {
			r.Revision = 0
		} else {
			r.Config.Batch = list[0].Config.Batch
			r.Exec, r.Mean = in.table[r.Config.Batch-1], 0
		}
		if changed && in.serves() {
			in.up(f.Queue)
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
