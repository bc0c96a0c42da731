package load

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Arrivals names the process by which a target's requests arrive.
type Arrivals string

// The arrival processes.
const (
	// Uniform spaces requests evenly. The first is sent at once.
	Uniform Arrivals = "uniform"
	// Poisson draws exponential gaps: independent users, as in the
	// workloads of BATCH and INFless.
	Poisson Arrivals = "poisson"
)

// maxArrivals limits the precomputed schedule of one target to 400 MB.
const maxArrivals = 50_000_000

// Times returns the times of requests at rate (requests/s) within d, as offsets
// from the start. They ascend and are below d. The same state of rng gives the
// same times.
func (a Arrivals) Times(rate float64, d time.Duration, rng *rand.Rand) ([]time.Duration, error) {
	expected := rate * d.Seconds()
	if !(rate > 0) || d <= 0 {
		return nil, fmt.Errorf("rate %v requests/s for %v: both must be positive", rate, d)
	}
	if expected > maxArrivals {
		return nil, fmt.Errorf("rate %v requests/s for %v: that is more than %d requests; lower the rate or the duration", rate, d, maxArrivals)
	}
	times := make([]time.Duration, 0, int(expected)+1)
	switch a {
	case Uniform:
		// Adding up gaps would add up their rounding errors.
		for i := 0; float64(i)/rate < d.Seconds(); i++ {
			times = append(times, seconds(float64(i)/rate))
		}
	case Poisson:
		for at := rng.ExpFloat64() / rate; at < d.Seconds(); at += rng.ExpFloat64() / rate {
			times = append(times, seconds(at))
		}
	default:
		return nil, fmt.Errorf("arrivals %q: it must be %s or %s", a, Uniform, Poisson)
	}
	return times, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// arrival is one request of the merged schedule.
type arrival struct {
	at     time.Duration
	target int
	index  int
}

// schedule merges the arrivals of all targets, earliest first. Each target has
// its own random stream, so adding a target does not change the others' times.
func schedule(targets []Target, d time.Duration, seed uint64) ([]arrival, error) {
	var all []arrival
	for t, target := range targets {
		arrivals := target.Arrivals
		if arrivals == "" {
			arrivals = Uniform
		}
		rng := rand.New(rand.NewPCG(seed, uint64(t)))
		times, err := arrivals.Times(target.Rate, d, rng)
		if err != nil {
			return nil, fmt.Errorf("target %s: %w", target.Name, err)
		}
		if target.Shape != nil {
			times = slices.DeleteFunc(times, func(at time.Duration) bool { return rng.Float64() >= target.Shape(at) })
		}
		all = slices.Grow(all, len(times))
		for i, at := range times {
			all = append(all, arrival{at: at, target: t, index: i})
		}
	}
	slices.SortStableFunc(all, func(x, y arrival) int { return int(x.at - y.at) })
	return all, nil
}
