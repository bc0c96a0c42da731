package dispatch

import (
	"maps"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

// SetProblem sets why the function has no ready instance: requests that wait in vain
// get this reason. "" clears it. With refuse, requests without a ready instance are
// answered at once, including those that wait already. It has no effect on requests whose
// class a ready instance serves.
func (d *Dispatcher) SetProblem(reason string, refuse bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problem = web.NewProblem(reason, refuse)
	if d.problem.Refuse {
		d.answerWaiting(time.Now(), d.up.fewer(1), d.problem.Answer(ErrCold), metrics.NoInstance)
	}
}

// Problem returns why the function's answers are errors, "" if they are not, in words for users.
func Problem(d *Dispatcher) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.siblings.Problem(time.Now())
}

// answerWaiting answers all waiting requests of those classes with an error. It begins with
// the oldest, which the policy finds fastest. The lock is held.
func (d *Dispatcher) answerWaiting(now time.Time, classes uint16, err error, reason metrics.Reason) {
	for _, id := range slices.Sorted(maps.Keys(d.waiting.calls)) {
		if c := d.waiting.calls[id]; classes>>c.class&1 != 0 && d.policy.Cancel(now, id) {
			d.waiting.take(id)
			c.dropped(d.options.Recorder, reason)
			c.answer(signal{err: err})
		}
	}
}
