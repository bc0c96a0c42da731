package batchmodel

import (
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/lab/arrivals"
	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/papers/batch/latency"
)

// azureTrace is the name of the recording in lab/arrivals.
const azureTrace = "azure-llm"

// azureBuffers are the buffers that the recording is sent through, with S_k = 50 + 20k ms.
var azureBuffers = []struct {
	batch   int
	timeout time.Duration
}{{8, 500 * time.Millisecond}, {16, 2 * time.Second}}

func azureTimes(batch int) []float64 {
	times := make([]float64, batch)
	for k := range times {
		times[k] = 0.05 + 0.02*float64(k+1)
	}
	return times
}

// Driven compares a replay of a recording through a buffer with the exact model for the
// process fitted to the recording.
type Driven struct {
	Batch   int
	Timeout time.Duration
	// Replayed and Model are the percentiles in s.
	Replayed, Model [3]float64
	// Batches and Expected are the mean batch sizes, replayed and by the model.
	Batches, Expected float64
}

// Fitted is the process fitted to a recording, and the recording's moments.
type Fitted struct {
	Moments arrival.Moments
	Process arrival.MAP
	Note    arrival.Note
}

// azure sends the recording through the buffers.
func azure() (Fitted, []Driven, error) {
	t, err := arrivals.OpenTrace(azureTrace)
	if err != nil {
		return Fitted{}, nil, err
	}
	times := t.Columns[0].Times
	fit, err := Fit(times)
	if err != nil {
		return Fitted{}, nil, fmt.Errorf("trace %s: %w", azureTrace, err)
	}
	record, err := latency.NewTrace(Gaps(times))
	if err != nil {
		return Fitted{}, nil, fmt.Errorf("trace %s: %w", azureTrace, err)
	}
	var all []Driven
	for _, b := range azureBuffers {
		exec := azureTimes(b.batch)
		d, err := latency.Buffer{Arrivals: fit.Process, Batch: b.batch, Timeout: b.timeout.Seconds(), Service: exec}.Exact()
		if err != nil {
			return Fitted{}, nil, err
		}
		r, err := record.Replay(b.batch, b.timeout.Seconds(), exec, latency.Reality{})
		if err != nil {
			return Fitted{}, nil, err
		}
		one := Driven{Batch: b.batch, Timeout: b.timeout, Batches: r.MeanBatch(), Expected: d.MeanBatch()}
		for i, q := range quantiles {
			one.Replayed[i], one.Model[i] = r.Quantile(q), d.Quantile(q)
		}
		all = append(all, one)
	}
	return fit, all, nil
}

// Fit fits a process to at least two recorded times.
func Fit(times []time.Duration) (Fitted, error) {
	w := arrival.NewWindow(max(1, len(times)-1))
	for i := 1; i < len(times); i++ {
		w.Add(times[i] - times[i-1])
	}
	f := Fitted{Moments: w.Moments()}
	var err error
	f.Process, f.Note, err = arrival.Fit(f.Moments)
	return f, err
}

// Gaps returns the times in s between consecutive requests.
func Gaps(times []time.Duration) []float64 {
	var all []float64
	for i := 1; i < len(times); i++ {
		all = append(all, (times[i] - times[i-1]).Seconds())
	}
	return all
}
