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

// coldStart has the parts of a cold start.
type coldStart struct {
	// sandbox is the time to start the container, library that to load the engine with
	// CUDA.
	sandbox, library time.Duration
	// load is the rate in bytes/s at which weights are read.
	load int64
	// unpark is the time that a parked instance takes to serve again.
	unpark time.Duration
}

// readColdStart reads the key "cold_start". The defaults are those of a machine like the
// testbed's (INFless Table 2): half a second for a container of an image on the disk, one
// and a half for CUDA's context and the engine's libraries, and weights from a SATA SSD.
// The default of unpark is that of the local backend.
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

// of returns the cold-start time of a model by the bytes of its weights: 2.196 s for 98 MiB
// at 500 MiB/s.
func (c coldStart) of(size int64) time.Duration {
	return c.sandbox + c.library + time.Duration(float64(size)/float64(c.load)*float64(time.Second))
}

// engine is the memory in bytes that an instance needs besides its model: for libraries,
// and the same amount of GPU memory for CUDA's context.
const engine = 512 << 20

// occupied returns the memory in bytes of an instance whose weights have size. It holds the
// weights twice: as they are and as the engine has prepared them. On a GPU, the second half
// is the workspace.
func occupied(size int64) int64 { return engine + 2*size }

// draft is a function as far as the file describes it.
type draft struct {
	object   *fleet.Object
	function Function
	arrivals pattern
}

var names = regexp.MustCompile(`^[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$`)

// maxFunctions is the maximum number of functions.
const maxFunctions = 10_000

func (r *reader) functions(o *fleet.Object, s *Scenario) []draft {
	objects := o.Objects("functions")
	if len(objects) == 0 && o.Has("functions") {
		o.Fail("functions", "the list is empty: add a function")
	}
	var all []draft
	for _, inner := range objects {
		all = append(all, r.function(inner, s)...)
		if len(all) > maxFunctions {
			o.Fail("functions", "there are too many: the maximum is %d", maxFunctions)
			return nil
		}
	}
	seen := map[string]bool{}
	for _, d := range all {
		if seen[d.function.Name] {
			d.object.Fail("name", "%s occurs twice", d.function.Name)
		}
		seen[d.function.Name] = true
	}
	return all
}

// function reads one entry of functions. With "vary" it makes several functions.
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
		o.Fail("name", "%q is not a name: use letters, digits, dots, dashes and underscores", f.Name)
	}
	if f.Model == "" {
		f.Model = f.Name
	}
	if f.MaxInstances > 0 && f.MinInstances > f.MaxInstances {
		o.Fail("min_instances", "%d: it must not be more than max_instances, %d", f.MinInstances, f.MaxInstances)
	}
	if r.variants != nil {
		r.chosen(o, s, &f)
	} else {
		r.size(o, &f)
		r.times(o, &f)
		readSets(o, &f)
	}
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

// vary reads the lists of objectives and loads. Each pair makes a function.
func vary(o *fleet.Object) (slos []time.Duration, loads []float64) {
	if inner, ok := o.Object("vary"); ok {
		slos = inner.Durations("slo", time.Microsecond, maxStep)
		loads = inner.Numbers("load", 1e-6, 1e6)
		inner.Done()
		if len(slos) > 0 && o.Has("slo") {
			o.Fail("slo", "vary has slo too: remove one of them")
		}
	}
	if len(loads) == 0 {
		loads = []float64{1}
	}
	return slos, loads
}

// size reads an instance's memory and start time, or derives them from the size of the
// model's weights.
func (r *reader) size(o *fleet.Object, f *Function) {
	size := o.Bytes("size", 0)
	if size == 0 && (!o.Has("start") || !o.Has("memory") || !o.Has("gpu_memory")) {
		o.Fail("size", "it is missing: give the size of the model's weights, such as 98MiB, or start, memory and gpu_memory")
	}
	f.Start = o.Duration("start", 0, maxStep, r.cold.of(size))
	f.Memory = o.Bytes("memory", occupied(size))
	f.GPUMemory = o.Bytes("gpu_memory", occupied(size))
}

// times finds the model's times.
func (r *reader) times(o *fleet.Object, f *Function) {
	if r.onLambda(o, f) || onLine(o, f) {
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

// onLine reports whether a function says its times itself, as the line αb + β. If so, it sets them.
func onLine(o *fleet.Object, f *Function) bool {
	inner, ok := o.Object("line")
	if !ok {
		return false
	}
	inner.Need("alpha", "beta")
	alpha, beta := inner.Duration("alpha", time.Microsecond, maxStep, 0), inner.Duration("beta", 0, maxStep, 0)
	batch := inner.Int("batch", 1, 1<<10, 64)
	inner.Done()
	line := testbed.FromLine(f.Model, alpha, beta, batch, testbed.Memory{Host: f.Memory, GPU: f.GPUMemory})
	line.SetSpread(o.Number("spread", 0, 2, 0))
	f.Times = line
	return true
}

// possible checks that a function can run: a config, or each member of a set, must fit a node,
// and the fastest of those that fit must execute one request within slo.
func possible(o *fleet.Object, f *Function, s *Scenario, slo time.Duration) {
	nodes := s.Cluster.Kinds()
	if f.Times == nil || len(nodes) == 0 || slo == 0 {
		return
	}
	fastest, on, ok := testbed.Fastest(f.Times, func(c cluster.Config) bool {
		return slices.ContainsFunc(nodes, func(n cluster.Node) bool { return c.Each().Fits(n.Total) })
	})
	switch {
	case !ok:
		need, node := smallest(f.Times.Configs()), largest(nodes)
		o.Fail("", "%s fits no node: it needs at least %s, and the largest node, %s, has %s", f.Name, amount(need), node.Name, amount(node.Total))
	case slo < fastest+s.Overhead:
		o.Fail("slo", "%v is less than the fastest possible execution of %s on this cluster: one request takes %v on %s, and %v on its way", slo, f.Model, fastest.Round(time.Microsecond), amount(on.Resources), s.Overhead)
	}
}

func smallest(configs []cluster.Config) cluster.Resources {
	return slices.MinFunc(configs, func(a, b cluster.Config) int {
		return slices.Compare([]int{a.Each().CPU, a.Each().GPU, -a.Members()}, []int{b.Each().CPU, b.Each().GPU, -b.Members()})
	}).Each()
}

func largest(nodes []cluster.Node) cluster.Node {
	return slices.MaxFunc(nodes, func(a, b cluster.Node) int {
		return slices.Compare([]int{a.Total.CPU, a.Total.GPU}, []int{b.Total.CPU, b.Total.GPU})
	})
}

// amount returns resources in words.
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
