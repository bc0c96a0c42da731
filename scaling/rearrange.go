package scaling

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// worthwhile is how many times what a function carries now a new arrangement
// must carry.
const worthwhile = 1.2

// rearrange exchanges a function's instances for others, if they cannot be
// added to and a fresh start of Algorithm 1 would carry a good deal more in
// the room that they have: a function that grew from one request per second to
// thousands holds its node in small shares with small batches, and Max may be
// reached by instances that are too small. The paper has no such step; its
// instances only come and go. While the exchange lasts, requests wait, so it
// is not done for a burst, nor while instances start or are replaced, nor
// twice within a stabilisation window. left is what adding would give; it has
// taken its room already.
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
		i, _ := trial.Find(x.Node)
		trial.Set(i, trial.Places[i].Free.Add(x.Config.Resources))
	}
	for _, in := range v.live {
		i, ok := trial.Find(in.Node)
		if !ok || in.State != cluster.Ready {
			return false
		}
		trial.Give(i, in.Config.Resources, in.ID)
	}
	d := v.wanted(v.steady)
	d.Limit = v.Max
	fresh := trial.Schedule(d, 0)
	if min(v.steady, v.steady-fresh.Residual) < worthwhile*min(v.steady, carried) {
		return false
	}
	p.room = trial
	v.memory.rearranged = p.now
	p.replace(v, fresh)
	return true
}

// replace stops the instances that the fresh placement has no use for and
// starts those that it lacks.
func (p *pass) replace(v *view, fresh placing.Placement) {
	missing := slices.Clone(fresh.Placed)
	for _, in := range slices.Clone(v.live) {
		same := slices.IndexFunc(missing, func(x placing.Placed) bool {
			return x.Node == in.Node && x.Config.Resources == in.Config.Resources && x.Config.Batch <= max(in.Largest, in.Config.Batch)
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
