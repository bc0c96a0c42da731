package sim

import "time"

// This file counts the refusals that were hasty: an instance was idle afterwards for as long as the request's execution
// takes, and early enough for an answer within the objective. Executing it would have delayed no other request.

// refusal is a rejected request while nobody knows whether that was hasty.
type refusal struct {
	// from is when its execution could have begun, and until when it would have had to end.
	from, until time.Duration
	// factor divides the time of its execution by the mean.
	factor float64
	// measured: it came in the measured time.
	measured bool
}

// newHasty returns the spread from which executions of refused requests are drawn. It is not that of the others, so that
// counting changes nothing.
func newHasty(o *TrafficOptions) spread {
	s := newSpread(o.Spread, o.Seed+1, uint64(o.Index))
	s.factor, s.pace = o.Factor, o.Pace
	return s
}

// doubt remembers a request that is rejected at now. Requests that found no ready instance may wait for longer than the
// objective, and do not count.
func (r *Requests) doubt(now, arrived time.Duration) {
	o := &r.options
	r.refusals = append(r.refusals, refusal{
		from: now + o.Overhead/2, until: arrived + o.SLO - (o.Overhead - o.Overhead/2),
		factor: r.refused.draw(time.Second, now).Seconds(), measured: arrived >= o.Window.From,
	})
}

// examine counts the remembered requests that an instance could have executed in its idle time up to to. Each takes its
// part of that.
func (r *Requests) examine(p *peer, to time.Duration) {
	if len(r.refusals) == 0 || !p.whole().up || p.Device != nil {
		return
	}
	p.spare = max(p.spare, p.freeAt)
	kept := r.refusals[:0]
	for _, x := range r.refusals {
		budget := p.budget
		end := budget.run(p.Quota, max(p.spare, x.from), time.Duration(x.factor*float64(p.Truth[0])))
		if end > min(to, x.until) {
			kept = append(kept, x)
			continue
		}
		p.spare = end
		if x.measured {
			r.record.Hasty++
		}
	}
	r.refusals = kept
}

// forgive drops the remembered requests that could not be in time any more at now, after it has looked at the idle time
// of all instances until then.
func (r *Requests) forgive(now time.Duration) {
	if len(r.refusals) == 0 || now < r.refusals[0].until {
		return
	}
	for _, p := range r.slots {
		if p != nil {
			r.examine(p, now)
		}
	}
	kept := r.refusals[:0]
	for _, x := range r.refusals {
		if x.until > now {
			kept = append(kept, x)
		}
	}
	r.refusals = kept
}
