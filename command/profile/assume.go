package profile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/measuring"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

const (
	// assumedMargin is the margin of assumed times: instances are chosen for runs that take half as long again.
	assumedMargin = 0.5
	// assumedDoubt is by how much a run may take longer than assumed and still end within the bound.
	assumedDoubt = 4
	// assumedBandwidth is the rate in bytes/µs at which an operator is assumed to read and write: 4 GB/s, less than a
	// core has of any server of the last ten years.
	assumedBandwidth = 4000
	// assumedCall is what one operator takes beside its work, in µs.
	assumedCall = 5
	// slowArithmetic is by how much an operator is assumed to calculate slower than a product of matrices, unless it
	// is one.
	slowArithmetic = 16
)

// products are the families of operators that calculate about as fast as the yardstick does. Other convolutions, such
// as depthwise ones, do not.
var products = map[string]bool{"Conv": true, "Conv/pointwise": true, "Gemm": true, "MatMul/weight": true}

// errNotAssumed says why no times can be assumed.
var errNotAssumed = errors.New("no times can be assumed: the model is small, its sizes are free, or what it computes " +
	"is not known; sketch it")

// assume returns a provisional profile of a large model that follows from the work of its operators and the pace of
// this machine. It neither runs nor loads the model: its first instance can start while its times are found.
func (o *PredictOptions) assume(ctx context.Context, models *Subjects, file string) (p Predicted, err error) {
	s, err := models.Begin(file, o.Content)
	if err != nil {
		return p, err
	}
	if !s.Prepared.Linked() || !s.Prepared.AsInFile() || len(s.Optimised.Unknown) > 0 {
		return p, errNotAssumed
	}
	if l, err := s.Model.FreeLength(s.Shapes); l != nil || err != nil {
		return p, errNotAssumed
	}
	product, err := measuring.ReadYardstick()
	if err != nil {
		return p, err
	}
	took := assumedTime(s.Optimised, measuring.YardstickFLOPs/product)
	if assumedDoubt*took > float64(o.Until.Microseconds()) {
		return p, fmt.Errorf("no times can be assumed: a run may take %.0f ms, and it must take %v at most; sketch it",
			assumedDoubt*took/1000, o.Until)
	}
	p.Subject = s
	p.Profile = &profiler.Profile{
		Model: s.Prepared.Content, Engine: onnxruntime.Name(), Machine: report.Machine(), Provisional: true,
		Yardstick: product, Longest: o.Longest, MeasuredAt: time.Now(), Payloads: payloadsOf(ctx, s),
		Measurements: []profiler.Measurement{
			{Batch: 1, Threads: 1, Median: took, P95: took, CPU: took, Predicted: true, Margin: assumedMargin},
		},
	}
	o.setMemory(p.Profile, s)
	return p, nil
}

// assumedTime is the time in µs of one run with one row on one thread, on a core that does so many FLOPs in a µs.
func assumedTime(g *operator.Graph, pace float64) (us float64) {
	for _, n := range g.Nodes {
		op := g.Operators[n.Operator]
		if op.View {
			continue
		}
		work := op.Features(1)
		arithmetic := float64(work.FLOPs) / pace
		if !products[op.Family()] {
			arithmetic *= slowArithmetic
		}
		us += assumedCall + arithmetic + float64(work.InBytes+work.OutBytes+work.WeightBytes)/assumedBandwidth
	}
	return us
}

// setMemory estimates the memory of the full profile that replaces a provisional one: an instance keeps the memory
// that it starts with.
func (o *PredictOptions) setMemory(p *profiler.Profile, s *Subject) {
	largest, one := 1, p.Measurements[0].Median
	for largest < o.MaxBatch && (o.Until == 0 || float64(largest)*one <= float64(o.Until.Microseconds())) {
		largest = min(2*largest, o.MaxBatch)
	}
	graph := o.roomiest(s)
	p.Memory, p.Own = residentOf(graph, largest), ownOf(s, graph, largest)
}
