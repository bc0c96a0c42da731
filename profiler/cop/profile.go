package cop

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
)

// Profile turns the prediction into a profile for engine on machine. model is the SHA-256
// of the model's file, memory the resident set in bytes. Each point's margin is at least
// [profiler.Margin], and larger for regressed operators. The error for missing operators
// names them.
func (p *Prediction) Profile(model, engine, machine string, memory int64, at time.Time) (*profiler.Profile, error) {
	if len(p.Missing) > 0 {
		return nil, fmt.Errorf("no measurement gives the time of %s; measure it with `faas-infer profile operators`", p.missing())
	}
	profile := &profiler.Profile{Model: model, Engine: engine, Machine: machine, Memory: memory, MeasuredAt: at}
	for _, c := range p.Configs {
		profile.Measurements = append(profile.Measurements, profiler.Measurement{
			Batch: c.Batch, Threads: c.Threads, GPU: c.GPU, Median: c.Median, P95: c.P95, CPU: c.CPU,
			In: c.In.Median, Out: c.Out.Median,
			Predicted: true, Margin: max(profiler.Margin, c.Margin),
		})
	}
	if err := profile.Validate(); err != nil {
		return nil, fmt.Errorf("predict: %w", err)
	}
	return profile, nil
}

// missing names the types of the missing operators, the first five.
func (p *Prediction) missing() string {
	var types []string
	for _, op := range p.Missing {
		if !slices.Contains(types, op.Type) {
			types = append(types, op.Type)
		}
	}
	const shown = 5
	if len(types) > shown {
		types = append(types[:shown], fmt.Sprintf("… (%d more)", len(types)-shown))
	}
	return strings.Join(types, ", ")
}
