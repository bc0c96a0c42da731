package scenario

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/fleet"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/lab/testbed"
)

// coldStart is what a cold start consists of.
type coldStart struct {
	// sandbox is the container, library the engine with CUDA.
	sandbox, library time.Duration
	// load is how many bytes of weights are read a second.
	load int64
	// unpark is what an instance that has been parked takes to serve again.
	unpark time.Duration
}

// readColdStart reads the key "cold_start". Missing keys are as on a machine
// like the testbed's (INFless Table 2): a container of an image that is there in half
// a second, CUDA's context and the engine's libraries in one and a half, and weights
// from a SATA SSD. To take up a share again takes what it does on the local backend.
func readColdStart(o *fleet.Object) coldStart {
	c := coldStart{500 * time.Millisecond, 1500 * time.Millisecond, 500 << 20, sim.DefaultUnpark}
	if inner, ok := o.Object("cold_start"); ok {
		c.sandbox = inner.Duration("sandbox", 0, maxStep, c.sandbox)
		c.library = inner.Duration("library", 0, maxStep, c.library)
		c.load = inner.Bytes("load", c.load)
		c.unpark = inner.Duration("unpark", time.Microsecond, maxStep, c.unpark)
		inner.Done()
	}
	return c
}

// of is the cold start of a model with so many bytes of weights: 2.196 s for 98 MiB
// at 500 MiB/s.
func (c coldStart) of(size int64) time.Duration {
	return c.sandbox + c.library + time.Duration(float64(size)/float64(c.load)*float64(time.Second))
}

// engine is what an instance takes in bytes besides its model, of memory and, the
// same again, of its GPU's: libraries; CUDA's context.
const engine = 512 << 20

// occupied is what an instance takes in bytes whose weights have size: they are held
// once as they are and once as the engine has prepared them, or, on a GPU, its
// workspace.
func occupied(size int64) int64 { return engine + 2*size }

// draft is a function as far as the file says.
type draft struct {
	object   *fleet.Object
	function Function
	arrivals pattern
}

var names = regexp.MustCompile(`^[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$`)

// maxFunctions bounds them.
const maxFunctions = 10_000

func (r *reader) functions(o *fleet.Object, s *Scenario) []draft {
	objects := o.Objects("functions")
	if len(objects) == 0 && o.Has("functions") {
		o.Fail("functions", "there is none")
	}
	var all []draft
	for _, inner := range objects {
		all = append(all, r.function(inner, s)...)
		if len(all) > maxFunctions {
			o.Fail("functions", "more than %d", maxFunctions)
			return nil
		}
	}
	seen := map[string]bool{}
	for _, d := range all {
		if seen[d.function.Name] {
			d.object.Fail("name", "%s is there twice", d.function.Name)
		}
		seen[d.function.Name] = true
	}
	return all
}

// function reads one of functions, which are several where it is varied.
func (r *reader) function(o *fleet.Object, s *Scenario) []draft {
	o.Need("name")
	f := Function{
		Name:         o.String("name"),
		Model:        o.String("model"),
		SLO:          o.Duration("slo", time.Microsecond, maxStep, 0),
		Percentile:   o.Number("percentile", 50, 99.99, 0),
		MaxBatch:     o.Int("max_batch", 1, 1<<16, 0),
		MinInstances: o.Int("min_instances", 0, maxInstances, 0),
		MaxInstances: o.Int("max_instances", 1, maxInstances, 0),
	}
	if f.Name != "" && !names.MatchString(f.Name) {
		o.Fail("name", "%q is no name: letters, digits, dots, dashes", f.Name)
	}
	if f.Model == "" {
		f.Model = f.Name
	}
	if f.MaxInstances > 0 && f.MinInstances > f.MaxInstances {
		o.Fail("min_instances", "%d are more than max_instances, %d", f.MinInstances, f.MaxInstances)
	}
	r.size(o, &f)
	r.times(o, &f)
	slos, loads := vary(o)
	if len(slos) == 0 {
		slos = []time.Duration{f.SLO}
		if f.SLO == 0 {
			o.Need("slo")
		}
	}
	a := r.arrivals(o)
	o.Done()
	var all []draft
	for _, slo := range slos {
		for _, load := range loads {
			one := f
			one.SLO = slo
			if len(slos)*len(loads) > 1 {
				one.Name = fmt.Sprintf("%s-%d", f.Name, len(all)+1)
			}
			all = append(all, draft{o, one, a.multiplied(load)})
		}
	}
	possible(o, &f, s, slices.Min(slos))
	return all
}

// vary reads the lists of which every pair makes a function.
func vary(o *fleet.Object) (slos []time.Duration, loads []float64) {
	if inner, ok := o.Object("vary"); ok {
		slos = inner.Durations("slo", time.Microsecond, maxStep)
		loads = inner.Numbers("load", 1e-6, 1e6)
		inner.Done()
		if len(slos) > 0 && o.Has("slo") {
			o.Fail("slo", "vary has slo, too: leave one away")
		}
	}
	if len(loads) == 0 {
		loads = []float64{1}
	}
	return slos, loads
}

// size reads what an instance takes and how long it takes to start, or derives them
// from the size of the model's weights.
func (r *reader) size(o *fleet.Object, f *Function) {
	size := o.Bytes("size", 0)
	if size == 0 && (!o.Has("start") || !o.Has("memory") || !o.Has("gpu_memory")) {
		o.Fail("size", "it is missing: the size of the model's weights, as 98MiB; or name start, memory and gpu_memory")
	}
	f.Start = o.Duration("start", 0, maxStep, r.cold.of(size))
	f.Memory = o.Bytes("memory", occupied(size))
	f.GPUMemory = o.Bytes("gpu_memory", occupied(size))
}

// times finds the model's times.
func (r *reader) times(o *fleet.Object, f *Function) {
	if r.onLambda(o, f) {
		return
	}
	p := r.given
	if o.Has("profile") {
		p = r.profile(o, "profile", "")
	}
	spread := o.Number("spread", 0, 2, -1)
	if p == nil || f.Model == "" {
		return
	}
	t, err := testbed.FromTestbed(p, f.Model, testbed.Memory{Host: f.Memory, GPU: f.GPUMemory})
	if err != nil {
		o.Fail("model", "%v", err)
		return
	}
	if spread >= 0 {
		t.SetSpread(spread)
	}
	f.Times = t
}

// possible checks that a function can run at all: that a config fits a node, and that
// the fastest of those that fit executes one request within slo.
func possible(o *fleet.Object, f *Function, s *Scenario, slo time.Duration) {
	nodes := s.Cluster.Kinds()
	if f.Times == nil || len(nodes) == 0 || slo == 0 {
		return
	}
	fastest, on, ok := testbed.Fastest(f.Times, func(need cluster.Resources) bool {
		return slices.ContainsFunc(nodes, func(n cluster.Node) bool { return need.Fits(n.Total) })
	})
	switch {
	case !ok:
		least, most := smallest(f.Times.Configs()), largest(nodes)
		o.Fail("", "%s fits no node: it needs at least %s, and the largest node, %s, has %s", f.Name, amount(least), most.Name, amount(most.Total))
	case slo < fastest+s.Overhead:
		o.Fail("slo", "%v is less than the fastest possible execution of %s on this cluster: one request takes %v on %s, and %v on its way", slo, f.Model, fastest.Round(time.Microsecond), amount(on.Resources), s.Overhead)
	}
}

func smallest(configs []cluster.Config) cluster.Resources {
	return slices.MinFunc(configs, func(a, b cluster.Config) int {
		return slices.Compare([]int{a.CPU, a.GPU}, []int{b.CPU, b.GPU})
	}).Resources
}

func largest(nodes []cluster.Node) cluster.Node {
	return slices.MaxFunc(nodes, func(a, b cluster.Node) int {
		return slices.Compare([]int{a.Total.CPU, a.Total.GPU}, []int{b.Total.CPU, b.Total.GPU})
	})
}

// amount is resources for people.
func amount(r cluster.Resources) string {
	unit := "cores"
	if r.CPU == 1000 {
		unit = "core"
	}
	s := fmt.Sprintf("%g %s, %.3g GiB", float64(r.CPU)/1000, unit, float64(r.Memory)/(1<<30))
	if r.GPU > 0 {
		s += fmt.Sprintf(", %d %% of a GPU and %.3g GiB of it", r.GPU, float64(r.GPUMemory)/(1<<30))
	}
	return s
}
