package dispatch

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

// problem is why there is no ready instance. refuse: requests are refused at once
// instead of waiting.
type problem struct {
	reason string
	refuse bool
}

// error returns the answer to a request that gets no instance.
func (p problem) error() *web.Error {
	switch {
	case p.reason == "":
		return ErrCold
	case p.refuse:
		return &web.Error{Status: http.StatusServiceUnavailable, After: time.Second, Text: "the function cannot be served: " + p.reason}
	}
	return &web.Error{Status: http.StatusServiceUnavailable, After: time.Second, Text: "no instance of the function became ready in time: " + p.reason}
}

// SetProblem sets why the function has no ready instance: requests that wait in vain
// get this reason. "" clears it. With refuse, requests without a ready instance are
// answered at once, including those that wait already. It has no effect on requests whose
// class a ready instance serves.
func (d *Dispatcher) SetProblem(reason string, refuse bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problem = problem{reason, refuse && reason != ""}
	if d.problem.refuse {
		d.answerWaiting(time.Now(), d.up.fewer(1), d.problem.error(), metrics.NoInstance)
	}
}

// answerWaiting answers all waiting requests of those classes with an error. It begins with
// the oldest, which the policy finds fastest. The lock is held.
func (d *Dispatcher) answerWaiting(now time.Time, classes uint16, err error, reason metrics.Reason) {
	for _, id := range slices.Sorted(maps.Keys(d.waiting.calls)) {
		if c := d.waiting.calls[id]; classes>>c.class&1 != 0 && d.policy.Cancel(now, id) {
			d.waiting.take(id)
			d.options.Recorder.AddDrop(reason)
			c.answer(signal{err: err})
		}
	}
}
