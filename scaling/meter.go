package scaling

import (
	"math"
	"time"
)

// Meter estimates a rate from a counter that is read now and then. Its zero value
// has read nothing.
//
// It keeps means over ten, three and one seconds. Requests come at random: at λ/s
// a mean over τ is off by √(λ/2τ), which is 13 % for 27/s and one second, and
// 4 % for ten. So the longest mean is believed until a shorter one differs by
// three times what chance explains; then the longer ones begin anew from there.
//
// What comes in numbers that no mean explains is followed at once. If n came in a
// fifth of a second, n ± √n are to be expected, so that the rate is not less than
// (n − 3√n)/0.2 s, or so: after a jump to 1000/s, 200 ± 14 come, which shows a rate
// of 790/s. Since requests may also come in clumps, that counts up to four times
// the shortest mean only.
type Meter struct {
	total uint64
	at    time.Time
	means [len(meterWindows)]float64
	// marks are readings of the last moments, the oldest first.
	marks []mark
}

// mark is a reading.
type mark struct {
	at    time.Time
	total uint64
}

// meterWindows are the times after which 1/e of an old rate is left of each mean,
// in seconds.
var meterWindows = [...]float64{10, 3, 1}

const (
	// chance is how many standard deviations are taken for chance.
	chance = 3
	// jumpFrom and jumpTo bound the time within which a jump is looked for,
	// markPause is the least between two marks.
	jumpFrom, jumpTo = 100 * time.Millisecond, 500 * time.Millisecond
	markPause        = 25 * time.Millisecond
	// jumpMost is how many times the mean a jump may count.
	jumpMost = 4
)

// Read takes the counter's value at now and returns the rate in 1/s.
func (m *Meter) Read(now time.Time, total uint64) float64 {
	if m.at.IsZero() {
		m.at, m.total = now, total
		m.marks = append(m.marks, mark{now, total})
		return 0
	}
	if passed := now.Sub(m.at).Seconds(); passed > 0 {
		current := float64(total-m.total) / passed
		for i, window := range meterWindows {
			m.means[i] += (1 - math.Exp(-passed/window)) * (current - m.means[i])
		}
		m.at, m.total = now, total
	}
	shortest := m.means[len(m.means)-1]
	return max(m.settle(), min(m.jump(now), jumpMost*shortest))
}

// settle is the longest mean that no shorter one contradicts.
func (m *Meter) settle() float64 {
	for i := 1; i < len(m.means); i++ {
		mean, longer := m.means[i], m.means[i-1]
		if math.Abs(mean-longer) > chance*math.Sqrt(max(mean, longer)/(2*meterWindows[i])) {
			for k := range i {
				m.means[k] = mean
			}
		}
	}
	return m.means[0]
}

// jump is the highest rate that the last moments show for certain.
func (m *Meter) jump(now time.Time) float64 {
	for len(m.marks) > 0 && now.Sub(m.marks[0].at) > jumpTo {
		m.marks = m.marks[1:]
	}
	highest := 0.0
	for _, k := range m.marks {
		if passed := now.Sub(k.at); passed >= jumpFrom {
			n := float64(m.total - k.total)
			highest = max(highest, (n-chance*math.Sqrt(n))/passed.Seconds())
		}
	}
	if n := len(m.marks); n == 0 || now.Sub(m.marks[n-1].at) >= markPause {
		m.marks = append(m.marks, mark{now, m.total})
	}
	return highest
}
