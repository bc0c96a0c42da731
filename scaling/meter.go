package scaling

import (
	"math"
	"time"
)

// Meter estimates a rate from repeated readings of a counter. Its zero value has read
// nothing.
//
// It keeps means over ten, three and one seconds. Requests come at random: at λ/s a mean
// over τ is off by √(λ/2τ), which is 13 % for 27/s and one second, and 4 % for ten. So
// Meter uses the longest mean until a shorter one differs by three times what chance
// explains. The longer means then begin again from the shorter one.
//
// Meter follows a jump at once. If n requests came in a tenth of a second, n ± √n are
// normal, so the rate is at least about (n − 3√n)/0.1 s. After a jump to 1000/s, 100 ± 10
// come, which shows a rate of at least 700/s. If that is above the present estimate, the
// estimate becomes n/0.1 s. Requests may also come in clumps, all at once and then none.
// So two consecutive spans must both show the jump, and the lower rate counts.
type Meter struct {
	total uint64
	at    time.Time
	means [len(meterWindows)]float64
	// ages has the age of each mean in seconds. After a jump a mean covers all time
	// since, until its window is full.
	ages [len(meterWindows)]float64
	// marks has the latest readings, the oldest first.
	marks []mark
}

// mark is a reading.
type mark struct {
	at    time.Time
	total uint64
}

// meterWindows has the times, in seconds, after which a mean keeps 1/e of an old rate.
var meterWindows = [...]float64{10, 3, 1}

const (
	// chance is the number of standard deviations that count as chance.
	chance = 3
	// jumpFrom and jumpTo bound the time in which jump looks for a jump. markPause is
	// the least time between two marks.
	jumpFrom, jumpTo = 40 * time.Millisecond, 400 * time.Millisecond
	markPause        = 15 * time.Millisecond
)

// Read reads the counter's value at now and returns the rate in 1/s.
func (m *Meter) Read(now time.Time, total uint64) float64 {
	if m.at.IsZero() {
		m.at, m.total, m.ages = now, total, meterWindows
		m.marks = append(m.marks, mark{now, total})
		return 0
	}
	if passed := now.Sub(m.at).Seconds(); passed > 0 {
		current := float64(total-m.total) / passed
		for i, window := range meterWindows {
			m.ages[i] += passed
			m.means[i] += max(1-math.Exp(-passed/window), passed/m.ages[i]) * (current - m.means[i])
		}
		m.at, m.total = now, total
	}
	rate := m.settle()
	if least, jumped, within := m.jump(now); least > rate {
		rate = jumped
		for i := range m.means {
			m.means[i], m.ages[i] = rate, within.Seconds()
		}
	}
	return rate
}

// settle returns the longest mean that no shorter one contradicts.
func (m *Meter) settle() float64 {
	for i := 1; i < len(m.means); i++ {
		mean, longer := m.means[i], m.means[i-1]
		if math.Abs(mean-longer) > chance*math.Sqrt(max(mean, longer)/(2*meterWindows[i])) {
			for k := range i {
				m.means[k], m.ages[k] = mean, meterWindows[k]
			}
		}
	}
	return m.means[0]
}

// jump returns the highest rate that both the older and the newer half of a recent span
// show for certain (least). It also returns the rate that they show, and the span.
func (m *Meter) jump(now time.Time) (least, rate float64, within time.Duration) {
	for len(m.marks) > 0 && now.Sub(m.marks[0].at) > jumpTo {
		m.marks = m.marks[1:]
	}
	middle := 0
	for i, from := range m.marks {
		passed := now.Sub(from.at)
		if passed < jumpFrom {
			break
		}
		for middle = max(middle, i); middle+1 < len(m.marks) && 2*now.Sub(m.marks[middle].at) > passed; {
			middle++
		}
		half := m.marks[middle]
		older, newer := half.at.Sub(from.at), now.Sub(half.at)
		if older <= 0 || newer <= 0 {
			continue
		}
		a, b := float64(half.total-from.total), float64(m.total-half.total)
		certain := min((a-chance*math.Sqrt(a))/older.Seconds(), (b-chance*math.Sqrt(b))/newer.Seconds())
		if certain > least {
			least, rate, within = certain, min(a/older.Seconds(), b/newer.Seconds()), passed
		}
	}
	if n := len(m.marks); n == 0 || now.Sub(m.marks[n-1].at) >= markPause {
		m.marks = append(m.marks, mark{now, m.total})
	}
	return least, rate, within
}
