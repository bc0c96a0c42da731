package scaling

import (
	"math"
	"time"
)

// MeanRows estimates how many rows the requests of a function have, from readings of two counters. Its zero
// value has read nothing and says 1.
//
// Requests of the last ten seconds count, as in the longest mean of a [Meter]. Of a function with few requests
// the last fifty count, so that one request with many rows is no load by itself.
type MeanRows struct {
	at              time.Time
	requests, extra uint64
	// weight is how many requests the mean stands for, and beyond the mean number of their rows beyond the first.
	weight, beyond float64
}

const (
	// rowsMemory is the time after which 1/e of the weight of a request is left, and rowsKept the weight that
	// requests keep however long ago they came.
	rowsMemory = 10 * time.Second
	rowsKept   = 50
)

// Read reads the counters at now: of requests, and of their rows beyond the first of each. It returns the mean
// number of rows of a request, at least 1. Requests before the first reading do not count.
func (m *MeanRows) Read(now time.Time, requests, extra uint64) float64 {
	if m.at.IsZero() || requests < m.requests || extra < m.extra {
		m.at, m.requests, m.extra = now, requests, extra
		return 1 + m.beyond
	}
	passed := now.Sub(m.at).Seconds()
	if came := float64(requests - m.requests); came > 0 {
		aged := m.weight * math.Exp(-passed/rowsMemory.Seconds())
		m.weight = max(aged, min(m.weight, max(0, rowsKept-came))) + came
		m.beyond += (float64(extra-m.extra) - came*m.beyond) / m.weight
	}
	m.at, m.requests, m.extra = now, requests, extra
	return 1 + max(0, m.beyond)
}
