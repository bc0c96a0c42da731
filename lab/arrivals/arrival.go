// Package arrivals makes the times at which a simulated function's requests
// arrive: evenly, at random with any burstiness, by states that take turns, by
// rates that rise and fall, by counts per minute, or as they were recorded. A
// process is made for one run, and the same seed gives the same times.
//
// Except for recordings and counts, every process is a rate over time (a path)
// and a sequence of gaps of mean 1 (evenly 1, exponential, gamma): request n is
// where the integral of the rate reaches the sum of the first n gaps. So gaps
// shrink as the rate rises, and the mean rate is the path's exactly.
package arrivals

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Process is one function's arrivals. It is used by one goroutine.
type Process interface {
	// Next is the next arrival as an offset from the start, not before the one
	// before; false when there are no more.
	Next() (at time.Duration, ok bool)
	// Rate is the mean rate in requests/s at a time, what a simulation of rates
	// instead of requests works with. It does not disturb Next, and its times
	// must not decrease from call to call.
	Rate(at time.Duration) float64
}

// Forever is the length of a segment that does not end.
const Forever = time.Duration(math.MaxInt64)

// MaxRate is the highest rate in requests/s that a process may have: at more
// than a request per nanosecond, times could not be told apart.
const MaxRate = 1e9

// Constant arrives evenly, rate times a second. Where in its first gap it begins
// follows the seed, so that several functions do not arrive in step.
func Constant(rate float64, seed uint64) (Process, error) {
	return Path([]Segment{steady(rate)}, Even, seed)
}

// Poisson arrives as many independent users do: gaps are exponential, and the
// coefficient of variation is 1.
func Poisson(rate float64, seed uint64) (Process, error) {
	return Path([]Segment{steady(rate)}, Exponential, seed)
}

// Gamma has gamma-distributed gaps with the coefficient of variation cv: 1 is
// Poisson, below is more even, above comes in bunches.
func Gamma(rate, cv float64, seed uint64) (Process, error) {
	gaps, err := GammaGaps(cv)
	if err != nil {
		return nil, err
	}
	return Path([]Segment{steady(rate)}, gaps, seed)
}

func steady(rate float64) Segment { return Segment{For: Forever, From: rate, To: rate} }

// generator is the random numbers of one of a process's streams.
func generator(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// The streams: gaps and states are drawn apart, so that Rate can follow the
// states without drawing gaps.
const (
	streamGaps = iota
	streamStates
	streamPlaces
)

func checkRate(rate float64) error {
	if !(rate >= 0 && rate <= MaxRate) {
		return fmt.Errorf("a rate of %v requests/s: it must be from 0 to %g", rate, float64(MaxRate))
	}
	return nil
}
