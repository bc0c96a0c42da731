package promise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/attainment"
	"github.com/faas-infer/faas-infer/profiler"
)

// model has the true times of a model on a core, in µs: base + b·row for a batch of b in the engine, and
// beside it perBatch + b·handling to read the requests and to answer. They are round numbers near those
// that this project's machines have.
type model struct{ base, row float64 }

// models are the models of the attainment scenarios.
var models = map[string]model{
	"mnist": {200, 120}, "dssm": {3500, 150}, "lstm-2365": {900, 3300}, "resnet-50": {4000, 72_000},
	"textcnn-69": {2500, 1800}, "bert-small": {2500, 11_000}, "handler": {7500, 350}, "keras": {1400, 60},
}

// handling is the time in µs to read one request and to answer it, by payload. perBatch is that of a batch.
var handling = map[attainment.Payload]float64{attainment.Binary: 40, attainment.JSON: 320, attainment.Image: 6500}

const perBatch = 50

// The spread of executions: σ of the logarithm, and how many are held up by as long as they take, on average.
const (
	sigma  = 0.06
	stalls = 0.003
)

// largest is the largest batch of every model.
const largest = 32

// truth is how long a function's executions really take. It implements [sim.Truth].
type truth struct {
	model
	handling float64
}

// newTruth returns the times of a scenario's function.
func newTruth(f attainment.Function) (truth, error) {
	m, ok := models[f.Model]
	if !ok {
		return truth{}, fmt.Errorf("no times are known for the model %q", f.Model)
	}
	return truth{m, handling[f.Payload]}, nil
}

// engine is the time of a batch in the engine, and beside that outside it, both in µs.
func (t truth) engine(b int) (in, beside float64) {
	return t.base + float64(b)*t.row, perBatch + float64(b)*t.handling
}

// Exec implements [sim.Truth].
func (t truth) Exec(_ cluster.Config, b int) (time.Duration, bool) {
	in, beside := t.engine(b)
	return microseconds(in + beside), b >= 1 && b <= largest
}

// Factor implements [sim.Truth].
func (t truth) Factor(r *rand.Rand) float64 {
	f := math.Exp(sigma*r.NormFloat64() - sigma*sigma/2)
	if r.Float64() < stalls {
		f += r.ExpFloat64()
	}
	return f
}

// Quota implements [sim.Truth].
func (t truth) Quota(c cluster.Config) (part, period time.Duration) {
	if c.CPU >= 1000 {
		return 0, 0
	}
	return time.Duration(c.CPU) * profiler.QuotaPeriod / 1000, profiler.QuotaPeriod
}

// tail is the quantile of Factor.
func (t truth) tail(q float64) float64 {
	r := rand.New(rand.NewPCG(1, 2))
	all := make([]float64, 200_000)
	for i := range all {
		all[i] = t.Factor(r)
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

// capacity is the rate in requests/s of one core with batches of at most half the objective.
func (t truth) capacity(slo time.Duration) float64 {
	best := 0.0
	for b := 1; b <= largest; b++ {
		if exec, _ := t.Exec(cluster.Config{}, b); b == 1 || exec <= slo/2 {
			best = max(best, float64(b)/exec.Seconds())
		}
	}
	return 0.85 * best
}

// predicted is the profile of the model that the scheduler gets. base and row multiply the true times in the
// engine; margin is the prediction's own.
func (t truth) predicted(base, row, margin float64) *profiler.Profile {
	p := &profiler.Profile{Model: "simulated", Engine: "simulated", Machine: "simulated", Memory: 100 << 20}
	p.Payloads = &profiler.Payloads{Binary: handling[attainment.Binary], JSON: t.handling}
	for b := 1; b <= largest; b *= 2 {
		us := base*t.base + row*float64(b)*t.row
		p.Measurements = append(p.Measurements, profiler.Measurement{
			Batch: b, Threads: 1, Median: us, P95: us, CPU: us, Predicted: true, Margin: margin,
		})
	}
	return p
}

func microseconds(us float64) time.Duration { return time.Duration(us * float64(time.Microsecond)) }
