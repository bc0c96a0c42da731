// Package arrivals makes the times at which a simulated function's requests arrive. They
// arrive evenly, at random with any burstiness, by states that take turns, by rates that
// rise and fall, by counts per minute, or as recorded. A process is made for one run, and
// the same seed gives the same times. Begin with Process.
//
// Except for recordings and counts, every process is a rate over time (a path)
// and a sequence of gaps of mean 1 (always 1, exponential, or gamma). Request n arrives
// when the integral of the rate reaches the sum of the first n gaps. So gaps
// shrink as the rate rises, and the mean rate is exactly the path's.
package arrivals

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Process is one function's arrivals. Only one goroutine may use it.
type Process interface {
	// Next returns the next arrival as an offset from the start. Arrivals never
	// decrease. ok is false when there are no more.
	Next() (at time.Duration, ok bool)
	// Rate returns the mean rate in requests/s at a time, for simulations of rates
	// instead of requests. It does not affect Next. at must not decrease from call to
	// call.
	Rate(at time.Duration) float64
}

// Forever is the length of a segment without an end.
const Forever = time.Duration(math.MaxInt64)

// MaxRate is the highest rate in requests/s that a process may have, one request per
// nanosecond. Times have no finer resolution.
const MaxRate = 1e9

// Constant arrives evenly, rate times a second. The seed decides where in its first gap it
// begins: several functions must not arrive in step.
func Constant(rate float64, seed uint64) (Process, error) {
	return Path([]Segment{steady(rate)}, Even, seed)
}

// Poisson arrives as many independent users do: gaps are exponential, and the
// coefficient of variation is 1.
func Poisson(rate float64, seed uint64) (Process, error) {
	return Path([]Segment{steady(rate)}, Exponential, seed)
}

// Gamma has gamma-distributed gaps with the coefficient of variation cv. 1 is Poisson;
// requests arrive more evenly below 1, and in bursts above.
func Gamma(rate, cv float64, seed uint64) (Process, error) {
	gaps, err := gammaGaps(cv)
	if err != nil {
		return nil, err
	}
	return Path([]Segment{steady(rate)}, gaps, seed)
}

func steady(rate float64) Segment { return Segment{For: Forever, From: rate, To: rate} }

// generator returns the random numbers of one of a process's streams.
func generator(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// The streams of a process. Gaps and states have one each: Rate follows the states without
// drawing gaps.
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
