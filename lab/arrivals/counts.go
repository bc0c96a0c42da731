package arrivals

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Counts arrives counts[i]·scale times in step i. Each step has the length step. Within a
// step the times are uniformly random, like those of a Poisson process with that count. A
// scaled count that is not whole is rounded such that the running total never differs from
// the scaled one by a whole request. The process ends with the counts.
func Counts(counts []float64, step time.Duration, scale float64, seed uint64) (Process, error) {
	if len(counts) == 0 {
		return nil, errors.New("no counts")
	}
	if step <= 0 {
		return nil, fmt.Errorf("step %v: steps must be longer than 0", step)
	}
	if step > Forever/time.Duration(len(counts)) {
		return nil, fmt.Errorf("%d steps of %v are longer than 292 years", len(counts), step)
	}
	for i, n := range counts {
		if err := checkRate(n * scale / step.Seconds()); err != nil {
			return nil, fmt.Errorf("count %d, %v times %v per %v: %w", i+1, n, scale, step, err)
		}
	}
	c := &counted{counts: counts, step: step, scale: scale, rng: generator(seed, streamPlaces)}
	c.owed = c.rng.Float64()
	return c, nil
}

type counted struct {
	counts []float64
	step   time.Duration
	scale  float64
	rng    *rand.Rand

	index int     // the step after the current one
	owed  float64 // the fraction of a request that earlier steps left over
	left  int     // requests of the current step that have not arrived yet
	into  float64 // the elapsed fraction of the current step
}

// Next implements [Process].
func (c *counted) Next() (time.Duration, bool) {
	for c.left == 0 {
		if c.index == len(c.counts) {
			return 0, false
		}
		c.owed += c.counts[c.index] * c.scale
		whole := math.Floor(c.owed)
		c.left, c.owed = int(whole), c.owed-whole
		c.into = 0
		c.index++
	}
	// The smallest of n uniform places in the rest of the step lies at the
	// fraction 1 − U^(1/n) of it, with U^(1/n) = exp(−E/n).
	c.into += (1 - c.into) * -math.Expm1(-c.rng.ExpFloat64()/float64(c.left))
	c.left--
	within := min(time.Duration(c.into*float64(c.step)), c.step-1)
	return time.Duration(c.index-1)*c.step + within, true
}

// Rate implements [Process].
func (c *counted) Rate(at time.Duration) float64 {
	if i := int(at / c.step); at >= 0 && i < len(c.counts) {
		return c.counts[i] * c.scale / c.step.Seconds()
	}
	return 0
}
