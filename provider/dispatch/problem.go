package dispatch

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

// problem is why there is no ready instance.
type problem struct {
	reason string
	refuse bool
}

// error is what a request is told that gets no instance.
func (p problem) error() *web.Error {
	switch {
	case p.reason == "":
		return ErrCold
	case p.refuse:
		return &web.Error{Status: http.StatusServiceUnavailable, After: time.Second, Text: "the function cannot be served: " + p.reason}
	}
	return &web.Error{Status: http.StatusServiceUnavailable, After: time.Second, Text: "no instance of the function became ready in time: " + p.reason}
}

// SetProblem tells why the function has no ready instance, for the requests that
// wait for one in vain; "" takes it back. With refuse, it is of no use to wait:
// requests that find no ready instance are answered at once, those that wait
// already included. While an instance is ready it changes nothing.
func (d *Dispatcher) SetProblem(reason string, refuse bool) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problem = problem{reason, refuse && reason != ""}
	if !d.problem.refuse || d.ready() > 0 {
		return
	}
	d.answerWaiting(now, d.problem.error(), metrics.NoInstance)
}

// answerWaiting answers everything that waits with an error, the oldest first,
// which is where the policy finds them soonest. The lock is held.
func (d *Dispatcher) answerWaiting(now time.Time, err error, reason metrics.Reason) {
	for _, id := range slices.Sorted(maps.Keys(d.calls)) {
		if c := d.calls[id]; d.policy.Cancel(now, id) {
			delete(d.calls, id)
			d.options.Recorder.AddDrop(reason)
			c.signal <- signal{err: err}
		}
	}
}
