package accuracy

import (
	"context"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/profiler/measuring"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// operators measures all operators of a model, also those that the database has.
func (r *accuracyRun) operators(ctx context.Context, s *profile.Subject) error {
	tasks := measuring.Tasks([]*operator.Graph{s.Optimised}, r.batches, r.threads, measuring.ReadCaches())
	if err := profile.Remeasure(ctx, r.measurer, r.file, tasks, operatorsPatience); err != nil {
		return fmt.Errorf("measuring the operators of %s: %w", s.Name, err)
	}
	return nil
}

// operatorsPatience is how long to wait for the machine to become quiet while one
// model's operators are measured.
const operatorsPatience = 20 * time.Second

// measureUnfused measures the operators of the models before the optimiser.
func (r *accuracyRun) measureUnfused(ctx context.Context, file *operators.File, models *profile.Subjects, args []string) error {
	var graphs []*operator.Graph
	for _, a := range args {
		s, err := models.Get(a)
		if err != nil {
			return err
		}
		g, err := s.Original()
		if err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
		graphs = append(graphs, g)
	}
	return profile.FillOperators(ctx, file, graphs, r.batches, r.threads)
}
