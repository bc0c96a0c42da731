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
// answered at once, including those that wait already. It has no effect while an
// instance is ready.
func (d *Dispatcher) SetProblem(reason string, refuse bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problem = problem{reason, refuse && reason != ""}
	if !d.problem.refuse || d.up > 0 {
		return
	}
	d.answerWaiting(time.Now(), d.problem.error(), metrics.NoInstance)
}

// answerWaiting answers all waiting requests with an error. It begins with the oldest,
// which the policy finds fastest. The lock is held.
func (d *Dispatcher) answerWaiting(now time.Time, err error, reason metrics.Reason) {
	for _, id := range slices.Sorted(maps.Keys(d.calls)) {
		if c := d.calls[id]; d.policy.Cancel(now, id) {
			delete(d.calls, id)
			d.options.Recorder.AddDrop(reason)
			c.answer(signal{err: err})
		}
	}
}
