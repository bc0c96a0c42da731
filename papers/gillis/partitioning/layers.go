package partitioning

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/papers/gillis/forkjoin"
	"github.com/faas-infer/faas-infer/profiler"
)

// LayerTimes are the predicted times of a model's layers on this machine, for planning how
// the model is cut (Gillis §IV-A: the sum of the predicted times of the operators).
type LayerTimes struct {
	// Ms are the times of the layers, each alone on an instance, in ms.
	Ms []float64
	// perFLOP is the time of a multiply-add, by the operator's name.
	perFLOP map[string]float64
}

// Time is the time of an operator's work in ms: its share of its layer's time, by
// multiply-adds. An operator without any takes no time of its own.
func (l *LayerTimes) Time(w cut.Work) float64 { return l.perFLOP[w.Name] * float64(w.FLOPs) }

// Layers predicts the times of a model's layers for batches of rows. Each layer is prepared
// as a model of its own, and its operators are measured if too little is known of them.
// progress is told how many layers are done.
func Layers(ctx context.Context, o Instance, m *cut.Model, weights cut.Source, rows int, progress func(done, total int)) (*LayerTimes, error) {
	out := &LayerTimes{perFLOP: make(map[string]float64)}
	layers := m.Layers()
	for i := range layers {
		progress(i, len(layers))
		g, err := m.Group(i, i+1)
		if err != nil {
			return nil, err
		}
		parts, err := g.Cut(g.Whole())
		if err != nil {
			return nil, err
		}
		times, err := PartTimes(ctx, o, parts[0], weights, rows, 0)
		if err != nil {
			return nil, fmt.Errorf("layer %d (%s): %w", i, layers[i].Name, err)
		}
		ms := times[len(times)-1].Median / 1000
		out.Ms = append(out.Ms, ms)
		work := parts[0].Work(rows)
		flops := int64(0)
		for _, w := range work {
			flops += w.FLOPs
		}
		for _, w := range work {
			if flops > 0 {
				out.perFLOP[w.Name] = ms / float64(flops)
			}
		}
	}
	progress(len(layers), len(layers))
	return out, nil
}

// Instance is an instance of this machine, as times are predicted for it.
type Instance struct {
	profile.PredictOptions
	// CPU is its share in millicores, 0 for a core. It has a thread for each core of it.
	CPU int
	// Prepare prepares the model of a large part below a directory. A process that prepares
	// grows by several times the part, so it had better be another one. nil prepares here.
	Prepare func(ctx context.Context, file, cache string) error
}

// largePart is the size in bytes of weights from which Prepare is worth another process.
const largePart = 64 << 20

// threads is the number of the instance's threads.
func (o *Instance) threads() int { return max(1, (o.CPU+999)/1000) }

// PartTimes predicts the times of a part of a model on an instance, for batches of up to rows
// rows: powers of two and rows itself, without those above the first that takes longer than
// until, if that is not 0. Under a quota they are the mean times.
func PartTimes(ctx context.Context, o Instance, p *cut.Part, weights cut.Source, rows int, until time.Duration) (times []profiler.Measurement, err error) {
	dir, err := os.MkdirTemp("", "faas-infer-part-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file, err := forkjoin.NewWriter(weights).Write(dir, p)
	if err != nil {
		return nil, err
	}
	if o.Prepare != nil && p.WeightBytes() >= largePart {
		if err := o.Prepare(ctx, file, dir); err != nil {
			return nil, err
		}
	}
	o.MaxBatch, o.Threads, o.Prepared, o.Sketch, o.Until = rows, o.threads(), dir, false, until
	found, err := o.Model(ctx, file)
	if err != nil {
		return nil, err
	}
	for _, m := range found.Profile.Measurements {
		if m.Threads == o.Threads {
			mean := profiler.MeanUnderQuota(m.Median, m.CPU, o.CPU)
			m.P95 *= mean / m.Median
			m.Median = mean
			times = append(times, m)
		}
	}
	slices.SortFunc(times, func(a, b profiler.Measurement) int { return a.Batch - b.Batch })
	if len(times) == 0 || times[0].Batch != 1 {
		return nil, errors.New("its times are not predicted")
	}
	return times, nil
}
