package control

import (
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// A set that the engine places on several nodes is started with them, and what it holds counts on
// each of its nodes from then on.
func TestSetOverSeveralNodes(t *testing.T) {
	tryWith(t, func(o *Options) {
		b := o.Backend.(*fakeBackend)
		b.Machines = append(b.Machines, cluster.Node{Name: "n2", Total: b.Machines[0].Total})
	}, func(r *rig) {
		r.measured("f", "a")
		r.mu.Lock()
		fn := r.functions[full("f")]
		config := cluster.Config{Batch: 4, Parts: 4, Concurrency: 2, Resources: cluster.Resources{CPU: 2000, Memory: 4 << 30}}
		on := []string{"n1", "n1", "n1", "n2"}
		r.driver.start(fn, scaling.Start{Function: fn.Name, Revision: fn.Revision, Config: config, Node: "n1", Nodes: on})
		in := fn.Sorted()[0]
		seen := in.running(time.Now(), dispatch.Stats{})
		nodes := slices.Clone(r.nodes)
		r.keeper.Free(nodes)
		held := fn.heldOn()
		fleet := r.fleetSize.nodes([]scaling.Function{{Name: fn.Name}}, r.nodes)
		r.mu.Unlock()
		if seen.Node != "n1" || !slices.Equal(seen.Nodes, on) || seen.Config.Parts != 4 || seen.Config.Concurrency != 2 {
			t.Errorf("the engine sees %+v", seen)
		}
		for i, cpu := range []int{1500, 500} {
			if free := nodes[i].Total.CPU - nodes[i].Free.CPU; free != cpu || heldCPU(held[nodes[i].Name]) != cpu {
				t.Errorf("%s: %dm taken, %v held, want %dm", nodes[i].Name, free, held[nodes[i].Name], cpu)
			}
			sum := 0
			for _, x := range fleet[i].Instances {
				sum += x.Holds.CPU
			}
			if sum != cpu {
				t.Errorf("%s: of the functions' instances %dm, want %dm", nodes[i].Name, sum, cpu)
			}
		}
		r.until("started", func() bool { return len(r.backend.living()) == 1 })
		if s, _ := r.Status(fn.Name); s.Replicas != 1 || s.Pods != 4 {
			t.Errorf("it counts as %d instances of %d members", s.Replicas, s.Pods)
		}
		if spec := r.backend.living()[0].InstanceSpec; spec.Node != "n1" || !slices.Equal(spec.Nodes, on) || spec.Config.Concurrency != 2 || spec.Set != "" {
			t.Errorf("asked for %+v", spec)
		}
		r.answered("f", "a")
	})
}

func heldCPU(all []systems.Held) (sum int) {
	for _, h := range all {
		sum += h.CPU
	}
	return sum
}
