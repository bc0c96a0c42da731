package control

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// tally compares what an instance's executions took with what was predicted for them.
type tally struct {
	executions      uint64
	took, predicted time.Duration
}

// tallied is the predicted time of which a tally remembers half: it follows what the instance does now.
const tallied = 10 * time.Second

// add counts an execution. table has the predicted times of batches of 1, 2, … requests.
func (t *tally) add(e dispatch.Executed, table []time.Duration) {
	if e.Size < 1 || e.Size > len(table) {
		return
	}
	if t.predicted > tallied {
		t.took, t.predicted = t.took/2, t.predicted/2
	}
	t.executions++
	t.took, t.predicted = t.took+e.Exec, t.predicted+table[e.Size-1]
}

// seen scales a predicted time by what the executions took, 0 if there were none.
func (t *tally) seen(predicted time.Duration) time.Duration {
	if t.predicted == 0 {
		return 0
	}
	return time.Duration(float64(predicted) * float64(t.took) / float64(t.predicted))
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
	carries, serving := 0.0, 0
	for _, in := range fn.Sorted() {
		x := in.watched()
		if in.serves() {
			carries, serving = carries+x.Carries, serving+1
			w.Revision = max(w.Revision, in.number)
		}
		w.Instances = append(w.Instances, x)
	}
	if fn.handover.over && w.Revision > 0 {
		w.Revision = fn.Revision
	}
	if w.Carries = carries; fn.load > 0 && fn.carried > 0 && serving > 0 {
		w.Carries = fn.carried * fn.load * (1 + c.options.System.Settings().Headroom)
	}
	return w, true
}

// watched shows an instance.
func (in *instance) watched() provider.WatchedInstance {
	x := provider.WatchedInstance{
		Instance: in.Instance, Holds: in.Holds(), Leaving: in.Retiring, Predicted: in.exec, Seen: in.tally.seen(in.exec),
		Executions: in.tally.executions, Carries: in.function.rate(capacity.Candidate{Config: in.planned(), Exec: in.exec}),
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

// heldOn gives back to copies of nodes what a function's instances and shadows hold.
func heldOn(nodes []cluster.Node, of ...[]*instance) {
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
