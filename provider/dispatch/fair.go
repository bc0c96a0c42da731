package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// owned adds n to the number of the owner's waiting calls.
func (c *call) owned(n int64) {
	if c.owner == nil {
		return
	}
	c.owner.Waiting.Add(n)
	if c.patient {
		c.owner.Patient.Add(n)
	}
}

// waitingBeside is the number of waiting calls that count towards the limit of a call's function: of all, or
// its owner's.
func waitingBeside(c *call, all int) int {
	if c.owner != nil {
		return int(c.owner.Waiting.Load())
	}
	return all
}

// prompt is the number of an owner's waiting requests that may not wait for longer than their objective.
func prompt(o *frame.Owner) int { return int(o.Waiting.Load() - o.Patient.Load()) }

// fair reports whether an arriving call may wait, and makes room for it. It keeps a function that floods a shared
// dispatcher from making its neighbours late. A function that waits alone may have any number of requests waiting.
// While others wait, too, it may have as many as its part of the instances' capacity serves within half of its
// objective: the other half is left for the executions. Its newest beyond that are refused. The lock is held.
//
// For example the instances carry 400 requests/s in batches of 8, and two functions with an objective of
// 200 ms have requests waiting. Each may have 400 · 0.1 / 2 = 20 waiting.
func fair(d *Dispatcher, now time.Time, c *call) bool {
	if c.owner == nil || c.patient || d.up.total == 0 {
		return true
	}
	own := prompt(c.owner)
	others := d.policy.Waiting() - d.waiting.patient - own
	if others == 0 {
		return true
	}
	rate, full := capacityOf(d.instances)
	if own+others < full { // Nobody floods, and counting the functions takes time.
		return true
	}
	waiting := byOwner(d.waiting.calls)
	functions := len(waiting)
	if own == 0 {
		functions++
	}
	for _, calls := range waiting {
		if o := calls[0].owner; o == nil || o != c.owner {
			for _, x := range excess(calls, allowance(rate, full, calls[0].objective, functions)) {
				if d.policy.Cancel(now, x.id) {
					d.waiting.take(x.id)
					d.options.Recorder.AddDrop(metrics.QueueFull)
					d.refused.Add(1)
					x.answer(signal{err: ErrQueueFull})
				}
			}
		}
	}
	return own < allowance(rate, full, c.objective, functions)
}

// capacityOf returns the rate of requests that the instances serve in full batches, and the number of requests
// in two such batches of each.
func capacityOf(instances map[cluster.InstanceID]*instanceState) (perSecond float64, full int) {
	for _, m := range instances {
		if !m.up || len(m.Exec) == 0 {
			continue
		}
		full += 2 * len(m.Exec)
		if exec := m.Exec[len(m.Exec)-1]; exec > 0 {
			perSecond += float64(len(m.Exec)) / exec.Seconds()
		}
	}
	return perSecond, full
}

// allowance is how many requests of one function may wait while others do: two batches of each instance at least,
// which keep the instances busy.
func allowance(rate float64, full int, objective time.Duration, functions int) int {
	return max(full, int(rate*objective.Seconds()/2/float64(functions)))
}

// byOwner lists the waiting calls that may not wait for longer than their objective, by function.
func byOwner(waiting map[batching.RequestID]*call) map[*frame.Owner][]*call {
	all := map[*frame.Owner][]*call{}
	for _, c := range waiting {
		if !c.patient {
			all[c.owner] = append(all[c.owner], c)
		}
	}
	return all
}

// excess returns the newest of a function's waiting calls beyond the allowance.
func excess(calls []*call, allowed int) []*call {
	if len(calls) <= allowed {
		return nil
	}
	slices.SortFunc(calls, func(a, b *call) int { return cmp.Compare(a.id, b.id) })
	return calls[allowed:]
}
