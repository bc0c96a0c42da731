// Package otp is BATCH's optimiser (SC 2020, §III-C): it searches the batch size, the
// timeout and the resources with which a function meets its objective at the lowest cost,
// on AWS Lambda and on a cluster of instances. Begin with Optimise.
package otp

import (
	"math"
	"time"

	"gonum.org/v1/gonum/mat"

	"github.com/faas-infer/faas-infer/batching/arrival"
)

const (
	// nobody is how many requests in the longest timeout are none: batches of one
	// are considered alone.
	nobody = 1e-6
	// crowd is how many of the largest batches in the longest timeout are as good as
	// any more: each fills in less than a thousandth of it.
	crowd = 1000
)

// load is the mean rate in requests per second.
func (o Objective) load() float64 {
	rate := o.Rate
	if o.Arrivals != nil {
		rate = o.Arrivals.Rate()
	}
	if !(rate > 0) {
		return 0
	}
	return min(rate, math.MaxFloat32)
}

// process is how requests come, within what makes a difference: arrivals that are so
// rare that nobody joins anybody, or so many that every batch fills at once, are taken
// at the bound.
func (o Objective) process(longest time.Duration, largest int) (arrival.MAP, error) {
	load := o.load()
	bounded := min(max(load, nobody/longest.Seconds()), crowd*float64(largest)/longest.Seconds())
	if o.Arrivals == nil || load == 0 {
		return arrival.Poisson(bounded), nil
	}
	if bounded == load {
		return *o.Arrivals, nil
	}
	return faster(*o.Arrivals, bounded/load)
}

// faster is a process with all its rates multiplied.
func faster(m arrival.MAP, times float64) (arrival.MAP, error) {
	return arrival.New(multiplied(m.D0, times), multiplied(m.D1, times))
}

func multiplied(m *mat.Dense, times float64) [][]float64 {
	rows, columns := m.Dims()
	all := make([][]float64, rows)
	for i := range all {
		for j := range columns {
			all[i] = append(all[i], times*m.At(i, j))
		}
	}
	return all
}

func seconds(times []time.Duration) []float64 {
	all := make([]float64, len(times))
	for i, t := range times {
		all[i] = t.Seconds()
	}
	return all
}
