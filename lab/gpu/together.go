package gpu

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/command/profile/shares"
	"github.com/faas-infer/faas-infer/profiler"
)

// quarter is the share of each of the four processes that work beside each other, in %.
const quarter = 25

// coexist measures what a process with a quarter of the GPU loses beside three others. Shares of
// multiprocessors do not divide the memory's bandwidth and caches, so it can lose something.
func (b *bench) coexist(ctx context.Context) error {
	file, err := b.file(b.Models[0])
	if err != nil {
		return err
	}
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
	b.report.Add("coexist.alone_ms", alone[0].Median, "ms", fmt.Sprintf("%s, batch of %d, on %d %%: %s", b.Models[0], b.Batch, quarter, steps(alone[0])))
	b.report.Add("coexist.together_ms", sum/float64(len(four)), "ms", fmt.Sprintf("mean of %d at once; the first: %s", len(four), steps(four[0])))
	b.report.Add("coexist.slowdown", sum/float64(len(four))/alone[0].Median, "ratio", "at most 1.15 is the aim")
	b.report.Add("coexist.slowdown_worst", worst/alone[0].Median, "ratio", "")
	return nil
}

// steps are the medians of a run's parts on the device.
func steps(o Outcome) string {
	return fmt.Sprintf("%.0f µs in, %.0f computing, %.0f out", o.In, o.Compute, o.Out)
}

// batches are the batch sizes of which shared chooses, ascending.
var batches = []int{1, 2, 4, 8, 16, 32}

// shared compares models that work at the same time on equal shares with the same models that
// have the whole GPU in turn, each for an equal part of the time. Each works in batches of the
// size with which it answers most within half the objective, as a batch waits as long again to
// be filled (INFless Eq. 4).
func (b *bench) shared(ctx context.Context) error {
	n := len(b.Small)
	if n == 0 {
		return nil
	}
	percent := 100 / n
	var together []job
	inTurn := map[string]float64{}
	for _, name := range b.Small {
		file, err := b.file(name)
		if err != nil {
			return err
		}
		found, err := b.card.Model(ctx, shares.Work{Model: file, Shares: []int{percent, 100}, Batches: batches, Until: b.SLO / 2, TimesOnly: true}, func(int, int) {})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		whole, share := best(found.Measurements, 100, b.SLO/2), best(found.Measurements, percent, b.SLO/2)
		inTurn[name] = whole.rate / float64(n)
		fmt.Fprintf(b.Log, "%s: %.0f/s in batches of %d on the whole GPU, %.0f/s of %d on %d %%\n", name, whole.rate, whole.batch, share.rate, share.batch, percent)
		together = append(together, job{Work{Model: file, Batch: share.batch, Each: b.Each, Limit: b.SLO / 2}, percent})
	}
	at, err := b.run(ctx, together...)
	if err != nil {
		return err
	}
	sum, least := 0.0, 0.0
	for i, name := range b.Small {
		// Executions above half the objective answer nobody in time.
		rate := float64(together[i].Batch*at[i].Within) / b.Each.Seconds()
		ratio := rate / inTurn[name]
		if sum += ratio; least == 0 || ratio < least {
			least = ratio
		}
		b.report.Add("shared."+name+".rps", rate, "requests/s", fmt.Sprintf("batches of %d within %v, on %d %% beside the others", together[i].Batch, b.SLO/2, percent))
		b.report.Add("shared."+name+".in_turn_rps", inTurn[name], "requests/s", "the whole GPU for a part of the time")
	}
	b.report.Add("rps_ratio.shared_over_whole", sum/float64(n), "ratio", "mean of the models; at least 2 is the aim")
	b.report.Add("rps_ratio.shared_over_whole_worst", least, "ratio", "")
	return nil
}

// choice is a batch size and the rate of requests that it serves.
type choice struct {
	batch int
	rate  float64
}

// best returns the batch size with the highest rate on a share whose batches take no longer than
// limit, and the smallest batch if none is.
func best(measured []profiler.Measurement, percent int, limit time.Duration) (c choice) {
	for _, m := range measured {
		if m.GPU != percent || m.P95 > float64(limit.Microseconds()) && c.batch > 0 {
			continue
		}
		if rate := 1e6 * float64(m.Batch) / m.Median; rate > c.rate {
			c = choice{m.Batch, rate}
		}
	}
	return c
}
