package batchmodel

import (
	"bytes"
	_ "embed" // the vectors
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/faas-infer/faas-infer/batching/arrival"
	"github.com/faas-infer/faas-infer/batching/latency"
)

// Vector is a dispatching buffer with the percentiles that it has been found to have.
type Vector struct {
	// Name and Arrival are for people.
	Name    string `json:"Name"`
	Arrival string `json:"Arrival"`
	// D0 and D1 are the arrival process in 1/s, B and T the batch size and the
	// timeout in s, S[k-1] the execution time in s of a batch of k.
	D0 [][]float64 `json:"D0"`
	D1 [][]float64 `json:"D1"`
	B  int         `json:"B"`
	T  float64     `json:"T"`
	S  []float64   `json:"S"`
	// The percentiles in s by simulation, and the mean batch.
	SimP50       float64 `json:"SimP50"`
	SimP95       float64 `json:"SimP95"`
	SimP99       float64 `json:"SimP99"`
	SimMeanBatch float64 `json:"SimMeanBatch"`
}

// Bounds of what is read.
const (
	maxVectors = 10_000
	maxBatch   = 1024
	maxOrder   = 64
	maxSize    = 64 << 20
)

// builtin are 18 vectors with Poisson, MMPP(2) and MAP(2) arrivals: each percentile is
// of 8 million simulated requests. They were made for this project.
//
//go:embed data/vectors.json
var builtin []byte

// Builtin are the vectors that the program has.
func Builtin() ([]Vector, error) { return ReadVectors(bytes.NewReader(builtin)) }

// ReadVectors reads a list of vectors, as the program's own: a JSON array of objects
// with the fields of [Vector]; others are ignored. SimMeanBatch may be missing. An
// error names the vector and the field.
func ReadVectors(r io.Reader) ([]Vector, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxSize {
		return nil, fmt.Errorf("more than %d MiB are too much", maxSize>>20)
	}
	var all []Vector
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("it must be a JSON array of vectors, as [{\"Name\": …, \"D0\": [[-20]], \"D1\": [[20]], \"B\": 5, \"T\": 0.1, \"S\": […], \"SimP50\": …}]: %w", err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no vector in it")
	}
	if len(all) > maxVectors {
		return nil, fmt.Errorf("%d vectors are too many: at most %d", len(all), maxVectors)
	}
	for i := range all {
		if err := all[i].check(); err != nil {
			return nil, fmt.Errorf("vector %d, %q: %w", i+1, all[i].Name, err)
		}
	}
	return all, nil
}

// check names the field that is wrong.
func (v *Vector) check() error {
	switch {
	case len(v.D0) == 0 || len(v.D1) == 0:
		return fmt.Errorf("D0 or D1 is missing: they are square matrices, [[-20]] and [[20]] for Poisson with 20 requests/s")
	case len(v.D0) > maxOrder || len(v.D1) > maxOrder:
		return fmt.Errorf("D0 has %d rows: at most %d", max(len(v.D0), len(v.D1)), maxOrder)
	case v.B < 1 || v.B > maxBatch:
		return fmt.Errorf("B is %d: a batch size from 1 to %d", v.B, maxBatch)
	case !(v.T >= 0 && v.T < 1e6):
		return fmt.Errorf("T is %v: a timeout in s, 0 or more", v.T)
	case len(v.S) < v.B:
		return fmt.Errorf("S has %d times: it needs one for each of 1, 2, … %d requests", len(v.S), v.B)
	}
	for k, s := range v.S[:v.B] {
		if !(s > 0 && s < 1e6) {
			return fmt.Errorf("S[%d] is %v: a time in s, above 0", k, s)
		}
	}
	for i, p := range v.percentiles() {
		if !(p > 0) || math.IsInf(p, 0) {
			return fmt.Errorf("SimP%v is %v: a time in s, above 0", 100*quantiles[i], p)
		}
	}
	_, err := v.Buffer()
	return err
}

// quantiles are those that are compared.
var quantiles = [...]float64{0.50, 0.95, 0.99}

func (v *Vector) percentiles() [3]float64 { return [3]float64{v.SimP50, v.SimP95, v.SimP99} }

// Buffer is what is to be analysed. An error is about D0 and D1.
func (v *Vector) Buffer() (latency.Buffer, error) {
	m, err := arrival.New(v.D0, v.D1)
	if err != nil {
		return latency.Buffer{}, fmt.Errorf("D0 and D1: %w", err)
	}
	return latency.Buffer{Arrivals: m, Batch: v.B, Timeout: v.T, Service: v.S[:v.B]}, nil
}

// Separate reports whether execution times differ by more than the timeout from one
// batch size to the next: where BATCH's formula is meant to hold (Eq. 9, case 4).
func (v *Vector) Separate() bool {
	for k := 1; k < v.B; k++ {
		if v.S[k]-v.S[k-1] < v.T {
			return false
		}
	}
	return true
}
