package testbed

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/lambda"
)

// Lambda has one model's times on AWS Lambda by memory and batch, as BATCH published
// them. Each size has the CPU that Lambda gives it.
type Lambda struct {
	// service[m] are the times with m MB, in s.
	service map[int][]float64
	spread  float64
}

// FromLambda returns a model's times. They have no spread: BATCH assumes deterministic
// times (§VI-B).
func FromLambda(model string) (*Lambda, error) {
	l := &Lambda{service: map[int][]float64{}}
	for _, m := range lambda.Memories() {
		times, err := lambda.Service(model, m)
		if err != nil {
			return nil, err
		}
		l.service[m] = times
	}
	return l, nil
}

// SetSpread sets the spread of the times.
func (l *Lambda) SetSpread(spread float64) { l.spread = spread }

// Spread implements systems.Times.
func (l *Lambda) Spread() float64 { return l.spread }

// Configs implements systems.Times. It returns every size with every batch, by size and
// batch.
func (l *Lambda) Configs() []cluster.Config {
	var all []cluster.Config
	for _, m := range lambda.Memories() {
		for b := 1; b <= lambda.MaxBatch; b++ {
			all = append(all, cluster.Config{Batch: b, Resources: cluster.Resources{CPU: lambda.Millicores(m), Memory: int64(m) << 20}})
		}
	}
	return all
}

// Exec implements systems.Times. The time depends only on the memory and the batch.
func (l *Lambda) Exec(c cluster.Config, b int) (time.Duration, bool) {
	times, ok := l.service[int(c.Memory>>20)]
	if !ok || b < 1 || b > len(times) {
		return 0, false
	}
	return time.Duration(math.Round(times[b-1] * float64(time.Second))), true
}
