// Package database keeps operators' profiles: the time of each operator at each batch
// size and share of CPU and GPU, by engine and machine (INFless §3.3, "operator profile
// database"). It holds the rows in memory and encodes and decodes their file; package
// profiler/measuring/operators reads and writes the file. Begin with [Row], [Database]
// and [Decode].
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
	// Family is operator.Operator's Family. Operators of a family share a law of
	// cost.
	Family string
	// Features are the operator's work at this batch.
	Features operator.Features
	// Batch is the batch size b.
	Batch int
	// Millicores is c: 1000 is one whole core, 2000 two threads on a core each,
	// 500 one thread under a quota of half a core.
	Millicores int
	// GPU is g in % of one GPU's SMs; 0 is without a GPU.
	GPU int
	// Cold is true if weights and inputs came from memory and not from the
	// last-level cache.
	Cold bool
	// Median, P95 and CPU are times of one execution in µs; CPU is processor
	// time summed over threads, 0 if it was not measured.
	Median, P95, CPU float64
	// Spread is the interquartile range of the runs over their median.
	Spread float64
	// Runs is the number of measured executions.
	Runs int
	// Noisy is true if the machine was not quiet. The times are then estimates and
	// should be measured again.
	Noisy bool
	// Engine and Machine are those of the times, as "onnxruntime 1.32.0" and
	// "AMD EPYC × 2".
	Engine, Machine string
	// MeasuredAt is the time of the measurement. The later of two rows of the same
	// point counts.
	MeasuredAt time.Time
}

// The limits of a valid row.
const (
	maxKey   = 64 << 10
	maxBatch = 1 << 20
	maxCPU   = 1 << 24
	maxMicro = float64(time.Hour / time.Microsecond)
)

// Validate returns an error that names the first invalid field of a row.
func (r Row) Validate() error {
	for _, text := range []struct{ name, value string }{
		{"operator", r.Operator}, {"family", r.Family}, {"engine", r.Engine}, {"machine", r.Machine},
	} {
		switch {
		case text.value == "":
			return fmt.Errorf("a row has no %s", text.name)
		case len(text.value) > maxKey:
			return fmt.Errorf("a row's %s has %d bytes, more than %d", text.name, len(text.value), maxKey)
		case !utf8.ValidString(text.value):
			return fmt.Errorf("a row's %s %q is not UTF-8", text.name, text.value)
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
		return r.wrong("its spread is %v", r.Spread)
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

// point identifies a row among those of one operator in one set.
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
