package scaling

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// minCarriedGain is the multiple of its present capacity that a function must carry after
// a rearrangement.
const minCarriedGain = 1.2

// rearrange exchanges a function's instances for others. It reports whether it did. It
// does so if adding instances is not enough, and a fresh start of Algorithm 1 would carry
// minCarriedGain times as much in the same room. For example a function that grew from
// one request per second to thousands holds its node in small shares with small batches.
// Or it has reached Max with instances that are too small. The paper has no such step;
// its instances only come and go.
//
// Requests wait during the exchange. So it is not done for a burst, while instances start
// or are replaced, or twice within a stabilisation window. left is the placement by
// adding; it has already taken its room.
func (p *pass) rearrange(v *view, left placing.Placement) bool {
	if left.Reason == placing.NoConfig || v.steady <= v.capacity() || len(v.old) > 0 || v.started > 0 {
		return false
	}
	again := v.memory.rearranged.Add(p.engine.settings.Stabilisation)
	if !v.memory.rearranged.IsZero() && p.now.Before(again) {
		return false
	}
	trial := p.space().Clone()
	carried := v.capacity()
	for _, x := range left.Placed {
		carried += x.Range.Up
		for node, part := range cluster.Over(x.Node, x.Nodes, x.Config.Resources) {
			i, _ := trial.Find(node)
			trial.Set(i, trial.Places[i].Free.Add(part))
		}
	}
	for i := range v.live {
		if in := &v.live[i]; in.State != cluster.Ready || !give(trial, in) {
			return false
		}
	}
	d := v.wanted(v.steady)
	d.Limit = v.Max
	fresh := trial.Schedule(d, 0)
	if min(v.steady, v.steady-fresh.Residual) < minCarriedGain*min(v.steady, carried) {
		return false
	}
	p.room = trial
	v.memory.rearranged = p.now
	p.replace(v, fresh)
	return true
}

// replace stops the instances that are not in the fresh placement and starts those that
// are missing.
func (p *pass) replace(v *view, fresh placing.Placement) {
	missing := slices.Clone(fresh.Placed)
	for _, in := range slices.Clone(v.live) {
		same := slices.IndexFunc(missing, func(x placing.Placed) bool {
			return x.Node == in.Node && slices.Equal(x.Nodes, in.Nodes) && sameSize(x.Config, in.Config) && x.Config.Batch <= max(in.Largest, in.Config.Batch)
		})
		if same >= 0 {
			missing = slices.Delete(missing, same, same+1)
			continue
		}
		p.stop(v, in, Rearranged)
	}
	p.start(v, missing)
	if fresh.Reason != placing.None {
		p.unplaced(v, fresh)
	}
}
