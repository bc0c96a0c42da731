package joint

import (
	"cmp"
	"maps"
	"slices"

	"github.com/faas-infer/faas-infer/scaling/placing"
)

// worstServed is the smallest part of its needs that any function gets.
func (x *swap) worstServed(has []float64) float64 {
	part := 1.0
	for k := range x.functions {
		part = min(part, has[k]/x.needs[k])
	}
	return part
}

// emptied returns the room as if the instances on these places were gone, or on all places
// for nil. Emptied places do not count as used.
func (x *swap) emptied(places []int) *placing.Room {
	trial := x.room.Clone()
	if places == nil {
		for i := range x.inside {
			places = append(places, i)
		}
		slices.Sort(places)
	}
	for _, i := range places {
		for _, in := range x.inside[i] {
			trial.Undo(i, in.Config.Resources, in.Device)
		}
		trial.Places[i].Used = false
	}
	return trial
}

// worst sorts the places with instances by the value of these, compared with the best
// that the place could hold. The worst comes first.
func (x *swap) worst(plan ideal) []int {
	best := map[int]float64{}
	for j, c := range plan.classes {
		for _, i := range c.Places {
			best[i] = plan.Values[j]
		}
	}
	poorest := x.worstServed(x.has)
	part := func(i int) float64 {
		sum := 0.0
		for _, in := range x.inside[i] {
			// More of a demand that is well served is worth less.
			sum += x.worth(in) * poorest / max(x.has[in.Function]/x.needs[in.Function], 1e-12)
		}
		return sum / max(best[i], 1e-12)
	}
	var places []int
	for i := range x.inside {
		if best[i] > 0 {
			places = append(places, i)
		}
	}
	slices.SortFunc(places, func(a, b int) int { return cmp.Or(cmp.Compare(part(a), part(b)), cmp.Compare(a, b)) })
	return places
}

// worth is the value of what an instance serves, at the prices. Capacity that its function
// does not need has no value.
func (x *swap) worth(in ExchangeMember) float64 {
	k := in.Function
	return x.prices[k] * x.serves(&in) * min(1, x.needs[k]/max(x.has[k], 1e-12))
}

// replace packs these places again for the load that the others do not serve, if that is
// worth more. It reports whether it did.
func (x *swap) replace(places []int) bool {
	left := slices.Clone(x.has)
	old := 0.0
	for _, i := range places {
		for _, in := range x.inside[i] {
			old += x.worth(in)
			left[in.Function] -= x.serves(&in)
		}
	}
	problem, of := x.ask(func(k int) float64 { return max(0, x.needs[k]-left[k]) })
	placements := problem.Place(x.emptied(places))
	gain, after := 0.0, slices.Clone(left)
	for k, f := range x.functions {
		if n := slices.Index(of, k); n >= 0 {
			for _, y := range placements[n].Placed {
				after[k] += y.Range.Up
			}
			if f.Max > 0 && f.Count+len(placements[n].Placed) > f.Max {
				return false
			}
		}
		gain += x.prices[k] * (min(after[k], x.needs[k]) - min(x.has[k], x.needs[k]))
	}
	better := 0.0
	if before, now := x.worstServed(x.has), x.worstServed(after); now != before {
		better = now/before - 1 // It is infinite if before is 0.
	}
	if better < 0 || gain <= valueGain*old && (better < Gain || gain < -Gain*old) {
		return false
	}
	return x.carry(of, places, placements, better >= lastGain || gain > lastGain*old)
}

// carry plans the stops and starts. An instance stays if the placement has one like it on
// the same node. It stays on its device, which may not be the placement's: if the devices then have
// no room for the others, carry plans nothing and returns false. So it does if that would exchange all
// instances of a function for others of its own and last does not allow it.
func (x *swap) carry(of, places []int, placements []placing.Placement, last bool) bool {
	leave := map[int][]ExchangeMember{}
	for _, i := range places {
		leave[i] = slices.Clone(x.inside[i])
	}
	var starts []ExchangeStart
	for n, k := range of {
		fresh := slices.Clone(placements[n].Placed)
		for _, i := range places {
			leave[i] = slices.DeleteFunc(leave[i], func(in ExchangeMember) bool {
				if in.Function != k {
					return false
				}
				same := slices.IndexFunc(fresh, func(y placing.Placed) bool {
					return y.Node == in.Node && y.Artefact == in.Artefact && y.Config.Keeping(in.Config) == in.Config
				})
				if same >= 0 {
					fresh = slices.Delete(fresh, same, same+1)
				}
				return same >= 0
			})
		}
		for _, y := range fresh {
			starts = append(starts, ExchangeStart{y, k})
		}
	}
	if slices.ContainsFunc(starts, func(s ExchangeStart) bool { return s.Device != "" }) {
		slices.SortStableFunc(starts, func(a, b ExchangeStart) int { return largestFirst(a.Config.Resources, b.Config.Resources) })
	}
	gets := func(k int) bool {
		return slices.ContainsFunc(starts, func(s ExchangeStart) bool { return s.Function == k })
	}
	if !last && renews(x.functions, slices.Concat(slices.Collect(maps.Values(leave))...), gets) {
		return false
	}
	trial := x.room.Clone()
	for _, i := range places {
		for _, in := range leave[i] {
			trial.Undo(i, in.Config.Resources, in.Device)
		}
	}
	if !x.takeAll(trial, starts) {
		return false
	}
	for _, i := range places {
		for _, in := range leave[i] {
			x.stop(i, in)
		}
	}
	for _, s := range starts {
		i, _ := x.room.Find(s.Node)
		x.start(i, s.Function, s.Placed)
	}
	return true
}

// takeAll takes the room of instances that are to start. It reports whether all fit.
func (x *swap) takeAll(room *placing.Room, starts []ExchangeStart) bool {
	for _, s := range starts {
		i, _ := room.Find(s.Node)
		tenant := x.functions[s.Function].Tenant
		if !room.Places[i].Fits(s.Config.Resources, tenant) {
			return false
		}
		room.Take(i, s.Config.Resources, tenant)
	}
	return true
}

// stop gives an instance's room to others.
func (x *swap) stop(place int, in ExchangeMember) {
	x.room.Give(place, in.Config.Resources, in.Device, in.ID)
	x.step.Stop = append(x.step.Stop, in)
}

// start takes room for an instance.
func (x *swap) start(place, function int, y placing.Placed) {
	y.Device = x.room.Take(place, y.Config.Resources, x.functions[function].Tenant)
	x.step.Start = append(x.step.Start, ExchangeStart{y, function})
}
