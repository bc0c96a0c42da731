package fidelity

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Curve has the times of an instance with a core to itself, by batch size.
type Curve struct {
	sizes []int
	// exec are the mean times of the engine. way are the mean times of the rest of an
	// exchange: sending, joining and splitting the batch, and the answer's way back.
	exec, way []time.Duration
	// handling is the part of way that is the instance's own CPU time.
	handling time.Duration
	// factors are single times of the engine, each divided by the mean of its size.
	factors []float64
}

// add adds the measured times of a size larger than those before. It drops the slowest
// time: on a shared machine, a neighbour caused it.
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

// travel returns the time of an exchange for one request without the instance's own work.
func (c *Curve) travel() time.Duration { return max(0, c.way[0]-c.handling) }

// at returns the value of a list like exec for batches of b, by linear interpolation.
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

// Capacity returns the requests/s that the instance carries with batches of at most
// largest.
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

// powers returns 1, 2, 4, … below largest, and largest.
func powers(largest int) (sizes []int) {
	for b := 1; b < largest; b *= 2 {
		sizes = append(sizes, b)
	}
	return append(sizes, largest)
}
