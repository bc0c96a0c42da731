package figure

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/figure/draw"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// useTable adds a table of how each policy uses the machines at its highest load, and what
// it serves under a higher one.
func useTable(out *Outcome, application string, peaks []*peak) {
	t := Table{
		Title:  "How the machines are used at that rate, and what is answered in time while the bound's load is offered.",
		Header: []string{"policy", "CPU held %", "GPU held %", "mean batch", "alone %", "without GPU %", "first to fail", "late %", "stress RPS", "paper", "paper, % of own limit"},
		Notes: []string{
			"mean batch: of a request. alone: requests executed in a batch of one. first to fail: the function that is answered worst",
			"under the next higher load that was tried, and the part of its requests that is late or turned away. stress: INFless'",
			"figure is of “stress testing” (§5.2), of which it does not say whether late answers count.",
		},
	}
	for _, p := range peaks {
		u, name := p.used(), p.system.Name
		v, ok := draw.PaperThroughput(application, name)
		first, late := "–", math.NaN()
		if p.fails.function != "" {
			first, late = p.fails.function, 100*p.fails.missed
		}
		t.row(name, u.cpu, u.gpu, u.batch, u.alone, u.without, first, late, p.stress, or(v, ok), or(100*v/p.own, ok && p.own > 0))
		if p.result != nil {
			out.add("cpu_held_pct."+name, u.cpu, "%", "of the cluster, at max_rps")
			out.add("gpu_held_pct."+name, u.gpu, "%", "of the cluster, at max_rps")
		}
	}
	out.Tables = append(out.Tables, t)
}

// reason has the numbers that limit INFless with one function.
type reason struct {
	function string
	half     time.Duration
	// pair is the mean time of the fastest batch of two on the cluster, foreseen the
	// time that INFless predicts for it; 0 if no config has one.
	pair, foreseen time.Duration
	// largest is the largest batch that INFless considers.
	largest int
	// tail is the 99th percentile of execution times, divided by their mean.
	tail float64
	// plain and accelerated are the highest requests/s for each βc + g of a config
	// without and with a GPU, the numerator of Eq. 10; 0 if there is none.
	plain, accelerated float64
}

// causes explains INFless' highest load with this run's numbers: the functions that it
// cannot batch (Eq. 4), the resources that it leaves empty and the effect of Eq. 10 on
// them, and how the paper's figure compares.
func causes(out *Outcome, application string, peaks []*peak) error {
	i := slices.IndexFunc(peaks, func(p *peak) bool { return p.system.Name == systems.INFless })
	if i < 0 {
		return nil
	}
	p := peaks[i]
	s, err := p.scenario.Setup(p.system, 1, p.scenario.Seed)
	if err != nil {
		return err
	}
	t := Table{
		Title:  "Why infless bears so much and no more.",
		Header: []string{"function", "SLO/2 ms", "fastest pair ms", "as predicted", "largest batch", "99 % take ÷ mean", "executed alone %", "without GPU %", "RPS per βc+g without GPU", "with"},
	}
	var all []reason
	for k, f := range s.Functions {
		r := reasonFor(s, f)
		all = append(all, r)
		u := use{alone: math.NaN(), without: math.NaN()}
		if p.result != nil {
			u = batched(p.result.Functions[k])
		}
		t.row(r.function, milliseconds(r.half), or(milliseconds(r.pair), r.pair > 0), or(milliseconds(r.foreseen), r.pair > 0), fmt.Sprint(r.largest), r.tail, u.alone, u.without, or(r.plain, r.plain > 0), or(r.accelerated, r.accelerated > 0))
		out.add("cause.largest_batch."+r.function, float64(r.largest), "requests", fmt.Sprintf("Eq. 4: at most %.3g ms; a batch of two is predicted to take %.4g ms at best", milliseconds(r.half), milliseconds(r.foreseen)))
		out.add("cause.tail_over_mean."+r.function, r.tail, "", "what 99 % of its executions take at most")
		if r.plain > 0 && r.accelerated > 0 {
			out.add("cause.cpu_only_over_gpu."+r.function, r.plain/r.accelerated, "", "requests/s for each βc + g (Eq. 10)")
		}
		if !math.IsNaN(u.without) {
			out.add("cause.without_gpu_pct."+r.function, u.without, "%", "of its requests")
		}
	}
	t.Notes = sentences(out, application, p, all)
	out.Tables = append(out.Tables, t)
	return nil
}

// reasonFor returns the numbers of the configs that INFless can choose for a function.
func reasonFor(s sim.Setup, f sim.Function) reason {
	settings := s.System.Settings()
	r := reason{function: f.Name, half: f.SLO / 2, tail: systems.Tail(Attained, f.Times.Spread())}
	fits := func(c cluster.Config) bool {
		return slices.ContainsFunc(s.Nodes, func(n cluster.Node) bool { return c.Resources.Fits(n.Total) })
	}
	for _, c := range f.Times.Configs() {
		if c.Batch < 2 || f.MaxBatch == 1 || !fits(c) {
			continue
		}
		if mean, ok := f.Times.Exec(c, 2); ok && mean > 0 && (r.pair == 0 || mean < r.pair) {
			table := s.System.Table(f.Function, c, f.Times)
			r.pair, r.foreseen = mean, table[1]
		}
	}
	for _, c := range s.System.Candidates(f.Function, 1, f.Times) {
		if c.Exec > f.SLO || !fits(c.Config) {
			continue
		}
		r.largest = max(r.largest, c.Config.Batch)
		weight := settings.Beta*float64(c.Config.CPU)/1000 + float64(c.Config.GPU)
		per := capacity.BoundsOf(c.Config, c.Exec, f.SLO, settings.Rounding).Up / weight
		if c.Config.GPU > 0 {
			r.accelerated = max(r.accelerated, per)
		} else {
			r.plain = max(r.plain, per)
		}
	}
	return r
}

// unbatched returns the functions without batches: those whose pairs take too long for half of the
// SLO (Eq. 4), and those whose pairs take too long only by the prediction with its offset.
func unbatched(all []reason) (long, offset []string) {
	for _, r := range all {
		switch {
		case r.largest != 1:
		case r.pair > 0 && r.pair <= r.half:
			offset = append(offset, r.function)
		default:
			long = append(long, r.function)
		}
	}
	return long, offset
}

// sentences returns the notes that explain the numbers.
func sentences(out *Outcome, application string, p *peak, all []reason) (notes []string) {
	var scattered []string
	cheaper := 0.0
	for _, r := range all {
		if r.pair > 0 && r.tail > float64(r.foreseen)/float64(r.pair) {
			scattered = append(scattered, r.function)
		}
		if r.accelerated > 0 {
			cheaper = max(cheaper, r.plain/r.accelerated)
		}
	}
	long, offset := unbatched(all)
	if len(long) > 0 {
		notes = append(notes, strings.Join(long, ", ")+": no batch of two ends within half of the SLO (Eq. 4), so that each request is executed alone.")
	}
	if len(offset) > 0 {
		notes = append(notes, strings.Join(offset, ", ")+": a batch of two ends within half of the SLO, but is not predicted to with the offset of 10 % (§3.3),", "so that each request is executed alone.")
	}
	if len(scattered) > 0 {
		notes = append(notes, strings.Join(scattered, ", ")+": more than 1 % of the executions take longer than predicted (the mean and an offset, §3.3), so that", "batches which leave at the last moment, or one after another without a pause, are late.")
	}
	if p.result != nil {
		notes = append(notes, unused(out, p, cheaper)...)
	}
	if p.fails.function != "" && p.rps > 0 {
		notes = append(notes, fmt.Sprintf("Under the next higher load that was tried %s misses %.3g %%.", p.fails.function, 100*p.fails.missed))
	}
	return append(notes, published(out, application, p)...)
}

// scarce is the part of the CPUs in %; if more are held, CPUs are the scarce resource.
const scarce = 95

// unused adds the resources that are empty at the peak, and explains them with Eq. 10.
func unused(out *Outcome, p *peak, cheaper float64) []string {
	u := p.used()
	gpu, cpu := empty(u.gpu), empty(u.cpu)
	out.add("cause.gpu_empty_pct", gpu, "%", "of all GPUs, at infless' max_rps")
	out.add("cause.cpu_empty_pct", cpu, "%", "of all CPUs, at infless' max_rps")
	notes := []string{fmt.Sprintf("At its peak %.3g %% of the GPUs and %.3g %% of the CPUs are empty.", gpu, cpu)}
	if cheaper > 1 {
		notes = append(notes, fmt.Sprintf("With β = %v a config without a GPU has up to %.3g times the requests for each βc + g (Eq. 10).", p.system.Settings().Beta, cheaper))
		if u.cpu > scarce {
			notes = append(notes, "So CPUs are given away without GPUs, of which none can be used without a CPU.")
		}
	}
	return notes
}

// empty returns the part in % that is not held, without the error of summed times.
func empty(held float64) float64 { return max(0, math.Round(1e6*(100-held))/1e6) }

// published adds the paper's figure as a part of the bound.
func published(out *Outcome, application string, p *peak) []string {
	v, ok := draw.PaperThroughput(application, systems.INFless)
	if !ok {
		return nil
	}
	out.add("cause.paper_over_bound", v/p.bound, "", "the paper's figure, as a part of what no policy can exceed by the published times")
	if part := v / p.bound; part > 1 {
		return []string{fmt.Sprintf("The paper's %.0f requests/s are %.3g times the bound: by the published times no policy reaches them.", v, part)}
	}
	return []string{fmt.Sprintf("The paper's %.0f requests/s are %.3g %% of the bound.", v, 100*v/p.bound)}
}
