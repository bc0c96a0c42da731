// Package latency calculates the distribution of latencies behind BATCH's dispatching
// buffer (BATCH, SC 2020, §III-B and §IV), exactly,
// for any Markovian arrival process. It covers execution times with spread and a bounded
// number of instances. It is pure: the same buffer gives the same
// figures every time. It does not choose a batch size or timeout; package batch does.
// Begin with [Buffer].
package latency

import (
	"fmt"
	"math"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
)

// Buffer is BATCH's dispatching buffer. A batch leaves it when it has Batch requests,
// or when its first request has waited for Timeout seconds, and executes at once.
// Service[k-1] is the execution time in s of a batch of k; entries beyond Batch are
// ignored. With Batch 1 or Timeout 0, each request is a batch of its own.
type Buffer struct {
	Arrivals arrival.MAP
	Batch    int
	Timeout  float64
	Service  []float64
}

// validate returns the first error of the buffer.
func (b Buffer) validate() error {
	if err := b.Arrivals.Validate(); err != nil {
		return err
	}
	if err := checkForming(b.Batch, b.Timeout); err != nil {
		return err
	}
	return checkService(b.Batch, b.Service)
}

func checkForming(batch int, timeout float64) error {
	if batch < 1 || batch > maxBatch {
		return fmt.Errorf("buffer: a batch size of %d: give 1 to %d", batch, maxBatch)
	}
	if !(timeout >= 0) || math.IsInf(timeout, 0) {
		return fmt.Errorf("buffer: a timeout of %v s: give 0 or more", timeout)
	}
	return nil
}

// maxBatch is the largest batch: the work grows with its square.
const maxBatch = 1024

func checkService(batch int, service []float64) error {
	if len(service) < batch {
		return fmt.Errorf("buffer: there are %d execution times for batches of up to %d: give one for every size from 1 on", len(service), batch)
	}
	for k, s := range service[:batch] {
		if !(s >= 0) || math.IsInf(s, 0) {
			return fmt.Errorf("buffer: the execution time of a batch of %d is %v s: give 0 or more", k+1, s)
		}
	}
	return nil
}

// Exact returns the distribution of latencies without approximation. It fails if a
// field is not valid.
func (b Buffer) Exact() (*Distribution, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	w, err := b.waits()
	if err != nil {
		return nil, err
	}
	return w.Serve(b.Service)
}

// waits analyses how long requests wait before their batch leaves.
func (b Buffer) waits() (*Waits, error) {
	a, err := NewAnalysis(b.Arrivals, b.Batch)
	if err != nil {
		return nil, err
	}
	return a.Waits(b.Batch, b.Timeout)
}
