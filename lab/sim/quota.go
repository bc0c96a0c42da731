package sim

import "time"

// Quota is the part of every period in which an instance may execute, as in Linux's CPU
// bandwidth control. Its zero value is no limit. Periods count from the beginning of the
// run.
type Quota struct{ Part, Period time.Duration }

// budget is the part of its quota that an instance has used.
type budget struct {
	// spent is the time executed in the period-th period.
	spent  time.Duration
	period int64
}

// run returns the end of an execution that begins at now and takes work without a limit.
// When the quota is spent, the execution continues in the next period. With 2.5 of 10 ms,
// 4 ms of work that begin at 1 ms end at 11.5 ms: 2.5 ms until 3.5 ms, the rest from 10 ms
// on.
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
