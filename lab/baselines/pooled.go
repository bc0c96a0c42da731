package baselines

import (
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// The systems that serve a model on a given number of whole accelerators. They differ only in how they batch.
const (
	Symphony  = "symphony"
	Clockwork = "clockwork"
	Shepherd  = "shepherd"
	Nexus     = "nexus"
)

// pooled returns those systems. Each has an instance on every accelerator from the beginning, whose largest batch
// is the largest that the model has times for.
func pooled() []systems.System {
	row := func(name, says string, policy func() batching.Policy) systems.System {
		return core(Batch).Change(name, says, func(r *systems.Rules) {
			r.Batching, r.Policy, r.Margin, r.Tuner = batching.DeferredName, policy, 1, nil
			r.Choose, r.Queue = largest, capacity.LateBound
			r.Scaler = func(scaling.Settings) systems.Scaler { return filled{} }
		})
	}
	return []systems.System{
		row(Symphony, "Symphony's window on all accelerators: a batch waits as long as one more request could join", nil),
		row(Clockwork, "Clockwork's batches on all accelerators: at once, in powers of two", newClockwork),
		row(Shepherd, "Shepherd's Flex on all accelerators: at once, as large as its first deadline allows; without preemption", newShepherd),
		row(Nexus, "Nexus on all accelerators: requests dealt in turn, a fixed batch size, early drop", newNexus),
	}
}

// largest considers only the candidate with the largest batch.
func largest(s systems.System, f systems.Function, _ float64, t systems.Times) (found []capacity.Candidate) {
	for _, c := range s.Predicted(f, t) {
		if len(found) == 0 || c.Config.Batch > found[0].Config.Batch {
			found = []capacity.Candidate{systems.Tolerated(c, f.SLO)}
		}
	}
	return found
}

// filled starts instances, one function after the other, until no node has room.
type filled struct{}

// Scale implements [systems.Scaler].
func (filled) Scale(_ time.Time, functions []scaling.Function, nodes []cluster.Node) (plan scaling.Plan) {
	for i, k := 0, 0; i < len(nodes) && len(functions) > 0; k++ {
		f := &functions[k%len(functions)]
		if len(f.Configs) == 0 || !f.Configs[0].Config.Fits(nodes[i].Free) {
			i++
			continue
		}
		c := f.Configs[0]
		device := nodes[i].Start(c.Config.Resources, cluster.Tenant{})
		plan.Start = append(plan.Start, scaling.Start{
			Function: f.Name, Revision: f.Revision, Artefact: c.Artefact, Config: c.Config, Exec: c.Exec, Mean: c.Mean, Node: nodes[i].Name, Device: device,
		})
	}
	return plan
}
