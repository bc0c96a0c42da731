package fidelity

import (
	"bytes"
	"context"
	"fmt"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Namespace is the suffix that the provider adds to functions' names.
const Namespace = ".openfaas-fn"

// Counts are a provider's metrics of one function.
type Counts struct {
	// Batches is the number of executed batches, Requests the number of their requests,
	// Exec the sum of their times in the engine.
	Batches, Requests float64
	Exec              time.Duration
	// Queued is the number of requests that waited for their batches, Queue the sum of
	// these waits.
	Queued float64
	Queue  time.Duration
	// Sizes counts batches by classes of sizes.
	Sizes []Class
}

// Class is the number of batches with sizes from Least to Largest.
type Class struct{ Least, Largest, Batches float64 }

// since returns the difference to the earlier counts o.
func (c Counts) since(o Counts) Counts {
	d := Counts{Batches: c.Batches - o.Batches, Requests: c.Requests - o.Requests, Exec: c.Exec - o.Exec, Queued: c.Queued - o.Queued, Queue: c.Queue - o.Queue}
	for i, s := range c.Sizes {
		if i < len(o.Sizes) {
			s.Batches -= o.Sizes[i].Batches
		}
		d.Sizes = append(d.Sizes, s)
	}
	return d
}

// counted reads the provider's metrics of a function.
func (s *Server) counted(ctx context.Context, function string) (Counts, error) {
	text, err := s.get(ctx, "/metrics")
	if err != nil {
		return Counts{}, err
	}
	return parse(text, function+Namespace)
}

// parse reads metrics in Prometheus' text format.
func parse(text []byte, function string) (Counts, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return Counts{}, fmt.Errorf("the provider's metrics: %w", err)
	}
	histogram := func(name string) *dto.Histogram {
		for _, m := range families["faas_infer_"+name].GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "function" && l.GetValue() == function {
					return m.GetHistogram()
				}
			}
		}
		return nil // The function has no requests yet.
	}
	batch, exec, queue := histogram("batch_size"), histogram("exec_duration_seconds"), histogram("queue_duration_seconds")
	c := Counts{
		Batches: float64(batch.GetSampleCount()), Requests: batch.GetSampleSum(), Exec: seconds(exec.GetSampleSum()),
		Queued: float64(queue.GetSampleCount()), Queue: seconds(queue.GetSampleSum()),
	}
	before, least := 0.0, 1.0
	for _, b := range batch.GetBucket() {
		n := float64(b.GetCumulativeCount())
		c.Sizes = append(c.Sizes, Class{least, b.GetUpperBound(), n - before})
		before, least = n, b.GetUpperBound()+1
	}
	return c, nil
}
