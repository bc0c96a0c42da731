package scaling

import (
	"math"
	"time"
)

// Meter estimates a rate from a counter that is read now and then. Its zero value
// has read nothing.
//
// A steady rate is followed within a few seconds: after a jump from 0 to 100/s the
// mean is 63 after one second and 95 after three. What comes in much larger
// numbers than the mean explains is followed at once. If n came in a fifth of a
// second and requests come at random, n ± √n are to be expected, so that the rate
// is not less than (n − 3√n)/0.2 s, or so: after a jump to 1000/s, 200 ± 14 come,
// which shows a rate of 790/s. Since requests may also come in clumps, that counts
// up to four times the mean only.
type Meter struct {
	total uint64
	at    time.Time
	rate  float64
	// marks are readings of the last moments, the oldest first.
	marks []mark
}

// mark is a reading.
type mark struct {
	at    time.Time
	total uint64
}

const (
	// meterWindow is the time after which 1/e of an old rate is left.
	meterWindow = time.Second
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
		m.rate += (1 - math.Exp(-passed/meterWindow.Seconds())) * (current - m.rate)
		m.at, m.total = now, total
	}
	return max(m.rate, min(m.jump(now), jumpMost*m.rate))
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
			highest = max(highest, (n-3*math.Sqrt(n))/passed.Seconds())
		}
	}
	if n := len(m.marks); n == 0 || now.Sub(m.marks[n-1].at) >= markPause {
		m.marks = append(m.marks, mark{now, m.total})
	}
	return highest
}
