package dispatch

import (
	"math/bits"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/instance/frame"
)

// tally counts instances, all and by the classes that they serve.
type tally struct {
	total int
	of    [batching.MaxClasses]int
}

// add counts n instances that serve those classes.
func (t *tally) add(classes uint16, n int) {
	t.total += n
	for rest := classes; rest != 0; rest &= rest - 1 {
		t.of[bits.TrailingZeros16(rest)] += n
	}
}

// fewer returns the classes that fewer than n instances serve.
func (t *tally) fewer(n int) (classes uint16) {
	for c, count := range t.of {
		if count < n {
			classes |= 1 << c
		}
	}
	return classes
}

// ClassStats holds the counters of one class of requests.
type ClassStats struct {
	// Arrivals counts all requests since the dispatcher was made.
	Arrivals uint64 `json:"arrivals"`
	Waiting  int    `json:"waiting,omitempty"`
	// Artefacts may answer the class, within the objective that it is planned for. Replica is
	// the replica of the provider that has it, "" for this one, and Number its number there.
	// The dispatcher does not set them; the controller and its peers do.
	Artefacts []string      `json:"artefacts"`
	Objective time.Duration `json:"objective"`
	Replica   string        `json:"-"`
	Number    int           `json:"number,omitempty"`
}

// waiting holds the calls that the policy has, and counts all calls by class.
type waiting struct {
	calls map[batching.RequestID]*call
	// seen is the set of classes that came.
	seen  uint16
	stats [batching.MaxClasses]ClassStats
	// patient is the number of calls that may wait for longer than their objective.
	patient int
	// lines has the calls of each owner that may not, for owners that have some.
	lines map[*frame.Owner]*ownerLine
	tight tightest
}

// arrive counts a call.
func (w *waiting) arrive(c *call) {
	w.seen |= 1 << c.class
	w.stats[c.class].Arrivals++
	w.tight.arrive(c)
}

func (w *waiting) add(c *call) {
	w.calls[c.id] = c
	w.stats[c.class].Waiting++
	if c.patient {
		w.patient++
	}
	w.joinLine(c)
}

// take removes a call and returns it.
func (w *waiting) take(id batching.RequestID) *call {
	c := w.calls[id]
	delete(w.calls, id)
	w.stats[c.class].Waiting--
	if c.patient {
		w.patient--
	}
	w.leaveLine(c)
	return c
}

// some reports whether a request of one of those classes waits.
func (w *waiting) some(classes uint16) bool {
	for rest := classes & w.seen; rest != 0; rest &= rest - 1 {
		if w.stats[bits.TrailingZeros16(rest)].Waiting > 0 {
			return true
		}
	}
	return false
}

// read overwrites into with the counters of the classes up to the highest that came. It is
// empty if all requests are of class 0.
func (w *waiting) read(into []ClassStats) []ClassStats {
	into = into[:0]
	if w.seen > 1 {
		into = append(into, w.stats[:bits.Len16(w.seen)]...)
	}
	return into
}

// asPolicy returns the call as the policy sees it.
func (c *call) asPolicy() batching.Request {
	return batching.Request{ID: c.id, Deadline: c.deadline, Class: c.class, Within: c.objective - batching.Travel(c.objective), Elements: c.elements, Rows: c.rows()}
}
