package cop

import (
	"fmt"
	"math"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// Rule combines operators' times to the model's time.
type Rule uint8

const (
	// ByEngine is [Longest] if the engine runs branches side by side, otherwise
	// [Sum].
	ByEngine Rule = iota
	// Sum adds up all operators.
	Sum
	// Longest is the paper's rule: the sum over chains and the maximum over
	// branches. In any DAG that is the longest path, even if it is not a nesting of
	// chains and branches.
	Longest
)

// Options says what to predict and how.
type Options struct {
	// Batches and Threads are predicted in every combination. Each thread has its
	// own core. For a part of a core predict one thread, and apply the quota to the
	// model's total ([profiler.Profile.ExecTime], [profiler.MeanUnderQuota]),
	// because the quota lasts across operators.
	Batches []int
	Threads []int
	Engine  Engine
	// Rule is ByEngine except in comparisons of the rules.
	Rule Rule
	// ColdShare is the part of an operator's data that comes from memory and
	// not from the last-level cache when the model runs at a batch, in
	// [0, 1]. Nil is 0 throughout: no correction for the memory.
	ColdShare func(op *operator.Operator, batch int) float64
	// Run is the pseudo-operator for the fixed cost of an execution (the call,
	// binding, the outputs' memory). Its time is added once. It may be nil.
	Run *operator.Operator
	// GPU is the share in % on which the times are, 0 for the CPU. In and Out are the
	// pseudo-operators for the copies to the GPU and back, which are added once each.
	GPU     int
	In, Out *operator.Operator
}

// Config is the prediction for a batch size on a number of threads.
type Config struct {
	Batch   int `json:"batch"`
	Threads int `json:"threads"`
	// GPU is [Options.GPU].
	GPU int `json:"gpu,omitzero"`
	// Median, P95 and CPU are the model's times in µs; CPU is processor time
	// summed over threads.
	Median float64 `json:"median_us"`
	P95    float64 `json:"p95_us"`
	CPU    float64 `json:"cpu_us"`
	// Margin is the mean of the operators' margins, weighted by time, as if all
	// were wrong in the same direction.
	Margin float64 `json:"margin"`
	// Shares are the parts of Median by [Source]; they add up to 1.
	Shares [sources]float64 `json:"-"`
	// Times has the time of one execution of each of Graph.Operators, in their
	// order.
	Times []Estimate `json:"-"`
	// Run is the fixed cost. In and Out are the copies to a GPU and back.
	Run Estimate `json:"-"`
	In  Estimate `json:"-"`
	Out Estimate `json:"-"`
}

// Prediction is a model's times at every config.
type Prediction struct {
	Graph *operator.Graph
	// Configs are in the order of Options.Threads, and for each of these in the
	// order of Options.Batches.
	Configs []Config
	// Lacking are the operators without measurements of their own: their estimates,
	// if any, come from other operators. That is normal for Options.Run, which is
	// here only if it has no estimate.
	Lacking []*operator.Operator
	// Missing are the operators, and Options.Run, without an estimate at some
	// config. They count 0 there.
	Missing []*operator.Operator
}

// At finds a config.
func (p *Prediction) At(batch, threads int) (*Config, bool) {
	for i := range p.Configs {
		if c := &p.Configs[i]; c.Batch == batch && c.Threads == threads {
			return c, true
		}
	}
	return nil, false
}

// Node is the time of one execution of Graph.Nodes[i] at a config.
func (p *Prediction) Node(c *Config, i int) Estimate { return c.Times[p.Graph.Nodes[i].Operator] }

// Predict combines the times of a graph's operators. The prediction lists the operators
// that t does not know. An error means a mistake in the options, or a graph whose nodes
// are not in an executable order.
func Predict(g *operator.Graph, t Times, o Options) (*Prediction, error) {
	if err := o.check(g); err != nil {
		return nil, err
	}
	c := &combination{
		Prediction: &Prediction{Graph: g, Configs: make([]Config, 0, len(o.Batches)*len(o.Threads))},
		times:      t, options: o, calls: make([]int, len(g.Operators)), found: make([]uint8, len(g.Operators)+pseudo),
	}
	for _, n := range g.Nodes {
		c.calls[n.Operator]++
	}
	if o.Rule == Longest || o.Rule == ByEngine && o.Engine.Parallel {
		c.path = newPath(g)
	}
	slab := make([]Estimate, len(g.Operators)*cap(c.Configs))
	for _, threads := range o.Threads {
		for _, batch := range o.Batches {
			times := slab[:len(g.Operators):len(g.Operators)]
			slab = slab[len(g.Operators):]
			c.add(Config{Batch: batch, Threads: threads, GPU: o.GPU, Times: times})
		}
	}
	c.report()
	return c.Prediction, nil
}

func (o Options) check(g *operator.Graph) error {
	if len(o.Batches) == 0 || len(o.Threads) == 0 {
		return fmt.Errorf("predict: nothing to predict: batches %v on threads %v", o.Batches, o.Threads)
	}
	for _, b := range o.Batches {
		if b < 1 {
			return fmt.Errorf("predict: batch is %d; it must be at least 1", b)
		}
	}
	for _, n := range o.Threads {
		if n < 1 || n > math.MaxInt/1000 {
			return fmt.Errorf("predict: threads is %d; it must be at least 1", n)
		}
	}
	for i, n := range g.Nodes {
		if n.Operator < 0 || n.Operator >= len(g.Operators) {
			return fmt.Errorf("predict: node %q has operator %d of %d", n.Name, n.Operator, len(g.Operators))
		}
		for _, in := range n.Inputs {
			if in < 0 || in >= i {
				return fmt.Errorf("predict: node %q reads node %d, which does not run before it", n.Name, in)
			}
		}
	}
	return nil
}

// The findings about an operator, over all configs.
const (
	own     uint8 = 1 << iota // It has a time of its own.
	missing                   // It has no estimate at some config.
)

// pseudo is the number of pseudo-operators.
const pseudo = 3

func (o Options) pseudo() [pseudo]*operator.Operator {
	return [pseudo]*operator.Operator{o.Run, o.In, o.Out}
}

// combination is one call of Predict.
type combination struct {
	*Prediction
	times   Times
	options Options
	path    *path
	// calls is the number of executions of each operator. found has the findings
	// about each, with those about Run, In and Out last.
	calls []int
	found []uint8
}

// add combines one config, whose Times are still empty.
func (c *combination) add(config Config) {
	for i, op := range c.Graph.Operators {
		config.Times[i] = c.time(i, op, &config, c.coldShare(op, config.Batch))
	}
	fixed := [pseudo]*Estimate{&config.Run, &config.In, &config.Out}
	for i, op := range c.options.pseudo() {
		if op != nil {
			*fixed[i] = c.time(len(c.Graph.Operators)+i, op, &config, 0)
		}
	}
	calls := c.calls
	if c.path != nil {
		calls = c.path.longest(c.Graph, config.Times)
	}
	var s sum
	for i, e := range config.Times {
		s.add(e, float64(calls[i]))
		config.CPU += e.CPU * float64(c.calls[i])
	}
	for _, e := range fixed {
		s.add(*e, 1)
		config.CPU += e.CPU
	}
	config.Median, config.P95 = s.median, s.median+math.Sqrt(s.variance)
	if s.median > 0 {
		config.Margin = s.margin / s.median
		for i := range s.bySource {
			config.Shares[i] = s.bySource[i] / s.median
		}
	}
	c.Configs = append(c.Configs, config)
}

// sum adds up operators that run one after another. It takes their deviations from the
// median as independent, as interruptions are. The margin covers a slow-down of the whole
// run. A deviation beyond [profiler.Noise] does not come from the operator.
type sum struct {
	median, variance, margin float64
	bySource                 [sources]float64
}

func (s *sum) add(e Estimate, calls float64) {
	deviation := min(max(0, e.P95-e.Median), (profiler.Noise-1)*e.Median)
	s.median += e.Median * calls
	s.variance += deviation * deviation * calls
	s.margin += e.Margin * e.Median * calls
	s.bySource[min(e.Source, sources-1)] += e.Median * calls
}

func (c *combination) coldShare(op *operator.Operator, batch int) float64 {
	if c.options.ColdShare == nil {
		return 0
	}
	return fraction(c.options.ColdShare(op, batch))
}

// time estimates operator i and records the finding. If only one of the warm and the cold
// time is known, it counts for both.
func (c *combination) time(i int, op *operator.Operator, config *Config, share float64) Estimate {
	var warm, cold Estimate
	var isWarm, isCold bool
	if share < 1 {
		warm, isWarm = c.times.Time(op, config.Batch, config.Threads*1000, false)
	}
	if share > 0 || !isWarm {
		cold, isCold = c.times.Time(op, config.Batch, config.Threads*1000, true)
	}
	if share >= 1 && !isCold {
		warm, isWarm = c.times.Time(op, config.Batch, config.Threads*1000, false)
	}
	var e Estimate
	switch {
	case isWarm && isCold:
		e = mix(warm, cold, share)
	case isWarm:
		e = warm
	case isCold:
		e = cold
	default:
		c.found[i] |= missing
		return e
	}
	if e.Source != Regressed || i >= len(c.Graph.Operators) { // Run and copies are always regressed.
		c.found[i] |= own
	}
	return e
}

// report lists the operators without measurements and without estimates.
func (c *combination) report() {
	for i, found := range c.found {
		n := len(c.Graph.Operators)
		op := c.options.pseudo()[max(0, i-n)]
		if i < n {
			op = c.Graph.Operators[i]
		}
		if op == nil {
			continue
		}
		if found&own == 0 {
			c.Lacking = append(c.Lacking, op)
		}
		if found&missing != 0 {
			c.Missing = append(c.Missing, op)
		}
	}
}
