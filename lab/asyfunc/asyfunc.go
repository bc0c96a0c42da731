// Package asyfunc repeats the evaluation of AsyFunc (SoCC 2023, §7, and Fig. 1) on simulated
// nodes: bodies and shadows against BATCH and against ours. The decisions are those of packages
// lab/asyfunc/planning, shadow, batching and papers/batch; lab/sim carries the requests. The paper
// prints no layer times, so [Law] states them, or they are profiles of this machine.
//
// Begin with [Run]. A [world] is one run: one model, one objective, one policy.
package asyfunc

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/asyfunc/planning"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// The paper's C_max and B_max.
const (
	maxCores = 16
	maxBatch = 8
)

// The names of the policies.
const (
	AsyFunc   = "asyfunc"
	NoLayers  = "asyfunc-lls"
	NoAdapt   = "asyfunc-as"
	Batch     = "batch"
	BatchPlus = "batch+"
	Ours      = "faas-infer"
	OnDemand  = "od"
	LastValue = "lv"
	TimesLast = "k-lv"
	Optimal   = "opt"
)

// policy is one way to scale and to batch.
type policy struct {
	name, says string
	empties    empties
	// figure1: it is one of Fig. 1, which is of one model.
	figure1 bool
	make    func() controller
}

// policies lists all policies. A new one is a row here.
var policies = []policy{
	{AsyFunc, "AsyFunc: Algorithms 1, 2 and 3", each, false, func() controller { return &paper{predict: planning.LastValue, layers: true, adaptive: true} }},
	{NoLayers, "AsyFunc without layer-level scaling: no shadows", none, false, func() controller { return &paper{predict: planning.LastValue, adaptive: true} }},
	{NoAdapt, "AsyFunc without adaptive scheduling: batches wait for a timeout", each, false, func() controller { return &paper{predict: planning.LastValue, layers: true} }},
	{Batch, "BATCH: one config, batch size and timeout, chosen before", none, false, func() controller { return &uniform{} }},
	{BatchPlus, "BATCH with adaptive scheduling", none, false, func() controller { return &uniform{adaptive: true} }},
	{Ours, "ours: quotas that follow the load, and what helps with the least memory in time", one, false, func() controller { return &ours{} }},
	{OnDemand, "on demand: an instance starts when the present rate asks for it", none, true, func() controller { return &figure1{} }},
	{LastValue, "the last period's rate is predicted", none, true, func() controller { return &figure1{factor: 1} }},
	{TimesLast, "1.5 times the last period's rate is predicted", none, true, func() controller { return &figure1{factor: 1.5} }},
	{Optimal, "on demand, and an instance starts in no time", none, true, func() controller { return &figure1{instant: true} }},
}

// Policies lists the policies' names with what they are.
func Policies() (rows [][2]string) {
	for _, p := range policies {
		rows = append(rows, [2]string{p.name, p.says})
	}
	return rows
}

// Options say what to simulate.
type Options struct {
	Command string
	// Models are names of the zoo; nil are those of Table 2. Made has them with their times;
	// nil makes them by Law.
	Models []string
	Made   []*shadow.Model
	Law    Law
	// Policies are names; nil are all.
	Policies []string
	Load     *Load
	Nodes    []planning.Node
	// Progress is told how many of all runs are done.
	Progress func(done, total int)
}

// Table1 are n nodes of Table 1: 26 cores, 96 GB.
func Table1(n int) []planning.Node {
	nodes := make([]planning.Node, n)
	for i := range nodes {
		nodes[i] = planning.Node{Cores: 26, Memory: 96e9}
	}
	return nodes
}

// slacks are the objectives, as multiples of t_l on C_max cores with B_max rows. The first is the
// paper's, which leaves the largest config no time to queue.
var slacks = []struct {
	times  float64
	prefix string
}{{1, ""}, {1.5, "slo1.5."}}

// job is one run with its outcome.
type job struct {
	model  *shadow.Model
	policy string
	slack  int
	memory shadow.Accounting // by which ours decides
	// macs weighs memory as printed: ρ·m are the model's multiply-adds, here in 10⁹.
	macs bool
	out  *outcome
}

// outcome is what a run gave.
type outcome struct {
	own, shared                  float64 // mean memory in bytes
	violations, utility          float64 // in %
	bodies                       float64
	shadows, helps, short, count int
}

// Run simulates all and reports.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	if o.Models == nil {
		for _, s := range Subjects() {
			o.Models = append(o.Models, s.Zoo)
		}
	}
	if len(o.Policies) == 0 {
		for _, p := range policies {
			o.Policies = append(o.Policies, p.name)
		}
	}
	if o.Made == nil {
		made, err := o.Law.Models(o.Models)
		if err != nil {
			return nil, err
		}
		o.Made = made
	}
	jobs := o.jobs()
	if err := o.simulate(ctx, jobs); err != nil {
		return nil, err
	}
	r := report.New(o.Command, time.Now())
	o.report(r, jobs)
	return r, nil
}

// jobs lists the runs. Fig. 1 is of the first model; the others need batch to compare with.
func (o *Options) jobs() (jobs []*job) {
	for i, m := range o.Made {
		for _, p := range policies {
			if !slices.Contains(o.Policies, p.name) && (p.name != Batch || !o.compared()) || p.figure1 && i > 0 {
				continue
			}
			for slack := range slacks {
				jobs = append(jobs, &job{model: m, policy: p.name, slack: slack, memory: shadow.Own})
				if p.name == AsyFunc && slack == 0 {
					jobs = append(jobs, &job{model: m, policy: p.name, macs: true, memory: shadow.Own})
				}
				if p.name == Ours {
					jobs = append(jobs, &job{model: m, policy: p.name, slack: slack, memory: shadow.Shared})
				}
			}
		}
	}
	return jobs
}

// compared is true if a policy is compared with batch.
func (o *Options) compared() bool {
	for _, p := range policies {
		if !p.figure1 && slices.Contains(o.Policies, p.name) {
			return true
		}
	}
	return false
}

// simulate runs the jobs on all cores.
func (o *Options) simulate(ctx context.Context, jobs []*job) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mutex sync.Mutex
	var failed error
	done, next := 0, 0
	take := func() *job {
		mutex.Lock()
		defer mutex.Unlock()
		if next == len(jobs) || failed != nil {
			return nil
		}
		next++
		return jobs[next-1]
	}
	var workers sync.WaitGroup
	for range min(len(jobs), runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for j := take(); j != nil; j = take() {
				out, err := o.one(ctx, j)
				mutex.Lock()
				if j.out = out; err != nil && failed == nil {
					failed = fmt.Errorf("%s, %s: %w", j.model.Name, j.policy, err)
					cancel()
				}
				done++
				if o.Progress != nil {
					o.Progress(done, len(jobs))
				}
				mutex.Unlock()
			}
		})
	}
	workers.Wait()
	return failed
}

// one is one run.
func (o *Options) one(ctx context.Context, j *job) (*outcome, error) {
	i := slices.IndexFunc(policies, func(p policy) bool { return p.name == j.policy })
	m := j.model
	s := planning.Published(slacks[j.slack].times * m.Time(0, len(m.Blocks), maxBatch, 1000*maxCores))
	s.Memory = j.memory
	if whole := m.All(); j.macs {
		s.Rho = float64(m.MACs(whole)) / 1e9 * (1 << 30) / float64(m.Weights(whole))
	}
	planner, err := planning.NewPlanner(m, s)
	if err != nil {
		return nil, err
	}
	w, err := newWorld(planner, o.Law, o.Load, o.Nodes, policies[i].make(), policies[i].empties)
	if err != nil {
		return nil, err
	}
	if err := w.run(ctx); err != nil {
		return nil, err
	}
	w.settleAll()
	record, span := w.requests.Finish(), (w.load.Length - warmup).Seconds()
	out := &outcome{
		own: w.measure.own / span, shared: w.measure.shared / span, bodies: w.measure.bodies / span,
		shadows: w.measure.shadows, helps: w.measure.twins, short: w.measure.shorts, count: int(record.Arrived),
	}
	if record.Arrived > 0 {
		out.violations = 100 * float64(record.Missed+record.Rejected) / float64(record.Arrived)
	}
	if w.measure.cores > 0 {
		out.utility = 100 * w.measure.busy / w.measure.cores
	}
	return out, nil
}

// CheckPolicies returns an error that lists the policies if a name is none.
func CheckPolicies(names []string) error {
	var known []string
	for _, p := range policies {
		known = append(known, p.name)
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return fmt.Errorf("policy %q is unknown: it is one of %s", n, strings.Join(known, ", "))
		}
	}
	return nil
}
