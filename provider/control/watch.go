package control

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// tally is what an instance's executions on its present share took, by batch size.
type tally struct {
	share      profiler.Share
	executions uint64
	// sizes has the executions of batches of 1, 2, … requests. Old ones count less and less: took, the time of all, is
	// halved when it exceeds tallied.
	sizes []sizeTally
	took  time.Duration
}

type sizeTally struct {
	executions float64
	took       time.Duration
}

// tallied is the time of executions of which a tally remembers half: it follows what the instance does now.
const tallied = 10 * time.Second

// add counts an execution of at most largest requests on a share.
func (t *tally) add(e dispatch.Executed, share profiler.Share, largest int) {
	if e.Size < 1 || e.Size > largest {
		return
	}
	if t.share != share {
		*t = tally{share: share}
	}
	if e.Size > len(t.sizes) {
		t.sizes = append(t.sizes, make([]sizeTally, e.Size-len(t.sizes))...)
	}
	if t.took > tallied {
		t.took /= 2
		for i := range t.sizes {
			t.sizes[i].executions /= 2
			t.sizes[i].took /= 2
		}
	}
	t.executions++
	t.took += e.Exec
	t.sizes[e.Size-1].executions++
	t.sizes[e.Size-1].took += e.Exec
}

// compare returns the mean batch size of the executions, what they were predicted to take by table and what they took, on
// average; zeros if there were none. table has the times of batches of 1, 2, … requests.
func (t *tally) compare(table []time.Duration) (size float64, predicted, seen time.Duration) {
	var n, requests, expected, took float64
	for i, x := range t.sizes[:min(len(t.sizes), len(table))] {
		n += x.executions
		requests += x.executions * float64(i+1)
		expected += x.executions * float64(table[i])
		took += float64(x.took)
	}
	if n == 0 {
		return 0, 0, 0
	}
	return requests / n, time.Duration(expected / n), time.Duration(took / n)
}

// expected lists the predicted times of batches of 1, 2, … requests, without the margins that plans add, if these
// are known.
func (in *instance) expected() []time.Duration {
	if p := in.pace(); p != nil {
		if table := p.times.Expected(in.Config.Batch, capacity.ShareOf(in.Config)); len(table) > 0 {
			return table
		}
	}
	return in.table
}

// Watch shows a function as [provider.WatchedController] does.
func Watch(c *Controller, name string) (provider.Watched, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, ok := c.functions[name]
	if !ok {
		return provider.Watched{}, false
	}
	w := provider.Watched{
		Status: c.display.status(fn), Load: fn.load, Waiting: fn.stats.Waiting, Least: least(fn),
		Hopeless: fn.failed != "" && !fn.measured() || fn.Failures.Hopeless(c.lookedAt),
	}
	if fn.Unplaced != "" {
		w.Lack = lackOf(fn.short)
	}
	if fn.slow() != "" {
		w.Lack = provider.LackSpeed
	}
	carries, serving, parked := 0.0, 0, uint64(0) // Those of the instances alone.
	for _, in := range fn.Sorted() {
		x := in.watched()
		if in.serves() {
			carries, serving = carries+x.Carries, serving+1
			w.Revision = max(w.Revision, in.number)
		} else if x.Parked && in.There() {
			parked = max(parked, in.number, in.Revision)
		}
		w.Instances = append(w.Instances, x)
	}
	if fn.handover.over && w.Revision > 0 {
		w.Revision = fn.Revision
	}
	if w.Revision == 0 { // A parked instance answers the next request.
		w.Revision = parked
	}
	if w.Carries = carries; fn.load > 0 && fn.capacity > 0 && serving > 0 {
		w.Carries = fn.capacity
		for i, in := range fn.Sorted() {
			if in.serves() {
				w.Instances[i].Carries = partOf(w.Instances[i].Carries, carries, serving, w.Carries)
			}
		}
	}
	return w, true
}

// partOf is what one of the serving instances carries of total requests per second, which all carry together: as much more or
// less than alone as the others, or an equal part if none could carry anything alone.
func partOf(own, sum float64, serving int, total float64) float64 {
	if sum > 0 {
		return total * own / sum
	}
	return total / float64(serving)
}

// watched shows an instance.
func (in *instance) watched() provider.WatchedInstance {
	x := provider.WatchedInstance{
		Instance: in.Instance, Holds: in.Holds(), Leaving: in.Retiring, Carries: in.function.rate(capacity.Candidate{Config: in.planned(), Exec: in.exec}),
	}
	table := in.expected()
	if in.tally.share == capacity.ShareOf(in.Config) {
		x.Size, x.Predicted, x.Seen = in.tally.compare(table)
		_, x.Planned, _ = in.tally.compare(in.table)
		x.Executions = in.tally.executions
	}
	if x.Size == 0 && in.batch <= len(table) {
		x.Size, x.Predicted = float64(in.batch), table[in.batch-1]
	}
	x.Config = in.planned()
	x.Parked = in.Parked && !in.serves()
	if in.useless {
		x.Carries = 0
	}
	return x
}

// lackOf says why a plan left load without an instance.
func lackOf(r placing.Reason) provider.Lack {
	switch r {
	case placing.NoConfig:
		return provider.LackSpeed
	case placing.NoRoom:
		return provider.LackRoom
	case placing.NoNode:
		return provider.LackNode
	case placing.AtLimit:
		return provider.LackLimit
	}
	return ""
}

// least is the shortest objective that an artefact of a function can keep, 0 if its times are not known.
func least(fn *function) (shortest time.Duration) {
	for _, a := range fn.artefacts {
		if !fn.accurate(a) || len(a.candidates) == 0 {
			continue
		}
		exec := capacity.Fastest(a.candidates).Exec
		if a.plan.Scale > 0 { // Its times were scaled until they fit.
			exec = time.Duration(float64(exec) / a.plan.Scale)
		}
		if needs := fn.rules.Least(exec); shortest == 0 || needs < shortest {
			shortest = needs
		}
	}
	return shortest
}

// freeOn frees on copies of nodes what a function's instances and shadows hold.
func freeOn(nodes []cluster.Node, of ...[]*instance) {
	at := map[string]int{}
	for i, n := range nodes {
		at[n.Name] = i
	}
	for _, instances := range of {
		for _, in := range instances {
			for node, part := range cluster.Over(in.Node, in.Nodes, in.Holds()) {
				if i, ok := at[node]; ok {
					nodes[i].Drop(part, in.Device())
				}
			}
		}
	}
}
