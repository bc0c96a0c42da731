package batching

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// group has the instances that serve the same classes.
type group struct {
	classes, lanes uint16
	count          int
	fastest        Fastest
	// idle has the slots of instances that execute nothing; only [Buffer] fills it.
	idle Set
	// turns has the instances whose batches have room, by their turn; only [InFless]
	// fills it.
	turns Ranking[float64]
}

// groups has all groups; those that serve the fewest classes come first.
type groups struct {
	all   []*group
	lanes lanes
	// least is the shortest time that any instance that serves a lane takes for one
	// request, 0 if there is none.
	least [MaxClasses]time.Duration
}

func newGroups() groups { return groups{lanes: newLanes(nil)} }

// join adds an instance that serves those classes and takes exec for one request. It
// returns its group.
func (g *groups) join(classes uint16, exec time.Duration) (to *group, changed change) {
	for _, o := range g.all {
		if o.classes == classes {
			to = o
		}
	}
	if to == nil {
		to = &group{classes: classes}
		g.all = append(g.all, to)
		slices.SortFunc(g.all, func(a, b *group) int {
			return cmp.Or(cmp.Compare(bits.OnesCount16(a.classes), bits.OnesCount16(b.classes)), cmp.Compare(a.classes, b.classes))
		})
		changed.lanes = g.measure()
	}
	to.count++
	to.fastest.Change(-1, exec)
	changed.times = g.hasten()
	return to, changed
}

// leave removes an instance from its group.
func (g *groups) leave(from *group, exec time.Duration) (changed change) {
	from.fastest.Change(exec, -1)
	if from.count--; from.count == 0 {
		g.all = slices.DeleteFunc(g.all, func(o *group) bool { return o == from })
		changed.lanes = g.measure()
	}
	changed.times = g.hasten()
	return changed
}

// change says what changed with the instances: the lanes, and the shortest times.
type change struct{ lanes, times bool }

func (c change) or(o change) change { return change{c.lanes || o.lanes, c.times || o.times} }

// measure calculates the lanes and reports whether they changed.
func (g *groups) measure() (changed bool) {
	before := g.lanes.of
	sets := make([]uint16, len(g.all))
	for i, o := range g.all {
		sets[i] = o.classes
	}
	g.lanes = newLanes(sets)
	for _, o := range g.all {
		o.lanes = g.lanes.having(o.classes)
	}
	return g.lanes.of != before
}

// hasten calculates least and reports whether it changed.
func (g *groups) hasten() (changed bool) {
	before := g.least
	g.least = [MaxClasses]time.Duration{}
	var some uint16
	for _, o := range g.all {
		for rest := o.lanes; rest != 0; rest &= rest - 1 {
			lane := lowest(rest)
			if t := o.fastest.Least(); !has(some, lane) || t < g.least[lane] {
				g.least[lane] = t
			}
		}
		some |= o.lanes
	}
	return g.least != before
}
