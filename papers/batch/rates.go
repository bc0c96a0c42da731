package batch

import (
	"math"
	"time"

	"gonum.org/v1/gonum/mat"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
)

const (
	// minRequests is the number of requests in the longest timeout below which only
	// batches of one are considered.
	minRequests = 1e-6
	// maxBatches is the number of largest batches in the longest timeout above which more
	// load makes no difference: each fills in less than a thousandth of the timeout.
	maxBatches = 1000
)

// Load is the mean rate in requests per second.
func (o Objective) Load() float64 {
	rate := o.Rate
	if o.Arrivals != nil {
		rate = o.Arrivals.Rate()
	}
	if !(rate > 0) {
		return 0
	}
	return min(rate, math.MaxFloat32)
}

// Process returns the process of the arrivals with its rate bounded, the shares' batch sizes that are
// worth trying with it, in their order, and the longest timeout. It fails if the arrivals are not valid
// or there is no batch size.
func (o Objective) Process(shares []Share) (m arrival.MAP, batches []int, longest time.Duration, err error) {
	if batches = sizes(shares); len(batches) == 0 {
		return m, nil, 0, errNothing
	}
	if longest = o.SLO; longest <= 0 {
		longest = o.horizon(shares, batches[len(batches)-1])
	}
	if o.Load()*longest.Seconds() < minRequests {
		batches = batches[:1]
	}
	m, err = o.bounded(longest, batches[len(batches)-1])
	return m, batches, longest, err
}

// horizon is the longest timeout if no SLO bounds it: the time in which the largest batch
// fills twice, but at most ten times the longest execution.
func (o Objective) horizon(shares []Share, largest int) time.Duration {
	most := 0.0
	for _, share := range shares {
		for _, b := range share.Batches {
			if b >= 1 && b <= len(share.Exec) {
				most = max(most, share.Exec[b-1].Seconds())
			}
		}
	}
	fill := 2 * float64(largest) / o.Load()
	return time.Duration(min(max(fill, 1e-3), max(1e-3, 10*most)) * float64(time.Second))
}

// bounded returns the process of the arrivals with its rate bounded. Below minRequests no
// request joins another, and above maxBatches every batch fills at once, so other rates make
// no difference.
func (o Objective) bounded(longest time.Duration, largest int) (arrival.MAP, error) {
	load := o.Load()
	bounded := min(max(load, minRequests/longest.Seconds()), maxBatches*float64(largest)/longest.Seconds())
	if o.Arrivals == nil || load == 0 {
		return arrival.Poisson(bounded), nil
	}
	if bounded == load {
		return *o.Arrivals, nil
	}
	return faster(*o.Arrivals, bounded/load)
}

// faster returns the process with all its rates multiplied.
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
