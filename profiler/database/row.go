// Package database keeps operators' profiles: how long each operator took at
// each batch size and share of CPU and GPU, on which engine and machine (INFless
// §3.3, "operator profile database"). Pure: it knows the rows and the form of
// their file; profiler/measuring/operators is the file.
package database

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/faas-infer/faas-infer/profiler/operator"
)

// Row is one measured operator profile, the paper's ⟨p, b, c, g, t⟩: p is in
// Operator and Features.
type Row struct {
	// Operator is operator.Operator's Key: its type, attributes and shapes.
	Operator string
	// Family is operator.Operator's Family: what operators with one law of
	// cost have in common.
	Family string
	// Features are the operator's work at this batch.
	Features operator.Features
	// Batch is b.
	Batch int
	// Millicores is c: 1000 is one whole core, 2000 two threads on a core each,
	// 500 one thread under a quota of half a core.
	Millicores int
	// GPU is g in % of one GPU's SMs; 0 is without a GPU.
	GPU int
	// Cold says that weights and inputs came from memory and not from the
	// last-level cache.
	Cold bool
	// Median, P95 and CPU are times of one execution in µs; CPU is processor
	// time summed over threads, 0 where it was not taken.
	Median, P95, CPU float64
	// Spread is how far the runs lay apart: their interquartile range over
	// their median.
	Spread float64
	// Runs is how many executions the figures come from.
	Runs int
	// Noisy says that the machine was not quiet: the times are estimates, to be
	// taken again when there is an occasion.
	Noisy bool
	// Engine and Machine say what the times hold for: "onnxruntime 1.31.1",
	// "AMD EPYC × 2".
	Engine, Machine string
	// MeasuredAt decides between two rows of the same thing.
	MeasuredAt time.Time
}

// Bounds of what a row may say; more is damage or a mistake.
const (
	maxKey   = 64 << 10
	maxBatch = 1 << 20
	maxCPU   = 1 << 24
	maxMicro = float64(time.Hour / time.Microsecond)
)

// Validate says what is wrong with a row, or nil.
func (r Row) Validate() error {
	for _, text := range []struct{ name, value string }{
		{"operator", r.Operator}, {"family", r.Family}, {"engine", r.Engine}, {"machine", r.Machine},
	} {
		switch {
		case text.value == "":
			return fmt.Errorf("a row without %s", text.name)
		case len(text.value) > maxKey:
			return fmt.Errorf("a row whose %s has %d bytes, more than %d", text.name, len(text.value), maxKey)
		case !utf8.ValidString(text.value):
			return fmt.Errorf("a row whose %s %q is no UTF-8", text.name, text.value)
		}
	}
	switch f := r.Features; {
	case r.Batch < 1 || r.Batch > maxBatch:
		return r.wrong("batch %d is not between 1 and %d", r.Batch, maxBatch)
	case r.Millicores < 1 || r.Millicores > maxCPU:
		return r.wrong("%d millicores are not between 1 and %d", r.Millicores, maxCPU)
	case r.GPU < 0 || r.GPU > 100:
		return r.wrong("a GPU share of %d %% is not between 0 and 100", r.GPU)
	case r.Runs < 1:
		return r.wrong("it comes from %d runs", r.Runs)
	case min(f.FLOPs, f.InBytes, f.OutBytes, f.WeightBytes) < 0:
		return r.wrong("its work is negative: %+v", f)
	case !(r.Spread >= 0) || math.IsInf(r.Spread, 0):
		return r.wrong("a spread of %v", r.Spread)
	case r.MeasuredAt.IsZero() || r.MeasuredAt.Year() < 1 || r.MeasuredAt.Year() > 9999:
		return r.wrong("it was measured at %v", r.MeasuredAt)
	}
	for _, t := range []float64{r.Median, r.P95, r.CPU} {
		if !(t >= 0 && t <= maxMicro) {
			return r.wrong("it took %v µs", t)
		}
	}
	if r.Median == 0 {
		return r.wrong("it took 0 µs")
	}
	return nil
}

func (r Row) wrong(format string, args ...any) error {
	name, _, _ := strings.Cut(r.Operator, "\n")
	if cut := []rune(name); len(cut) > 80 {
		name = string(cut[:80]) + "…"
	}
	return fmt.Errorf("row of %s: %s", name, fmt.Sprintf(format, args...))
}

// point is what tells the rows of one operator in one set apart.
type point struct {
	batch, millicores, gpu int
	cold                   bool
}

func (r Row) point() point { return point{r.Batch, r.Millicores, r.GPU, r.Cold} }

// order sorts the rows of one operator: by share, warm before cold, by batch.
func (p point) order(q point) int {
	return cmp.Or(cmp.Compare(p.gpu, q.gpu), cmp.Compare(p.millicores, q.millicores),
		cmp.Compare(number(p.cold), number(q.cold)), cmp.Compare(p.batch, q.batch))
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
