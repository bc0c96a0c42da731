package dispatch

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// ownerLine holds the waiting calls of one owner that may not wait for longer than their objective. It is a list, the
// newest last, so a call joins and leaves in constant time.
type ownerLine struct {
	newest, oldest *call
	n              int
	// objectives is the sum of the calls' objectives.
	objectives time.Duration
}

// objective is the mean objective of the calls, of which there is one at least.
func (l *ownerLine) objective() time.Duration { return l.objectives / time.Duration(l.n) }

// joinLine puts a call that waits now into its owner's line. One that has waited before, and lost its instance, goes to
// the front: it is not the newest.
func (w *waiting) joinLine(c *call) {
	if c.owner == nil {
		return
	}
	c.owner.Waiting.Add(1)
	if c.patient {
		return
	}
	l := w.lines[c.owner]
	switch {
	case l == nil:
		l = &ownerLine{newest: c, oldest: c}
		w.lines[c.owner] = l
	case c.id > l.newest.id:
		c.ahead, l.newest.behind, l.newest = l.newest, c, c
	default:
		c.behind, l.oldest.ahead, l.oldest = l.oldest, c, c
	}
	l.n++
	l.objectives += c.objective
}

// leaveLine takes a call out of its owner's line.
func (w *waiting) leaveLine(c *call) {
	if c.owner == nil {
		return
	}
	c.owner.Waiting.Add(-1)
	if c.patient {
		return
	}
	l := w.lines[c.owner]
	if l.n--; l.n == 0 {
		delete(w.lines, c.owner)
		return
	}
	l.objectives -= c.objective
	if c.ahead == nil {
		l.oldest = c.behind
	} else {
		c.ahead.behind = c.behind
	}
	if c.behind == nil {
		l.newest = c.ahead
	} else {
		c.behind.ahead = c.ahead
	}
	c.ahead, c.behind = nil, nil
}

// waitingBeside is the number of waiting calls that count towards the limit of a call's function: of all, or
// its owner's.
func waitingBeside(c *call, all int) int {
	if c.owner != nil {
		return int(c.owner.Waiting.Load())
	}
	return all
}

// makeRoom reports whether an arriving call may wait, and makes room for it. It keeps a function that floods a shared
// dispatcher from making its neighbours late. A function that waits alone may have any number of requests waiting.
// While others wait, too, all of them together may have as many as the instances serve within half of the objective:
// the other half is left for the executions. Beyond that a function that has more than its equal part gets no more,
// and its newest are refused for the call of one that has less. A call takes constant time, or time for each function
// that waits. The lock is held.
//
// For example the instances carry 400 requests/s in batches of 8, and two functions with an objective of 200 ms have
// requests waiting. Together they may have 400 · 0.1 = 40 waiting. One that has 20 gets more while the other one
// leaves room.
func makeRoom(d *Dispatcher, now time.Time, c *call) bool {
	if c.owner == nil || c.patient || d.up.total == 0 {
		return true
	}
	own, functions := 0, len(d.waiting.lines)
	if l := d.waiting.lines[c.owner]; l != nil {
		own = l.n
	} else {
		functions++
	}
	if own == d.waiting.prompt() {
		return true
	}
	room := roomOf(d.instances)
	if d.waiting.prompt() < room.within(c.objective) {
		return true
	}
	if own >= room.part(c.objective, functions) {
		return false
	}
	for owner, l := range d.waiting.lines {
		if owner != c.owner {
			l.trim(d, now, room, functions)
		}
	}
	return true
}

// trim refuses the newest calls of a function beyond its part, until there is room. The lock is held.
func (l *ownerLine) trim(d *Dispatcher, now time.Time, room room, functions int) {
	for l.n > room.part(l.objective(), functions) && d.waiting.prompt() >= room.within(l.objective()) {
		x := l.newest
		if !d.policy.Cancel(now, x.id) {
			return
		}
		d.waiting.take(x.id)
		x.answer(signal{err: x.crowdOut(d)})
	}
}

// crowdOut counts a call that is refused because too many wait, and returns its error.
func (c *call) crowdOut(d *Dispatcher) error {
	if !c.excused() {
		d.refused.Add(1)
	}
	c.dropped(d.options.Recorder, metrics.QueueFull)
	return ErrQueueFull
}

// dropped counts a call that is answered without being executed, for its owner if it has one.
func (c *call) dropped(to Recorder, reason metrics.Reason) {
	if c.owner == nil {
		to.AddDrop(reason)
	} else if c.owner.Dropped != nil {
		c.owner.Dropped(string(reason))
	}
}

// queued records how long a call waited for its batch, for its owner if it has one.
func (c *call) queued(to Recorder, waited time.Duration) {
	if c.owner == nil {
		to.ObserveQueue(waited, c.request.Trace)
	} else if c.owner.Queued != nil {
		c.owner.Queued(waited, c.request.Trace)
	}
}

// prompt is the number of calls that may not wait for longer than their objective.
func (w *waiting) prompt() int { return len(w.calls) - w.patient }

// room is what instances can serve.
type room struct {
	// perSecond is the rate of requests in full batches, batches the number of requests in one full batch of each.
	perSecond float64
	batches   int
}

// roomOf returns what the instances that take batches serve.
func roomOf(instances map[cluster.InstanceID]*instanceState) (r room) {
	for _, m := range instances {
		if !m.up || len(m.Exec) == 0 {
			continue
		}
		r.batches += len(m.Exec)
		if exec := m.Exec[len(m.Exec)-1]; exec > 0 {
			r.perSecond += float64(len(m.Exec)) / exec.Seconds()
		}
	}
	return r
}

// within is how many requests may wait so that one with an objective is executed in time behind them. A full batch of
// each instance may, which keeps the instances busy.
func (r room) within(objective time.Duration) int {
	return max(r.batches, int(r.perSecond*objective.Seconds()/2))
}

// part is one function's equal part of that, one request at least.
func (r room) part(objective time.Duration, functions int) int {
	return max(1, r.within(objective)/functions)
}
