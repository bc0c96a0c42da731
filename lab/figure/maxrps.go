package figure

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/figure/draw"
	"github.com/faas-infer/faas-infer/lab/scenario"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// factors multiply the objectives of a scenario in the figures that vary them: OSVT's
// 200 ms become the paper's 150…400 ms.
var factors = []float64{0.75, 1, 1.25, 1.5, 1.75, 2}

// varied are the systems in the figures that vary the objective.
var varied = []string{baselines.Batch, systems.INFless, systems.FaaSInfer}

// relaxed returns the scenario with all objectives multiplied by factor.
func relaxed(c *scenario.Scenario, factor float64) *scenario.Scenario {
	other := *c
	other.Functions = slices.Clone(c.Functions)
	for i := range other.Functions {
		other.Functions[i].SLO = time.Duration(factor * float64(c.Functions[i].SLO))
	}
	return &other
}

// maxRPS finds the highest load of each system (INFless Fig. 11) and, for
// drawings, under other objectives (Fig. 12(b), 13, 15(b, c)).
func maxRPS(ctx context.Context, c *scenario.Scenario, o Options) (*Outcome, error) {
	var peaks []*peak
	for _, s := range o.Systems {
		peaks = append(peaks, &peak{scenario: c, system: s})
	}
	for _, name := range varied {
		if s, ok := o.system(name); ok && o.Drawings && !o.Few {
			for _, f := range factors {
				peaks = append(peaks, &peak{scenario: relaxed(c, f), system: s})
			}
		}
	}
	err := o.each(ctx, len(peaks), func(ctx context.Context, i int, part func(float64)) error {
		return peaks[i].find(ctx, o, part)
	})
	if err != nil {
		return nil, err
	}
	own := peaks[:len(o.Systems)]
	application := applicationOf(c)
	out := &Outcome{}
	maxResults(out, application, own)
	maxTable(out, application, own)
	useTable(out, application, own)
	if err := causes(out, application, own); err != nil {
		return nil, err
	}
	if o.Drawings {
		out.Drawings = append(out.Drawings, draw.Throughput(application, throughputs(own), own[0].bound))
		if more := peaks[len(own):]; len(more) > 0 {
			out.Drawings = append(out.Drawings, objectives(application, more)...)
		}
		for i := range out.Drawings { // One directory may hold the drawings of several scenarios.
			d := &out.Drawings[i]
			d.Name = strings.TrimSuffix(d.Name, application) + strings.TrimPrefix(c.Name, "testbed-")
		}
	}
	return out, nil
}

// applicationOf returns the paper's application in a scenario: "osvt" for testbed-osvt and
// testbed-osvt-400ms.
func applicationOf(c *scenario.Scenario) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(c.Name, "testbed-"), "-")
	return name
}

// compared are the pairs of systems whose ratio of throughputs is a result.
var compared = [][2]string{
	{systems.INFless, baselines.OpenFaaS}, {systems.INFless, baselines.Batch}, {baselines.Batch, baselines.BatchPublished},
	{baselines.INFlessBB, systems.INFless}, {baselines.INFlessRS, systems.INFless},
	{baselines.INFlessOP1, systems.INFless}, {baselines.INFlessOP2, systems.INFless},
	{baselines.Release, baselines.OpenFaaS}, {baselines.Release, baselines.OpenFaaSCores}, {baselines.Release, baselines.Batch}, {baselines.Release, baselines.BatchPublished},
	{baselines.ReleaseBB, baselines.Release}, {baselines.ReleaseRS, baselines.Release},
	{baselines.ReleaseOP1, baselines.Release}, {baselines.ReleaseOP2, baselines.Release},
	{systems.FaaSInfer, baselines.Release}, {systems.FaaSInfer, systems.INFless}, {systems.FaaSInfer, baselines.Batch}, {systems.FaaSInfer, baselines.BatchPublished}, {systems.FaaSInfer, baselines.OpenFaaS},
}

// maxResults adds the named results.
func maxResults(out *Outcome, application string, peaks []*peak) {
	rps := map[string]float64{}
	for _, p := range peaks {
		name := p.system.Name
		rps[name] = p.rps
		v, ok := draw.PaperThroughput(application, name)
		out.add("max_rps."+name, p.rps, "1/s", beside(v, ok, "Fig. 11"))
		out.add("max_rps_97."+name, p.lax, "1/s", "with 97 % within the SLO")
		out.add("saturation_rps."+name, p.saturated, "1/s", "answered, also late, at the load of those tried at which it was most")
		out.add("share_of_bound."+name, p.rps/p.bound, "", "")
		out.add("own_limit_rps."+name, p.own, "1/s", "the configs that it considers under the bound's load allow no more, wherever they are")
		out.add("stress_rps."+name, p.stress, "1/s", "answered in time while as much is offered as the bound is")
	}
	out.add("max_rps.bound", peaks[0].bound, "1/s", "no policy can have more")
	for _, pair := range compared {
		a, b := rps[pair[0]], rps[pair[1]]
		if b > 0 {
			v, ok := draw.PaperRatio(application, pair[0], pair[1])
			if _, too := rps[pair[0]]; too {
				out.add("ratio."+pair[0]+"_over_"+pair[1], a/b, "", beside(v, ok, "Fig. 11"))
			}
		}
	}
}

// maxTable adds the table.
func maxTable(out *Outcome, application string, peaks []*peak) {
	rps := map[string]float64{}
	for _, p := range peaks {
		rps[p.system.Name] = p.rps
	}
	over := func(a, b string) (here, there float64) {
		v, ok := draw.PaperRatio(application, a, b)
		if rps[b] == 0 || a == b {
			return math.NaN(), math.NaN()
		}
		return rps[a] / rps[b], or(v, ok)
	}
	t := Table{
		Title:  "The highest rate at which each function answers 99 % of its requests within its SLO.",
		Header: []string{"policy", "max RPS", "paper", "at 97 %", "saturated", "% of bound", "own limit", "÷ infless", "paper", "÷ release", "÷ batch", "paper", "÷ openfaas+", "paper", "% of cluster held", "fragments %"},
	}
	for _, p := range peaks {
		v, ok := draw.PaperThroughput(application, p.system.Name)
		a, ap := over(p.system.Name, systems.INFless)
		b, bp := over(p.system.Name, baselines.Batch)
		c, cp := over(p.system.Name, baselines.OpenFaaS)
		held, fragments := p.held()
		d, _ := over(p.system.Name, baselines.Release)
		t.row(p.system.Name, p.rps, or(v, ok), p.lax, p.saturated, 100*p.rps/p.bound, p.own, a, ap, d, b, bp, c, cp, held, fragments)
	}
	t.row("bound", peaks[0].bound)
	t.Notes = []string{
		"max RPS: the highest load held of those tried, for every policy from the bound downwards, in steps of 19 % and then",
		"finer: also where a policy fails under less. bound: no policy can serve more on these machines (linear program; no",
		"request waits). own limit: as much as all machines execute with the configs that the policy allows itself, wherever",
		"it places them; batch has one config for each load, here that for the bound's, and may bear more with another one.",
		"at 97 %: the same with 97 % in place of 99. saturated: the most that was answered, also late.",
		"paper: " + draw.PaperSource + ", Fig. 11.",
	}
	out.Tables = append(out.Tables, t)
}

// throughputs lists the highest rates by policy.
func throughputs(peaks []*peak) (all []draw.Value) {
	for _, p := range peaks {
		all = append(all, draw.Value{Policy: p.system.Name, Value: p.rps})
	}
	return all
}

// objectives draws the peaks under several objectives: the throughput for each unit of
// resources, its parts by batch size, the configs, and the parts of the latencies.
func objectives(application string, peaks []*peak) []draw.Drawing {
	var all []draw.Objective
	for _, p := range peaks {
		if p.result == nil {
			continue
		}
		at := draw.Objective{Policy: p.system.Name, SLO: p.scenario.Functions[0].SLO, PerResource: p.result.ThroughputPerResource(), Model: p.scenario.Functions[0].Name}
		for i, f := range p.result.Functions {
			at.Latencies = append(at.Latencies, draw.Latency{Function: f.Name, Queue: f.QueueMean, Exec: f.ExecMean})
			if m := p.scenario.Functions[i].Model; strings.Contains(m, "resnet") {
				at.Model = f.Name
			}
		}
		for _, f := range p.result.Functions {
			if f.Name == at.Model {
				at.Configs = f.Configs
			}
		}
		all = append(all, at)
	}
	return draw.Objectives(application, all)
}
