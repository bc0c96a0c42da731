package fidelity

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Curve is how long an instance on a core of its own takes for batches of some
// sizes.
type Curve struct {
	sizes []int
	// exec are the engine's mean times, way those of what an exchange with the
	// instance takes besides: there, joining and splitting the batch, and back.
	exec, way []time.Duration
	// handling is the part of way that is the instance's own CPU time.
	handling time.Duration
	// factors are single times of the engine over the mean of their size.
	factors []float64
}

// add puts in what was measured of a size larger than those before. The slowest
// time is left out: on a shared machine it is a neighbour's doing.
func (c *Curve) add(size int, exec, way []time.Duration) {
	exec, way = slices.Sorted(slices.Values(exec)), slices.Sorted(slices.Values(way))
	if n := len(exec); n > 1 {
		exec, way = exec[:n-1], way[:n-1]
	}
	e := mean(exec)
	c.sizes, c.exec, c.way = append(c.sizes, size), append(c.exec, e), append(c.way, mean(way))
	for _, t := range exec {
		c.factors = append(c.factors, float64(t)/float64(max(1, e)))
	}
}

// travel is what an exchange for one request takes besides the instance's own work.
func (c *Curve) travel() time.Duration { return max(0, c.way[0]-c.handling) }

// at is the value for batches of b of a list like exec, on the line through its
// neighbours.
func (c *Curve) at(values []time.Duration, b float64) time.Duration {
	if len(c.sizes) == 1 {
		return values[0]
	}
	i := 1
	for i < len(c.sizes)-1 && float64(c.sizes[i]) < b {
		i++
	}
	part := (b - float64(c.sizes[i-1])) / float64(c.sizes[i]-c.sizes[i-1])
	return values[i-1] + time.Duration(part*float64(values[i]-values[i-1]))
}

// Capacity is how many requests per second the instance carries with batches of at
// most largest.
func (c *Curve) Capacity(largest int) float64 {
	best := 0.0
	for i, b := range c.sizes {
		if i == 0 || b <= largest {
			best = max(best, float64(b)/(c.exec[i]+c.way[i]).Seconds())
		}
	}
	return best
}

func (c *Curve) factor(r *rand.Rand) float64 { return c.factors[r.IntN(len(c.factors))] }

func mean(times []time.Duration) time.Duration {
	sum := time.Duration(0)
	for _, t := range times {
		sum += t
	}
	return sum / time.Duration(max(1, len(times)))
}

// powers are 1, 2, 4, … below most, and most.
func powers(most int) (sizes []int) {
	for b := 1; b < most; b *= 2 {
		sizes = append(sizes, b)
	}
	return append(sizes, most)
}
