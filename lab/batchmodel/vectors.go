package batchmodel

import (
	"bytes"
	_ "embed" // the vectors
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/papers/batch/latency"
)

// Vector is a dispatching buffer with simulated percentiles of its latency.
type Vector struct {
	// Name and Arrival are labels for tables and results.
	Name    string `json:"Name"`
	Arrival string `json:"Arrival"`
	// D0 and D1 are the arrival process in 1/s. B is the batch size and T the timeout in
	// s. S[k-1] is the execution time in s of a batch of k.
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

// Bounds of a vectors file.
const (
	maxVectors = 10_000
	maxBatch   = 1024
	maxOrder   = 64
	maxSize    = 64 << 20
)

// builtin are 18 vectors with Poisson, MMPP(2) and MAP(2) arrivals, made for this project.
// Their percentiles come from 8 million simulated requests each.
//
//go:embed data/vectors.json
var builtin []byte

// Builtin returns the built-in vectors.
func Builtin() ([]Vector, error) { return ReadVectors(bytes.NewReader(builtin)) }

// ReadVectors reads a JSON array of objects with the fields of [Vector]. It ignores other
// fields. SimMeanBatch may be missing. An error names the vector and the field.
func ReadVectors(r io.Reader) ([]Vector, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxSize {
		return nil, fmt.Errorf("the file has more than %d MiB, the maximum", maxSize>>20)
	}
	var all []Vector
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("it must be a JSON array of vectors, such as [{\"Name\": …, \"D0\": [[-20]], \"D1\": [[20]], \"B\": 5, \"T\": 0.1, \"S\": […], \"SimP50\": …}]: %w", err)
	}
	if len(all) == 0 {
		return nil, errors.New("there is no vector: the array must have at least one")
	}
	if len(all) > maxVectors {
		return nil, fmt.Errorf("%d vectors are too many: the maximum is %d", len(all), maxVectors)
	}
	for i := range all {
		if err := all[i].check(); err != nil {
			return nil, fmt.Errorf("vector %d, %q: %w", i+1, all[i].Name, err)
		}
	}
	return all, nil
}

// check returns an error that names the first invalid field.
func (v *Vector) check() error {
	switch {
	case len(v.D0) == 0 || len(v.D1) == 0:
		return errors.New("D0 or D1 is missing: they are square matrices, such as [[-20]] and [[20]] for Poisson with 20 requests/s")
	case len(v.D0) > maxOrder || len(v.D1) > maxOrder:
		return fmt.Errorf("D0 or D1 has %d rows: the maximum is %d", max(len(v.D0), len(v.D1)), maxOrder)
	case v.B < 1 || v.B > maxBatch:
		return fmt.Errorf("B is %d: it must be a batch size from 1 to %d", v.B, maxBatch)
	case !(v.T >= 0 && v.T < 1e6):
		return fmt.Errorf("T is %v: it must be a timeout in s, from 0 to less than 1e6", v.T)
	case len(v.S) < v.B:
		return fmt.Errorf("S has %d times: it needs one for each of 1, 2, … %d requests", len(v.S), v.B)
	}
	for k, s := range v.S[:v.B] {
		if !(s > 0 && s < 1e6) {
			return fmt.Errorf("S[%d] is %v: it must be a time in s, above 0 and less than 1e6", k, s)
		}
	}
	for i, p := range v.percentiles() {
		if !(p > 0) || math.IsInf(p, 0) {
			return fmt.Errorf("SimP%v is %v: it must be a time in s, above 0", 100*quantiles[i], p)
		}
	}
	_, err := v.Buffer()
	return err
}

// quantiles are the compared quantiles of the latency.
var quantiles = [...]float64{0.50, 0.95, 0.99}

func (v *Vector) percentiles() [3]float64 { return [3]float64{v.SimP50, v.SimP95, v.SimP99} }

// Buffer returns the vector's buffer. It returns an error if D0 and D1 are not an arrival
// process.
func (v *Vector) Buffer() (latency.Buffer, error) {
	m, err := arrival.New(v.D0, v.D1)
	if err != nil {
		return latency.Buffer{}, fmt.Errorf("D0 and D1: %w", err)
	}
	return latency.Buffer{Arrivals: m, Batch: v.B, Timeout: v.T, Service: v.S[:v.B]}, nil
}

// Separate reports whether execution times differ by at least the timeout from each batch
// size to the next. BATCH's formula is meant to hold in this case (Eq. 9, case 4).
func (v *Vector) Separate() bool {
	for k := 1; k < v.B; k++ {
		if v.S[k]-v.S[k-1] < v.T {
			return false
		}
	}
	return true
}
