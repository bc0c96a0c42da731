package scaling

import (
	"math"
	"time"
)

// Meter estimates a rate from a counter that is read now and then. Its zero value
// has read nothing.
type Meter struct {
	total uint64
	at    time.Time
	rate  float64
}

// meterWindow is the time after which 1/e of an old rate is left.
const meterWindow = time.Second

// Read takes the counter's value at now and returns the rate in 1/s. A steady
// rate is followed within a few windows: after a jump from 0 to 100/s the
// estimate is 63 after one second and 95 after three.
func (m *Meter) Read(now time.Time, total uint64) float64 {
	if m.at.IsZero() {
		m.at, m.total = now, total
		return 0
	}
	passed := now.Sub(m.at).Seconds()
	if passed <= 0 {
		return m.rate
	}
	current := float64(total-m.total) / passed
	m.rate += (1 - math.Exp(-passed/meterWindow.Seconds())) * (current - m.rate)
	m.at, m.total = now, total
	return m.rate
}
