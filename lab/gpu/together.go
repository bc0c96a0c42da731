package gpu

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// quarter is the share of each of the four processes that work beside each other, in %.
const quarter = 25

// coexist measures what a process with a quarter of the GPU loses beside three others. Shares of
// multiprocessors do not divide the memory's bandwidth and caches, so it can lose something.
func (b *bench) coexist(ctx context.Context, file string) error {
	one := job{Work{Model: file, Batch: b.Batch, Each: b.Each}, quarter}
	alone, err := b.run(ctx, one)
	if err != nil {
		return err
	}
	four, err := b.run(ctx, slices.Repeat([]job{one}, 100/quarter)...)
	if err != nil {
		return err
	}
	sum, worst := 0.0, 0.0
	for _, o := range four {
		sum, worst = sum+o.Median, max(worst, o.Median)
	}
	b.report.Add("coexist.alone_ms", alone[0].Median, "ms", fmt.Sprintf("%s, batch of %d, on %d %%", b.Models[0], b.Batch, quarter))
	b.report.Add("coexist.together_ms", sum/float64(len(four)), "ms", fmt.Sprintf("mean of %d at once", len(four)))
	b.report.Add("coexist.slowdown", sum/float64(len(four))/alone[0].Median, "ratio", "at most 1.15 is the aim")
	b.report.Add("coexist.slowdown_worst", worst/alone[0].Median, "ratio", "")
	return nil
}

// batches are the batch sizes of which shared chooses.
var batches = []int{1, 2, 4, 8, 16, 32}

// shared compares models that work at the same time on equal shares with the same models that
// have the whole GPU in turn, each for an equal part of the time. Each works in batches of the
// size with which it answers most within half the objective, as a batch waits as long again to
// be filled (INFless Eq. 4).
func (b *bench) shared(ctx context.Context, files map[string]string) error {
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range files {
			if !yield(name) {
				return
			}
		}
	})
	percent := 100 / len(names)
	var together []job
	inTurn := map[string]float64{}
	for _, name := range names {
		whole, err := b.best(ctx, files[name], 100)
		if err != nil {
			return fmt.Errorf("%s on the whole GPU: %w", name, err)
		}
		inTurn[name] = whole.rate / float64(len(names))
		share, err := b.best(ctx, files[name], percent)
		if err != nil {
			return fmt.Errorf("%s on %d %%: %w", name, percent, err)
		}
		fmt.Fprintf(b.Log, "%s: %.0f/s in batches of %d on the whole GPU, %.0f/s of %d on %d %%\n", name, whole.rate, whole.batch, share.rate, share.batch, percent)
		together = append(together, job{Work{Model: files[name], Batch: share.batch, Each: b.Each}, percent})
	}
	at, err := b.run(ctx, together...)
	if err != nil {
		return err
	}
	ratios, least := 0.0, 0.0
	for n, name := range names {
		// Executions above half the objective answer nobody in time.
		rate := float64(together[n].Batch*at[n].Within(b.SLO/2)) / b.Each.Seconds()
		ratio := rate / inTurn[name]
		ratios += ratio
		if least == 0 || ratio < least {
			least = ratio
		}
		b.report.Add("shared."+name+".rps", rate, "requests/s", fmt.Sprintf("batches of %d within %v, on %d %% beside the others", together[n].Batch, b.SLO/2, percent))
		b.report.Add("shared."+name+".in_turn_rps", inTurn[name], "requests/s", "the whole GPU for a part of the time")
	}
	b.report.Add("rps_ratio.shared_over_whole", ratios/float64(len(names)), "ratio", "mean of the models; at least 2 is the aim")
	b.report.Add("rps_ratio.shared_over_whole_worst", least, "ratio", "")
	return nil
}

// choice is a batch size and the rate of requests that it serves.
type choice struct {
	batch int
	rate  float64
}

// best measures the batch sizes on a share and returns the one with the highest rate within half
// the objective.
func (b *bench) best(ctx context.Context, file string, percent int) (c choice, err error) {
	for _, batch := range batches {
		out, err := b.run(ctx, job{Work{Model: file, Batch: batch, Each: min(b.Each, 300*time.Millisecond)}, percent})
		if err != nil {
			return choice{}, err
		}
		if time.Duration(out[0].P99*float64(time.Millisecond)) > b.SLO/2 && batch > 1 {
			break
		}
		if rate := 1000 * float64(batch) / out[0].Median; rate > c.rate {
			c = choice{batch, rate}
		}
	}
	return c, nil
}
