package sim

import "time"

// Quota is for how long of every period an instance may execute, as Linux' CPU
// bandwidth control has it; its zero value is no limit. Periods count from the
// beginning of the run.
type Quota struct{ Part, Period time.Duration }

// budget is what an instance has used of its quota.
type budget struct {
	// spent is the time executed in the period-th period.
	spent  time.Duration
	period int64
}

// run is when an execution that begins at now, and takes so long where nothing
// holds it up, is over. What is left when the quota is spent goes on with the next
// period. With 2.5 of 10 ms, 4 ms that begin at 1 ms are over at 11.5 ms: 2.5 ms of
// it until 3.5 ms, the rest from 10 ms on.
func (b *budget) run(q Quota, now, work time.Duration) (end time.Duration) {
	if q.Part <= 0 || q.Part >= q.Period {
		return now + work
	}
	for {
		if period := int64(now / q.Period); period != b.period {
			b.period, b.spent = period, 0
		}
		next := time.Duration(b.period+1) * q.Period
		step := min(work, q.Part-b.spent, next-now)
		now, work, b.spent = now+step, work-step, b.spent+step
		if work <= 0 {
			return now
		}
		now = next
	}
}
