// Package partitions measures models that are cut over several instances on this machine
// (Gillis, ICDCS 2021): real instances with a thread each. This process is the master and
// has one core, the workers have another. Begin with [Bench.Run].
package partitions

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/gillis/forkjoin"
	"github.com/faas-infer/faas-infer/papers/gillis/partition"
	"github.com/faas-infer/faas-infer/papers/gillis/partitioning"
)

// Bench says what to measure.
type Bench struct {
	// Models are names of the zoo.
	Models []string
	// Rounds is how often the ways take turns, Requests how many requests each way answers
	// in a turn.
	Rounds, Requests int
	// Database is the file of operators' profiles.
	Database string
}

// Run measures each model whole on one core, whole on two threads, and in the parts of the
// plan with the least latency, in turns. It pins this process to a core.
func (b Bench) Run(ctx context.Context, o rig.Options, r *report.Report) error {
	if len(b.Models) == 0 {
		return nil
	}
	other, err := rig.PinCores()
	if err != nil {
		return err
	}
	own, err := rig.OwnCore()
	if err != nil {
		return err
	}
	if err := onnxruntime.Load(""); err != nil {
		return err
	}
	platform, err := partitioning.Platform(ctx, b.Database)
	if err != nil {
		return err
	}
	platform.MaxParts = 2
	transfer, samples, err := partitioning.Idle(ctx)
	if err != nil {
		return err
	}
	const mib = 1 << 20
	var ms []float64
	for _, s := range samples {
		if s.Bytes == mib {
			ms = append(ms, s.Ms)
		}
	}
	fitted := transfer.RoundTrip(mib, mib).Moments().Mean
	r.Add("round.p50_us.1mib", 1000*rig.Median(ms), "µs", fmt.Sprintf("1 MiB each way over the loopback interface, no compute; the fit's mean is %.0f µs", 1000*fitted))
	for _, name := range b.Models {
		one := &bench{Bench: b, Options: o, report: r, platform: platform, name: name, cores: []int{own, other}}
		if err := one.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// bench measures one model.
type bench struct {
	Bench
	rig.Options
	report   *report.Report
	platform *partition.Platform
	name     string
	dir      string
	// cores are the master's and the workers'.
	cores    []int
	children []*rig.Child
	open     []io.Closer
	writer   *forkjoin.Writer
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "faas-infer-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	defer b.stop()
	m, err := zoo.Make(b.name, 1)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.Log, "%s: planning\n", b.name)
	plan, err := partitioning.Plan(ctx, m, b.platform, partitioning.Goal{Database: b.Database, Progress: func(int, int) {}})
	if err != nil {
		return err
	}
	ways, err := b.ways(ctx, m, plan)
	if err != nil {
		return err
	}
	inputs, err := m.SampleInputs(1, 1)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.Log, "%s: measuring %d ways\n", b.name, len(ways))
	for range b.Rounds {
		for _, w := range ways {
			if err := w.measure(ctx, b.Requests, inputs); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	b.tell(plan, ways)
	return nil
}

func (b *bench) tell(plan *partitioning.Planned, ways []*way) {
	whole, threads, parts := rig.Median(ways[0].ms), rig.Median(ways[1].ms), rig.Median(ways[2].ms)
	add := func(name string, value float64, unit, note string) { b.report.Add(name+"."+b.name, value, unit, note) }
	add("whole_ms", whole, "ms", "median, one instance of one thread and core")
	add("threads_ms", threads, "ms", "median, one instance of two threads and cores")
	add("parts_ms", parts, "ms", fmt.Sprintf("median, %d rounds on %d functions", len(plan.Rounds), plan.Functions()))
	add("speedup", whole/parts, "", "one instance of one core over the plan's")
	add("speedup_threads", whole/threads, "", "one thread over two")
	add("error_pct.latency", 100*(plan.Time.Mean/parts-1), "%", fmt.Sprintf("predicted %.1f ms over measured", plan.Time.Mean))
	add("error_pct.whole", 100*(plan.Whole/whole-1), "%", fmt.Sprintf("predicted %.1f ms over measured", plan.Whole))
	best := ways[0]
	for _, w := range ways {
		if w != ways[1] && rig.Median(w.ms) < rig.Median(best.ms) {
			best = w
		}
	}
	add("regret_pct", 100*(parts/rig.Median(best.ms)-1), "%", fmt.Sprintf("of %d plans measured; the best is %s, %.1f ms", len(ways)-1, best.name, rig.Median(best.ms)))
	_, off := partitioning.Difference(ways[2].answer, ways[0].answer)
	add("rel_diff", off, "", "of the parts' answer from the whole's, over its largest element")
}

// way is one way to answer.
type way struct {
	name   string
	worker forkjoin.Worker
	ms     []float64
	answer []tensor.Tensor
}

func (w *way) measure(ctx context.Context, requests int, inputs []tensor.Tensor) error {
	for i := range requests + 1 {
		began := time.Now()
		answer, err := w.worker.Run(ctx, 1, inputs)
		if err != nil {
			return err
		}
		if i > 0 { // The first one finds cold caches.
			w.ms = append(w.ms, rig.Milliseconds(time.Since(began)))
		}
		w.answer = answer
	}
	return nil
}

// ways starts the instances: the whole model on one thread, on two, and the plan's parts.
func (b *bench) ways(ctx context.Context, m *model.Model, plan *partitioning.Planned) ([]*way, error) {
	weights := m.OpenWeights()
	defer weights.Close()
	b.writer = forkjoin.NewWriter(weights)
	group, err := plan.Cut.Group(0, len(plan.Cut.Layers()))
	if err != nil {
		return nil, err
	}
	only, err := group.Cut(group.Whole())
	if err != nil {
		return nil, err
	}
	var ways []*way
	for _, threads := range []int{1, 2} {
		part, err := b.remote(ctx, only[0], b.cores[:threads], threads)
		if err != nil {
			return nil, err
		}
		e, err := forkjoin.New(m.Inputs(), m.Outputs(), []forkjoin.Round{{part}})
		if err != nil {
			return nil, err
		}
		ways = append(ways, &way{name: fmt.Sprintf("whole on %d threads", threads), worker: e})
	}
	var chosen []span
	for _, r := range plan.Rounds {
		chosen = append(chosen, span{r.First, r.End, r.Option.Name, r.Master})
	}
	plans := append([][]span{chosen}, others(plan, chosen)...)
	for i, spans := range plans {
		e, err := b.plan(ctx, m, plan, spans)
		if err != nil {
			return nil, err
		}
		name := "parts"
		if i > 0 {
			name = fmt.Sprintf("the first %d layers in two, the rest whole", spans[0].end)
		}
		ways = append(ways, &way{name: name, worker: e})
	}
	return ways, nil
}

// span is a round: its layers and how they are cut.
type span struct {
	first, end int
	option     string
	// master is the part that the master computes itself, -1 for none.
	master int
}

// otherPlans is the number of plans that are measured beside the chosen one.
const otherPlans = 4

// others are plans that could have been chosen: a number of layers in two by height, and the
// rest whole.
func others(plan *partitioning.Planned, chosen []span) (plans [][]span) {
	layers := len(plan.Cut.Layers())
	var ends []int
	for end := 1; end < layers; end++ {
		if _, _, err := plan.Parts(0, end, "2x1"); err == nil {
			ends = append(ends, end)
		}
	}
	for i := range min(otherPlans, len(ends)) {
		end := ends[(i+1)*len(ends)/min(otherPlans, len(ends))-1]
		if spans := []span{{0, end, "2x1", 0}, {end, layers, "whole", 0}}; !slices.Equal(spans, chosen) {
			plans = append(plans, spans)
		}
	}
	return plans
}

// plan starts the instances of a plan's parts.
func (b *bench) plan(ctx context.Context, m *model.Model, plan *partitioning.Planned, spans []span) (*forkjoin.Engine, error) {
	var rounds []forkjoin.Round
	for _, s := range spans {
		parts, _, err := plan.Parts(s.first, s.end, s.option)
		if err != nil {
			return nil, err
		}
		var round forkjoin.Round
		for k, p := range parts {
			start := func() (forkjoin.Part, error) { return b.remote(ctx, p, b.cores[1:], 1) }
			if k == s.master {
				start = func() (forkjoin.Part, error) { return b.own(p) }
			}
			part, err := start()
			if err != nil {
				return nil, err
			}
			round = append(round, part)
		}
		rounds = append(rounds, round)
	}
	return forkjoin.New(m.Inputs(), m.Outputs(), rounds)
}

// own opens the master's own part in this process, which has a core.
func (b *bench) own(p *cut.Part) (part forkjoin.Part, err error) {
	dir, err := os.MkdirTemp(b.dir, "part-")
	if err != nil {
		return part, err
	}
	file, err := b.writer.Write(dir, p)
	if err != nil {
		return part, err
	}
	e, err := onnxruntime.Open(onnxruntime.Options{Model: file, Threads: 1})
	if err != nil {
		return part, err
	}
	b.open = append(b.open, e)
	return forkjoin.Part{Inputs: p.Inputs(), Outputs: p.Outputs(), Worker: e, Own: true}, nil
}

// remote starts an instance of a part on cores.
func (b *bench) remote(ctx context.Context, p *cut.Part, on []int, threads int) (part forkjoin.Part, err error) {
	dir, err := os.MkdirTemp(b.dir, "part-")
	if err != nil {
		return part, err
	}
	file, err := b.writer.Write(dir, p)
	if err != nil {
		return part, err
	}
	address, err := engine.FreeAddress()
	if err != nil {
		return part, err
	}
	var child *rig.Child
	err = rig.RunOnCores(on, func() (err error) {
		child, err = b.Start("instance", "--model", file, "--name", "part", "--listen", "tcp://"+address,
			"--threads", fmt.Sprint(threads), "--max-batch", "1", "--body-limit", fmt.Sprint(256<<20))
		return err
	})
	if err != nil {
		return part, err
	}
	b.children = append(b.children, child)
	if err := child.Answers(ctx, "http://"+address+"/v2/health/ready"); err != nil {
		return part, err
	}
	worker, err := forkjoin.Connect(ctx, "http://"+address, "part")
	if err != nil {
		return part, err
	}
	b.open = append(b.open, worker)
	return forkjoin.Part{Inputs: p.Inputs(), Outputs: p.Outputs(), Worker: worker}, nil
}

func (b *bench) stop() {
	for _, c := range b.open {
		_ = c.Close()
	}
	for _, c := range slices.Backward(b.children) {
		c.Stop()
	}
}
