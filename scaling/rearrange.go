package scaling

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// minCarriedGain is the multiple of its present capacity that a function must carry after
// a rearrangement.
const minCarriedGain = 1.2

// arrangedGrowth is the multiple of the load of a rearrangement from which on the next one need not wait for the
// end of the window.
const arrangedGrowth = 2

// rearrange exchanges a function's instances for others. It reports whether it did. It
// does so if adding instances is not enough, and a fresh start of Algorithm 1 would carry
// minCarriedGain times as much in the same room. For example a function that grew from
// one request per second to thousands holds its node in small shares with small batches.
// Or it has reached Max with instances that are too small. The paper has no such step;
// its instances only come and go.
//
// Requests wait during the exchange. So it is not done for a burst, while instances start
// or are replaced, or twice within a stabilisation window unless the load has grown
// arrangedGrowth times meanwhile: what suited its beginning would carry little of it until
// the window ends. left is the placement by adding; it has already taken its room.
func (p *pass) rearrange(v *view, left placing.Placement) bool {
	if left.Reason == placing.NoConfig || v.steady <= v.capacity() || len(v.old) > 0 || v.started > 0 {
		return false
	}
	again := v.memory.rearranged.Add(p.engine.settings.Stabilisation)
	if !v.memory.rearranged.IsZero() && p.now.Before(again) && v.steady < arrangedGrowth*v.memory.arranged {
		return false
	}
	trial := p.space().Clone()
	carried := v.capacity()
	for _, x := range left.Placed {
		carried += x.Range.Up
		for node, part := range cluster.Over(x.Node, x.Nodes, x.Config.Resources) {
			i, _ := trial.Find(node)
			trial.Undo(i, part, x.Device)
		}
	}
	for i := range v.live {
		if in := &v.live[i]; in.State != cluster.Ready || !give(trial, in) {
			return false
		}
	}
	emptied := trial.Clone()
	d := v.wanted(v.steady)
	d.Limit = v.Max
	fresh := trial.Schedule(d, 0)
	if min(v.steady, v.steady-fresh.Residual) < minCarriedGain*min(v.steady, carried) {
		return false
	}
	p.room = trial
	v.memory.rearranged, v.memory.arranged = p.now, v.steady
	p.replace(v, fresh, emptied)
	return true
}

// replace stops the instances that are not in the fresh placement and starts those that
// are missing. emptied is the room without any of them: an instance that stays keeps its device,
// which may not be the placement's, and the others are placed beside it if they fit there.
func (p *pass) replace(v *view, fresh placing.Placement, emptied *placing.Room) {
	stay, missing := matched(v.live, fresh.Placed, false)
	if !beside(emptied, stay, missing, v.Tenant) {
		stay, missing = matched(v.live, fresh.Placed, true)
	} else {
		p.room = emptied
	}
	for _, in := range slices.Clone(v.live) {
		if !slices.ContainsFunc(stay, func(x Running) bool { return x.ID == in.ID }) {
			p.stop(v, in, Rearranged)
		}
	}
	p.start(v, missing, Rearranged)
	if fresh.Reason != placing.None {
		p.unplaced(v, fresh)
	}
}

// matched returns the instances that a fresh placement has, too, and the rest of the placement.
// exactly: also on the same device and with the same memory.
func matched(live []Running, placed []placing.Placed, exactly bool) (stay []Running, missing []placing.Placed) {
	missing = slices.Clone(placed)
	for _, in := range live {
		same := slices.IndexFunc(missing, func(x placing.Placed) bool {
			return x.Node == in.Node && slices.Equal(x.Nodes, in.Nodes) && (!exactly || x.Device == in.Device && x.Config.Keeping(in.Config) == x.Config) &&
				sameSize(x.Config, in.Config) && x.Config.Batch <= max(in.Largest, in.Config.Batch)
		})
		if same >= 0 {
			stay, missing = append(stay, in), slices.Delete(missing, same, same+1)
		}
	}
	return stay, missing
}

// beside takes the room of instances of a tenant that stay, and of others, for which it chooses devices. It
// reports whether all have room.
func beside(room *placing.Room, stay []Running, placed []placing.Placed, t cluster.Tenant) bool {
	for _, in := range stay {
		for node, part := range onNodes(&in) {
			if i, ok := room.Find(node); ok {
				room.Hold(i, part, in.Device)
			}
		}
	}
	for k := range placed {
		x := &placed[k]
		for node, part := range cluster.Over(x.Node, x.Nodes, x.Config.Resources) {
			i, _ := room.Find(node)
			if !room.Places[i].Fits(part, t) {
				return false
			}
			x.Device = room.Take(i, part, t)
		}
	}
	return true
}
