package joint

import (
	"cmp"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

const (
	// maxPairs bounds the number of nodes times the number of an ideal plan's patterns
	// that are compared. maxMoves bounds the number of moves among which choose chooses.
	maxPairs, maxMoves = 1 << 16, 64
)

// kind is what distinguishes instances in plans. The config has no memory: an instance keeps its own.
type kind struct {
	function int
	artefact string
	config   cluster.Config
}

// move is the stops and starts after which a place holds what the ideal plan has there.
type move struct {
	place  int
	stops  []ExchangeMember
	starts []int // items
	// gains has the rate that each function gains.
	gains []float64
}

// migrate changes places to what the ideal plan has on them: those that gain most, within
// the allowance. It reports whether it did.
func (x *swap) migrate(plan ideal) bool {
	moves := x.choose(x.moves(plan))
	counts, has := make([]int, len(x.functions)), slices.Clone(x.has)
	for _, m := range moves {
		for _, in := range m.stops {
			counts[in.Function]--
		}
		for _, i := range m.starts {
			counts[plan.Of(i)]++
		}
		for k := range has {
			has[k] += m.gains[k]
		}
	}
	for k, f := range x.functions {
		if n := f.Count + counts[k]; f.Max > 0 && n > f.Max || n < f.Floor {
			return false
		}
	}
	if len(moves) == 0 || x.worstServed(has) < x.worstServed(x.has)*(1-Part) {
		return false
	}
	for _, m := range moves {
		x.carryOut(plan, m)
	}
	return true
}

// carryOut plans a move's stops and starts.
func (x *swap) carryOut(plan ideal, m move) {
	for _, in := range m.stops {
		x.stop(m.place, in)
	}
	for _, i := range m.starts {
		c := plan.Choice(i)
		x.start(m.place, plan.Of(i), placing.Placed{Candidate: c.Candidate, Node: x.room.Places[m.place].Name, Range: c.Range})
	}
}

// choose returns the moves that together help most, one after the other: those by which
// Σ log(has/needs) grows most. That favours the function with the least part of its needs.
func (x *swap) choose(moves []move) (chosen []move) {
	welfare := func(has, gains []float64) float64 {
		sum := 0.0
		for k := range has {
			sum += math.Log(min(1, max(1e-3, (has[k]+gains[k])/x.needs[k])))
		}
		return sum
	}
	if len(moves) > maxMoves {
		slices.SortStableFunc(moves, func(a, b move) int { return cmp.Compare(welfare(x.has, b.gains), welfare(x.has, a.gains)) })
		moves = moves[:maxMoves]
	}
	has, few := slices.Clone(x.has), x.allowance()
	none := make([]float64, len(has))
	moves = slices.DeleteFunc(moves, func(m move) bool {
		return !x.early && welfare(has, m.gains)-welfare(has, none) < math.Log1p(lastGain) &&
			renews(x.functions, m.stops, func(k int) bool { return m.gains[k] != 0 })
	})
	pick := func(may func(m move) bool) (best int, most float64) {
		best, most = -1, math.Inf(-1)
		for i, m := range moves {
			if !may(m) {
				continue
			}
			if w := welfare(has, m.gains); w > most {
				best, most = i, w
			}
		}
		return best, most
	}
	for {
		best, most := pick(func(m move) bool { return x.mayStop(few, m.stops) })
		if len(chosen) == 0 && most <= welfare(has, none) {
			// One node may be too much and still the only way.
			best, _ = pick(func(move) bool { return true })
		}
		if best < 0 {
			return chosen
		}
		for k := range has {
			has[k] += moves[best].gains[k]
		}
		x.take(few, moves[best].stops)
		chosen = append(chosen, moves[best])
		moves = slices.Delete(moves, best, best+1)
	}
}

// moves lists the moves of places that differ from the ideal plan. It matches the plan's
// patterns with places such that as much as possible stays.
func (x *swap) moves(plan ideal) (all []move) {
	for j, c := range plan.classes {
		var patterns [][]int
		for _, f := range plan.Filled {
			if f.Class != j {
				continue
			}
			var items []int
			for _, u := range f.Uses {
				items = append(items, slices.Repeat([]int{u.Item}, u.Count)...)
			}
			for range f.Count {
				patterns = append(patterns, items)
			}
		}
		if len(patterns)*len(c.Places) > maxPairs {
			return nil
		}
		for n, items := range x.match(plan, patterns, c.Places) {
			if m := x.move(plan, c.Places[n], items); len(m.stops)+len(m.starts) > 0 {
				all = append(all, m)
			}
		}
	}
	return all
}

// move returns the stops and starts after which a place holds these items.
func (x *swap) move(plan ideal, place int, items []int) move {
	m := move{place: place, starts: slices.Clone(items), gains: make([]float64, len(x.functions))}
	check := x.room.Places[place].Devices != nil
	for _, in := range x.inside[place] {
		same := slices.IndexFunc(m.starts, func(i int) bool { return x.kindOf(plan, i) == kindOf(&in) })
		if same >= 0 {
			planned := &plan.Choice(m.starts[same]).Config
			check = check || planned.Own() < in.Config.Own() || in.Config.Mapped.Bytes > 0 && planned.Mapped != in.Config.Mapped
			m.starts = slices.Delete(m.starts, same, same+1)
			continue
		}
		m.stops = append(m.stops, in)
		m.gains[in.Function] -= x.serves(&in)
	}
	if check {
		m.starts = x.fitting(plan, m)
	}
	for _, i := range m.starts {
		m.gains[plan.Of(i)] += plan.Item(i).Rate
	}
	return m
}

// fitting returns a move's starts for which the place has room beside the instances that stay, the largest
// shares first: these have the devices, and the memory, that they began with.
func (x *swap) fitting(plan ideal, m move) (fit []int) {
	at := x.room.Places[m.place].Node
	for _, in := range m.stops {
		at.Drop(in.Config.Resources, in.Device)
	}
	starts := slices.Clone(m.starts)
	slices.SortStableFunc(starts, func(a, b int) int { return largestFirst(plan.Item(a).Need, plan.Item(b).Need) })
	for _, i := range starts {
		if need, tenant := plan.Item(i).Need, plan.Demands[plan.Of(i)].Allowed.Tenant; at.Fits(need, tenant) {
			at.Start(need, tenant)
			fit = append(fit, i)
		}
	}
	return fit
}

func (x *swap) kindOf(plan ideal, item int) kind {
	c := plan.Choice(item)
	return kind{plan.Of(item), c.Artefact, c.Config.Keeping(cluster.Config{})}
}

func kindOf(in *ExchangeMember) kind {
	return kind{in.Function, in.Artefact, in.Config.Keeping(cluster.Config{})}
}

// match returns the pattern that each place should hold, nil for none. It takes first the
// pairs with the most in common, and of those the pairs with the least difference.
func (x *swap) match(plan ideal, patterns [][]int, places []int) [][]int {
	type pair struct {
		pattern, place int
		common, rest   float64
	}
	var pairs []pair
	weigh := func(i int) float64 { return x.room.Options.Weigh(plan.Item(i).Need) }
	for n, place := range places {
		held := map[kind]int{}
		whole := 0.0
		for _, in := range x.inside[place] {
			held[kindOf(&in)]++
			whole += x.room.Options.Weigh(in.Config.Resources)
		}
		for p, items := range patterns {
			at := pair{pattern: p, place: n, rest: whole}
			left := map[kind]int{}
			for _, i := range items {
				k := x.kindOf(plan, i)
				if left[k]++; left[k] <= held[k] {
					at.common += weigh(i)
					at.rest -= weigh(i)
				} else {
					at.rest += weigh(i)
				}
			}
			pairs = append(pairs, at)
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.common, a.common), cmp.Compare(a.rest, b.rest), cmp.Compare(a.place, b.place), cmp.Compare(a.pattern, b.pattern))
	})
	matched, taken := make([][]int, len(places)), make([]bool, len(patterns))
	settled := make([]bool, len(places))
	for _, at := range pairs {
		if !settled[at.place] && !taken[at.pattern] {
			matched[at.place], settled[at.place], taken[at.pattern] = patterns[at.pattern], true, true
		}
	}
	return matched
}
