package scaling

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/packing"
)

// Where all nodes are full and load is left over, instances are exchanged for
// others that serve more in the same room: functions grew one by one, so nodes
// hold what was best when there was room. The nodes that are worth least at the
// prices of an ideal plan for everything are emptied and packed anew, a few at a
// time, and only if what they hold is worth a good deal more then, or the function
// that is worst off gains. As no exchange takes from that one, exchanges come to
// an end. Where the ideal plan is better as it is, in whole instances, nodes become
// what it has on them, a few at a time; it stays the same as long as the load does,
// so that comes to an end, too.
const (
	// exchangePart is the part of the instances that are exchanged at once, if
	// no larger part of the load is left over anyway.
	exchangePart = 0.1
	// exchangeGain is how much more than before the emptied nodes must be
	// worth, as a part of it, or balanceGain how much more the function must
	// get of which the smallest part is served, which never gets less.
	exchangeGain, balanceGain = 0.05, 0.02
)

// exchange plans one step, if one is due. While instances start, only these are
// exchanged, and not again and again: that costs no more than the time since they
// were started.
func (p *pass) exchange() {
	w := &p.engine.exchanges
	short := func(v *view) bool { return v.joint && v.short == NoRoom && v.steady > v.capacity() }
	if !p.engine.settings.Joint || !slices.ContainsFunc(p.views, short) {
		w.short = time.Time{}
		return
	}
	if w.short.IsZero() {
		w.short = p.now
	}
	x := &swap{pass: p}
	for _, v := range p.views {
		if !v.joint || len(v.live) == 0 || v.robbed || len(v.old) > 0 || !p.allowed(v).any() {
			continue
		}
		if v.started > 0 || v.woken {
			return
		}
		x.early = x.early || slices.ContainsFunc(v.live, func(in Running) bool { return in.State == cluster.Starting })
		x.views = append(x.views, v)
	}
	switch window := p.engine.settings.Stabilisation; {
	case x.early && w.early(p.now, window):
		x.try()
	case !x.early && w.due(p.now):
		w.looked(p.now, x.try(), window)
	}
}

// swap is one try to exchange instances.
type swap struct {
	*pass
	thrift
	views []*view
	// early: only instances that are still starting may be exchanged.
	early bool
	// needs is what each view is to serve, has what it does, prices what a
	// request per second of it is worth.
	needs, has, prices []float64
	// inside are the instances that could be exchanged, by place.
	inside map[int][]member
	// total counts them.
	total int
}

// member is an instance and the index of its view.
type member struct {
	Running
	view int
}

// try brings nodes to what an ideal plan for everything has on them, or, if that
// plan's whole instances are no better than what there is, exchanges the worst
// nodes' instances, or else the worst node's. It reports whether it did.
func (x *swap) try() bool {
	ideal, ok := x.ideally()
	if ok && slices.ContainsFunc(x.views, func(v *view) bool { return ideal.Theta*v.steady < v.least() }) {
		// Not even the load itself finds room with what is kept for chance.
		x.crowded = true
		ideal, ok = x.ideally()
	}
	if !ok {
		return false
	}
	part := x.part(x.has)
	x.prices = ideal.Prices
	if x.part(ideal.Served) >= part*(1+balanceGain) && x.migrate(ideal) {
		return true
	}
	if x.early || ideal.Theta < part*(1+balanceGain) {
		return false
	}
	worst := x.worst(ideal)
	budget := x.budget()
	n, count := 0, 0
	for n < len(worst) && (n == 0 || float64(count+len(x.inside[worst[n]])) <= budget) {
		count += len(x.inside[worst[n]])
		n++
	}
	return n > 0 && (x.replace(worst[:n]) || n > 1 && x.replace(worst[:1]))
}

// budget is how many instances are exchanged at once.
func (x *swap) budget() float64 {
	if x.early {
		return float64(x.total)
	}
	return max(exchangePart, 1-x.part(x.has)) * float64(x.total)
}

// ideal is a plan for all that the views need, on places without instances.
type ideal struct {
	*together
	packing.Solution
	classes []class
}

// ideally makes it. It reports false if some view has no config at all.
func (x *swap) ideally() (ideal, bool) {
	x.look()
	t := x.ask(x.views, x.thrift, func(v *view) float64 { return x.needs[slices.Index(x.views, v)] })
	classes, s := t.solve(x.emptied(nil))
	return ideal{t, s, classes}, len(t.views) == len(x.views)
}

// part is the part of its needs that the function gets which is worst off.
func (x *swap) part(has []float64) float64 {
	part := 1.0
	for k := range x.views {
		part = min(part, has[k]/x.needs[k])
	}
	return part
}

// serves is what an instance of v serves.
func (x *swap) serves(v *view, in *Running) float64 {
	if x.crowded {
		return v.full(in.Config, in.Exec, in.Mean)
	}
	return v.bounds(in).Up
}

// look takes in what is served and could be exchanged. Where there is not enough
// for what is asked for now, what was asked for before does not count.
func (x *swap) look() {
	x.inside, x.needs, x.has, x.total = map[int][]member{}, nil, nil, 0
	fixed := map[int]bool{}
	for k, v := range x.views {
		need, has := v.steady, v.startedUp
		for i := range v.live {
			has += x.serves(v, &v.live[i])
		}
		x.needs, x.has = append(x.needs, max(need, someLoad)), append(x.has, has)
		for _, in := range v.live {
			i, ok := x.space().find(in.Node)
			if !ok {
				continue
			}
			x.inside[i] = append(x.inside[i], member{in, k})
			fixed[i] = fixed[i] || x.early != (in.State == cluster.Starting) || len(x.space().places[i].leaving) > 0
		}
	}
	for i := range fixed {
		if fixed[i] {
			delete(x.inside, i)
		}
		x.total += len(x.inside[i])
	}
}

// emptied is the room if the instances on these places were gone; on all places
// for nil. What they leave does not count as used.
func (x *swap) emptied(places []int) *room {
	trial := x.space().clone()
	if places == nil {
		for i := range x.inside {
			places = append(places, i)
		}
		slices.Sort(places)
	}
	for _, i := range places {
		free := trial.places[i].free
		for _, in := range x.inside[i] {
			free = free.Add(in.Config.Resources)
		}
		trial.set(i, free)
		trial.places[i].used = false
	}
	return trial
}

// worst sorts the places with instances by what these are worth, compared with
// the best that the place could hold.
func (x *swap) worst(plan ideal) []int {
	best := map[int]float64{}
	for j, c := range plan.classes {
		for _, i := range c.places {
			best[i] = plan.Values[j]
		}
	}
	poorest := x.part(x.has)
	part := func(i int) float64 {
		sum := 0.0
		for _, in := range x.inside[i] {
			// What those have who are well off is worth less.
			sum += x.worth(in) * poorest / max(x.has[in.view]/x.needs[in.view], 1e-12)
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

// worth is what an instance serves at the prices; what its function does not need
// is worth nothing.
func (x *swap) worth(in member) float64 {
	k := in.view
	return x.prices[k] * x.serves(x.views[k], &in.Running) * min(1, x.needs[k]/max(x.has[k], 1e-12))
}

// replace packs these places anew for what the others do not serve, if they are
// worth more then.
func (x *swap) replace(places []int) bool {
	left := slices.Clone(x.has)
	old := 0.0
	for _, i := range places {
		for _, in := range x.inside[i] {
			old += x.worth(in)
			left[in.view] -= x.serves(x.views[in.view], &in.Running)
		}
	}
	t := x.ask(x.views, x.thrift, func(v *view) float64 {
		k := slices.Index(x.views, v)
		return max(0, x.needs[k]-left[k])
	})
	trial := x.emptied(places)
	placements := t.place(trial)
	gain, after := 0.0, slices.Clone(left)
	for k := range x.views {
		if n := slices.Index(t.views, x.views[k]); n >= 0 {
			for _, y := range placements[n].Placed {
				after[k] += y.Range.Up
			}
			if v := x.views[k]; v.Max > 0 && v.count()+len(placements[n].Placed) > v.Max {
				return false
			}
		}
		gain += x.prices[k] * (min(after[k], x.needs[k]) - min(x.has[k], x.needs[k]))
	}
	better := x.part(after)/x.part(x.has) - 1
	if better < 0 || gain <= exchangeGain*old && (better < balanceGain || gain < -balanceGain*old) {
		return false
	}
	x.carry(t, places, placements)
	return true
}

// carry plans the stops and starts. An instance stays where one like it is to be.
func (x *swap) carry(t *together, places []int, placements []Placement) {
	for n, v := range t.views {
		for _, i := range places {
			x.inside[i] = slices.DeleteFunc(x.inside[i], func(in member) bool {
				if x.views[in.view] != v {
					return false
				}
				same := slices.IndexFunc(placements[n].Placed, func(y Placed) bool { return y.Node == in.Node && y.Config == in.Config })
				if same >= 0 {
					placements[n].Placed = slices.Delete(placements[n].Placed, same, same+1)
				}
				return same >= 0
			})
		}
	}
	for _, i := range places {
		for _, in := range x.inside[i] {
			x.stop(x.views[in.view], in.Running, Rearranged)
			x.space().give(i, in.Config.Resources, in.ID)
		}
	}
	for n, v := range t.views {
		for _, y := range placements[n].Placed {
			i, _ := x.space().find(y.Node)
			x.space().take(i, y.Config.Resources)
		}
		x.start(v, placements[n].Placed)
	}
}
