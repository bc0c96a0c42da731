package profile

import (
	"context"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/cop"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// usualLengths are the lengths for which times are found: those of texts.
var usualLengths = []int64{16, 32, 64, 128, 256, 512}

// lengthsOf lists the lengths for which a model's times are found, with its usual one and, if one is stated, the
// largest. most is that of texts, 0 if it is not stated.
func lengthsOf(l *model.FreeLength, largest tensor.Shapes, most int) []int64 {
	limit := l.Max(largest)
	if most > 0 && (limit == 0 || int64(most) < limit) {
		limit = int64(most)
	}
	all := append(slices.Clone(usualLengths), l.Length)
	if limit > 0 {
		for n := 2 * usualLengths[len(usualLengths)-1]; n < limit; n *= 2 {
			all = append(all, n)
		}
		all = append(all, limit)
		all = slices.DeleteFunc(all, func(n int64) bool { return n > limit })
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// lengths are those for which a model's times are found.
func (o *PredictOptions) lengths(l *model.FreeLength) []int64 {
	return lengthsOf(l, o.MaxShapes, o.MaxLength)
}

// lengths are those for which a model's times are found.
func (o *Options) lengths(l *model.FreeLength) []int64 { return lengthsOf(l, o.MaxShapes, o.MaxLength) }

// timesOf returns the times in µs of batches of 1, 2, 4, … rows with a length, nil if they are not
// known.
type timesOf func(length int64) []float64

// bySize finds how a model's times change with its free length, nil if it has none or if no other
// length has times.
func bySize(l *model.FreeLength, lengths []int64, times timesOf) *profiler.Sizes {
	base := times(l.Length)
	if len(base) == 0 {
		return nil
	}
	out := &profiler.Sizes{Unit: l.Unit, Length: l.Length, Elements: l.Elements(l.Length)}
	for _, n := range lengths {
		found := base
		if n != l.Length {
			found = times(n)
		}
		if len(found) < len(base) {
			continue
		}
		t := profiler.SizeTime{Length: n, Elements: l.Elements(n)}
		for i := range base {
			t.Factors = append(t.Factors, found[i]/base[i])
		}
		out.Times = append(out.Times, t)
	}
	if len(out.Times) < 2 {
		return nil
	}
	out.Times = rising(out.Times)
	return out
}

// rising returns times by length, none of which is less than that of a shorter one: a longer text never takes less.
func rising(times []profiler.SizeTime) []profiler.SizeTime {
	for k := 1; k < len(times); k++ {
		for i, least := range times[k-1].Factors[:min(len(times[k-1].Factors), len(times[k].Factors))] {
			times[k].Factors[i] = max(times[k].Factors[i], least)
		}
	}
	return times
}

// predictSizes predicts the times of a subject by its free length from its operators. They are nil
// if it has none, or if too little is known of the operators.
func (o *PredictOptions) predictSizes(s *Subject, p *Predictor) (*profiler.Sizes, error) {
	if !s.Prepared.AsInFile() {
		return nil, nil
	}
	l, err := s.Model.FreeLength(s.Shapes)
	if l == nil || err != nil {
		return nil, err
	}
	return bySize(l, o.lengths(l), func(length int64) (found []float64) {
		g, err := s.optimised(l.Shapes(length))
		if err != nil {
			return nil // The model does not run with this length.
		}
		at, err := p.Predict(g, BatchesUpTo(o.MaxBatch), []int{1}, o.combine)
		if err != nil || len(at.Missing) > 0 {
			return nil
		}
		for _, c := range at.Configs {
			found = append(found, c.Median)
		}
		return found
	}), nil
}

// measuredWithin bounds how long a predicted model is measured by length.
const measuredWithin = time.Second

// correctSizes measures one row of each length and corrects the predicted times by length ([corrected]).
func (o *PredictOptions) correctSizes(ctx context.Context, s *Subject, p *cop.Prediction) error {
	if s.sizes == nil {
		return nil
	}
	within := measuredWithin
	if o.Sketch {
		within = sketchedSizes // Requests wait for it.
	}
	measured, err := measureSizes(ctx, s.Model, s.Prepared, s.Shapes, o.lengths, 1, within)
	if err != nil || measured == nil {
		return err
	}
	var base []float64
	for _, c := range p.Configs {
		if c.Threads == 1 {
			base = append(base, c.Median)
		}
	}
	s.sizes = corrected(s.sizes, measured, base)
	return nil
}

// corrected adds to predicted times by length what one row of a length took longer when it was measured. base are the
// times of the usual length, of batches of 1, 2, 4, … rows. Operators are measured one by one, with their weights in the
// core's cache. A short text is over before the weights of a whole model have come from memory: 16 tokens took 7.5 ms
// instead of the 4.5 predicted. A batch waits for its weights once, however many rows it has.
func corrected(predicted, measured *profiler.Sizes, base []float64) *profiler.Sizes {
	out := *predicted
	out.Times = nil
	for _, t := range predicted.Times {
		longer := 0.0
		if at := slices.IndexFunc(measured.Times, func(m profiler.SizeTime) bool { return m.Length == t.Length }); at >= 0 {
			longer = measured.Times[at].Factors[0] - t.Factors[0]
		}
		t.Factors = slices.Clone(t.Factors)
		for i, f := range t.Factors {
			if i < len(base) {
				t.Factors[i] = max(f/2, f+longer*base[0]/base[i])
			}
		}
		out.Times = append(out.Times, t)
	}
	out.Times = rising(out.Times)
	return &out
}

// optimised is the graph that the engine runs with these sizes.
func (s *Subject) optimised(shapes tensor.Shapes) (*operator.Graph, error) {
	if file := s.Prepared.GraphFile(); file != "" {
		return readOperators(file, shapes)
	}
	return operator.ReadSized(s.Model, shapes)
}

const (
	// sketchedSizes bounds how long a sketch measures further lengths: requests wait for it.
	sketchedSizes = 400 * time.Millisecond
	// measuredSizes bounds it for a full measurement.
	measuredSizes = time.Minute
)

// measureSizes measures the times of a prepared model by its free length, for those that lengths returns and for batches up to
// maxBatch and at most four. It is nil if the model has no free length. A length with which the
// model does not run is left out, and so are the longest ones once the measurement has taken
// within, except the usual one and the smallest. So is a model whose batch is not in front of all tensors.
func measureSizes(
	ctx context.Context, m *model.Model, prepared onnxruntime.Prepared, usual tensor.Shapes, lengths func(*model.FreeLength) []int64,
	maxBatch int, within time.Duration,
) (*profiler.Sizes, error) {
	if !prepared.AsInFile() {
		return nil, nil
	}
	l, err := m.FreeLength(usual)
	if l == nil || err != nil {
		return nil, err
	}
	e, err := onnxruntime.Open(onnxruntime.Options{Prepared: prepared.Dir, Threads: 1})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	plan := profiler.Plan{
		Batches: BatchesUpTo(min(maxBatch, 4)), Threads: []int{1}, MinRuns: 3, MinTime: 10 * time.Millisecond, MaxTime: 150 * time.Millisecond,
		Now: time.Now, CPU: processorTime, Waited: waitedTime,
	}
	if within == sketchedSizes {
		plan.MinRuns, plan.MaxTime = 2, 50*time.Millisecond
	}
	began, known := time.Now(), 0
	found := bySize(l, lengths(l), func(length int64) (times []float64) {
		sized, _, err := m.Sized(l.Shapes(length))
		if err != nil || time.Since(began) > within && known >= 2 {
			return nil
		}
		open := func(int) (profiler.Runner, error) {
			return kept{samplesOf(e, sized)}, nil
		}
		points, err := profiler.Measure(ctx, open, plan, nil)
		if err != nil {
			return nil
		}
		for _, p := range points {
			times = append(times, p.Median)
		}
		known++ // On a busy machine two lengths are better than none.
		return times
	})
	return found, ctx.Err()
}

// kept is a runner whose engine somebody else closes.
type kept struct{ *sampleRunner }

// Close implements [profiler.Runner].
func (kept) Close() error { return nil }
