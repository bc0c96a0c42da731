package asyfunc

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/lab/asyfunc/planning"
	"github.com/faas-infer/faas-infer/papers/batch"
)

// paper is AsyFunc and its ablations.
type paper struct {
	predict planning.Predictor
	// layers is layer-level scaling (Algorithm 2), adaptive is Algorithm 3.
	layers, adaptive bool
	past             []float64
}

func (c *paper) batching() string {
	if c.adaptive {
		return batching.AsyFuncName
	}
	return batch.Name
}

func (c *paper) tick(w *world) {
	if !c.layers {
		return
	}
	bodies, rate := w.bodies(), w.instantaneous()
	for _, b := range w.planner.Release(w.now, rate, bodies) {
		w.unpair(w.instances[b.ID])
	}
	for _, p := range w.planner.Pairs(rate, bodies, w.free()) {
		w.pair(w.instances[p.Body.ID], p.Shadow)
	}
}

func (c *paper) period(w *world, rate float64) {
	if w.now > 0 {
		c.past = append(c.past, rate)
	}
	predicted := c.predict(c.past)
	starts, stops, short := w.planner.Scale(predicted, w.bodies(), w.free())
	if short {
		w.measure.shorts++
	}
	for _, b := range stops {
		w.stop(w.instances[b.ID])
	}
	for _, s := range starts {
		rows, timeout := w.planner.Batch(w.planner.Times(s.Cores)), time.Duration(0)
		if !c.adaptive {
			// A buffer waits as long as the batch that Algorithm 1 plans for allows.
			if _, planned, ok := w.planner.Config(predicted, s.Cores); ok {
				rows = min(rows, planned)
			}
			timeout = max(0, w.slo()-batching.Travel(w.slo())-ms(w.planner.Times(s.Cores)[rows-1]))
		}
		w.body(s.Node, s.Cores, rows, timeout, w.whole())
	}
}

// uniform is BATCH: one config for all instances, chosen before from the load's mean rate, and
// the same thresholds as AsyFunc. As "batch+" it has Algorithm 3.
type uniform struct {
	adaptive    bool
	cores, rows int
	timeout     time.Duration
	chosen      bool
}

func (c *uniform) batching() string {
	if c.adaptive {
		return batching.AsyFuncName
	}
	return batch.Name
}

func (c *uniform) tick(*world) {}

// choose is BATCH's optimiser: the cheapest request by cores and memory of which 95 % are within
// the objective.
func (c *uniform) choose(w *world) {
	s := &w.planner.Settings
	var shares []batch.Share
	for n := 1; n <= s.MaxCores; n++ {
		share := batch.Share{}
		for b, t := range w.planner.Times(n) {
			share.Exec = append(share.Exec, ms(t))
			share.Batches = append(share.Batches, b+1)
		}
		memory, _ := w.planner.Memory(1)
		share.Cost = float64(n) + s.Rho*float64(memory)/(1<<30)
		shares = append(shares, share)
	}
	const quantile = 0.95
	plan, _ := batch.Solve(batch.Objective{Rate: w.load.Mean(), SLO: w.slo() - batching.Travel(w.slo()), Quantile: quantile}, shares)
	best := plan.Best // It is zero if there is nothing to choose from.
	c.cores, c.rows, c.timeout, c.chosen = best.Share+1, max(1, best.Batch), best.Timeout, true
}

// each is what one instance serves in requests per second.
func (c *uniform) each(w *world) float64 {
	return 1000 * float64(c.rows) / w.planner.Times(c.cores)[c.rows-1]
}

func (c *uniform) period(w *world, rate float64) {
	if !c.chosen {
		c.choose(w)
	}
	s := &w.planner.Settings
	bodies := w.bodies()
	n, each := len(bodies), c.each(w)
	switch {
	case n == 0 || rate > s.Alpha*each*float64(n):
		c.start(w, max(1, int(math.Ceil(rate/(s.Alpha*each))))-n)
	case rate < s.Beta*each*float64(n):
		for n > 1 && rate < s.Beta*each*float64(n) && rate <= s.Alpha*each*float64(n-1) {
			n--
			w.stop(w.instances[bodies[n].ID])
		}
	}
}

// start starts instances where there is room.
func (c *uniform) start(w *world, n int) {
	rows := c.rows
	if c.adaptive {
		rows = w.planner.Batch(w.planner.Times(c.cores))
	}
	for range n {
		node := w.roomiest(c.cores)
		if node < 0 {
			w.measure.shorts++
			return
		}
		w.body(node, c.cores, rows, c.timeout, w.whole())
	}
}

// roomiest is the node with the most free cores that has that many, -1 if none has.
func (w *world) roomiest(cores int) int {
	best := -1
	memory, _ := w.planner.Memory(w.planner.Settings.MaxBatch)
	for i, n := range w.nodes {
		if n.Cores >= cores && n.Memory >= memory && (best < 0 || n.Cores > w.nodes[best].Cores) {
			best = i
		}
	}
	return best
}

// figure1 is one of Fig. 1's policies: whole instances of BATCH's config.
type figure1 struct {
	uniform
	// factor times the last period's rate is predicted (LV, k-LV). At 0 instances start
	// when the present rate asks for them (OD, OPT), and go when it did not in a period.
	factor float64
	// instant: an instance starts in no time, and goes when it is not needed (OPT).
	instant bool
	most    int
}

func (c *figure1) batching() string { return batching.AsyFuncName }

// need is the number of instances for a rate.
func (c *figure1) need(w *world, rate float64) int {
	return max(1, int(math.Ceil(rate/c.each(w))))
}

func (c *figure1) tick(w *world) {
	if c.factor > 0 {
		return
	}
	need := c.need(w, w.instantaneous())
	if c.instant {
		// Nobody waits: what waits is one more batch.
		need = max(need, w.busyBodies()+(w.requests.Waiting()+w.planner.Settings.MaxBatch-1)/w.planner.Settings.MaxBatch)
	}
	c.most = max(c.most, need)
	if have := len(w.bodies()); have < need || c.instant {
		c.scale(w, need)
	}
}

func (c *figure1) period(w *world, rate float64) {
	if !c.chosen {
		c.choose(w)
	}
	switch {
	case c.factor > 0:
		c.scale(w, c.need(w, c.factor*rate))
	case !c.instant:
		c.scale(w, max(1, c.most))
		c.most = 0
	}
}

// scale starts or stops instances, idle ones first.
func (c *figure1) scale(w *world, n int) {
	bodies := w.bodies()
	for have := len(bodies); have < n; have++ {
		node, after := w.roomiest(c.cores), w.whole()
		if node < 0 {
			w.measure.shorts++
			return
		}
		if c.instant {
			after = 0
		}
		w.body(node, c.cores, w.planner.Batch(w.planner.Times(c.cores)), 0, after)
	}
	over := len(bodies) - n
	for _, onlyIdle := range []bool{true, false} {
		for _, b := range bodies {
			in := w.instances[b.ID]
			if over <= 0 || in == nil || &in.Body != b {
				continue
			}
			if in.ready != nil {
				if _, rests := in.ready.IdleSince(); onlyIdle && !rests {
					continue
				}
			}
			w.stop(in)
			over--
		}
	}
}

// busyBodies is the number of bodies that execute.
func (w *world) busyBodies() (n int) {
	for _, in := range w.instances {
		if in != nil && in.shadow == nil && in.ready != nil {
			if _, rests := in.ready.IdleSince(); !rests {
				n++
			}
		}
	}
	return n
}
