package testbed_test

import (
	"fmt"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/testbed"
	"github.com/faas-infer/faas-infer/scaling/packing"
)

// half is one socket and its GPU of INFless' machines (Table 2).
var half = cluster.Resources{CPU: 16000, GPU: 100, Memory: 64 << 30, GPUMemory: 11 << 30}

// weight is βc + g.
func weight(r cluster.Resources) float64 { return 0.6*float64(r.CPU)/1000 + float64(r.GPU) }

// items returns a model's measured configs whose batch takes at most limit ms, with
// times longer by factor.
func items(demand int, model string, limit, factor float64) []packing.Item {
	var all []packing.Item
	for _, c := range testbed.INFlessTestbed().Configs(model) {
		need := cluster.Resources{CPU: c.Millicores, GPU: c.GPU, Memory: 1 << 30}
		if c.GPU > 0 {
			need.GPUMemory = 700 << 20
		}
		if ms := c.Milliseconds; ms*factor <= limit {
			all = append(all, packing.Item{Demands: []int{demand}, Rate: float64(c.Batch) / ms * 1000, Need: need, Cost: 0.1 * weight(need)})
		}
	}
	return all
}

// On INFless' testbed, whole instances on whole nodes serve nearly the bound, for both
// applications (§5.1) and any margin of times.
func TestTestbedIsNearTheBound(t *testing.T) {
	for _, app := range []struct {
		slo    float64
		models []string
	}{{200, []string{"ssd", "resnet-50", "mobilenet"}}, {50, []string{"textcnn-69", "lstm-maxclass-2365", "catdog"}}} {
		for _, factor := range []float64{1, 1.05, 1.1, 1.2} {
			p := packing.Problem{Classes: []packing.Class{{Free: half, Count: 16, Cost: weight(half)}}}
			for k, m := range app.models {
				p.Demands = append(p.Demands, 1)
				p.Items = append(p.Items, items(k, m, app.slo, factor)...)
			}
			bound, err := packing.Bound(p)
			if err != nil {
				t.Fatal(err)
			}
			for k := range p.Demands {
				p.Demands[k] = 1.5 * bound
			}
			s, err := packing.Solve(p)
			if err != nil {
				t.Fatal(err)
			}
			least := s.Served[0]
			for _, x := range s.Served {
				least = min(least, x)
			}
			if least < 0.97*bound || least > bound {
				t.Errorf("%v, times × %v: each gets %v requests/s, the bound is %v", app.models, factor, least, bound)
			}
		}
	}
}

// fleet is 40 functions on 2,000 machines, with a load that fills that many halves.
func fleet(nodes float64) packing.Problem {
	p := packing.Problem{Classes: []packing.Class{{Free: half, Count: 4000, Cost: weight(half)}}}
	models := testbed.INFlessTestbed().Models()
	for k := range 40 {
		m := models[k%len(models)]
		slo := []float64{150, 200, 250, 300}[k/6%4]
		if m == "textcnn-69" || m == "lstm-maxclass-2365" || m == "catdog" {
			slo = []float64{30, 50, 80, 100}[k/6%4]
		}
		all := items(k, m, slo, 1.1)
		best := 0.0
		for _, it := range all {
			best = max(best, it.Rate/float64(it.Need.CPU))
		}
		p.Items = append(p.Items, all...)
		p.Demands = append(p.Demands, best*float64(half.CPU)/40*nodes*(0.3+float64(k%7)/5))
	}
	return p
}

// counts returns the nodes and instances of a solution, and the part of the nodes that
// no instance has, in %.
func counts(p packing.Problem, s packing.Solution) (nodes, instances int, fragments float64) {
	used := 0.0
	for _, f := range s.Filled {
		nodes += f.Count
		for _, u := range f.Uses {
			instances += f.Count * u.Count
			used += weight(p.Items[u.Item].Need) * float64(f.Count*u.Count)
		}
	}
	return nodes, instances, 100 - 100*used/(float64(nodes)*weight(half))
}

// If there is room for all, the solution takes hardly more nodes than divisible
// instances would, and little of the nodes stays unused (INFless Fig. 17(b): 15 to 19
// %).
func TestFleetLeavesFewFragments(t *testing.T) {
	for _, c := range []struct {
		nodes           float64
		over, fragments float64
	}{{12, 1.16, 8}, {60, 1.08, 8}, {120, 1.05, 8}, {1200, 1.01, 4}} {
		p := fleet(c.nodes)
		s, err := packing.Solve(p)
		if err != nil {
			t.Fatal(err)
		}
		for k, d := range p.Demands {
			if s.Served[k] < d*(1-1e-9) {
				t.Errorf("%v nodes: demand %d gets %v of %v", c.nodes, k, s.Served[k], d)
			}
		}
		nodes, instances, fragments := counts(p, s)
		for i := range p.Items {
			p.Items[i].Cost = 0
		}
		ideal, err := packing.Relax(p)
		if err != nil {
			t.Fatal(err)
		}
		least := ideal.Cost / weight(half)
		if float64(nodes) > c.over*least+1 || fragments > c.fragments {
			t.Errorf("%d instances on %d nodes, %v would do, %v %% are left over", instances, nodes, least, fragments)
		}
	}
}

func BenchmarkSolve(b *testing.B) {
	for _, n := range []float64{12, 120, 1400} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := fleet(n)
			var s packing.Solution
			for b.Loop() {
				var err error
				if s, err = packing.Solve(p); err != nil {
					b.Fatal(err)
				}
			}
			nodes, instances, fragments := counts(p, s)
			b.ReportMetric(float64(nodes), "nodes")
			b.ReportMetric(float64(instances), "instances")
			b.ReportMetric(fragments, "fragment-%")
		})
	}
}
