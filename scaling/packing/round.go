package packing

import (
	"cmp"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
)

// Solve packs instances for the demands into the nodes. It first serves as much as possible of all
// demands: the same part of each, and more of those that can have more. Then it minimises the cost.
// No node is ever over-full. Equal problems have equal solutions; the orders of demands, items and
// classes break ties. An error names the number that is not valid.
func Solve(p Problem) (Solution, error) {
	all := p.Work
	p.Work = all.half()
	s, err := pack(p, false)
	if err == nil && !s.Rough {
		s = fewer(p, s)
	}
	all.take(p.Work)
	return s, err
}

// pack is Solve without the attempt to save nodes. tight: the nodes are hardly enough.
func pack(p Problem, tight bool) (Solution, error) {
	s, g, err := relax(&p)
	if err != nil || g == nil {
		return s, err
	}
	r := newRounding(g, &s)
	r.dive(tight)
	r.target(g.theta)
	r.fill()
	r.target(nil)
	r.fill()
	r.balance()
	r.shrink()
	r.grow()
	r.finish()
	return s, nil
}

// Relax is Solve for divisible instances. It returns prices, values and the cost of an ideal
// packing, and fills no nodes.
func Relax(p Problem) (Solution, error) {
	all := p.Work
	p.Work = all.half()
	s, _, err := relax(&p)
	all.take(p.Work)
	return s, err
}

func relax(p *Problem) (Solution, *program, error) {
	if err := p.check(); err != nil {
		return Solution{}, nil, err
	}
	s := Solution{Served: make([]float64, len(p.Demands)), Prices: make([]float64, len(p.Demands)), Values: make([]float64, len(p.Classes)), Theta: 1}
	g := newProgram(p, false)
	for k, d := range p.Demands {
		if d > 0 && (g == nil || g.row[k] < 0) {
			s.Theta = 0
		}
	}
	if g == nil {
		return s, nil, nil
	}
	g.run()
	s.Rough = p.Work.spent()
	g.evaluate()
	for i, k := range g.demands {
		s.Prices[k] = max(0, g.prices[i]) / p.Demands[k]
		s.Theta = min(s.Theta, g.theta[i])
	}
	for _, j := range g.classes {
		s.Values[j] = g.sacks.value(j, p.Classes[j].Free)
	}
	for i, j := range g.basis {
		if c := &g.columns[j]; c.class >= 0 {
			s.Cost += c.cost * g.x[i]
		}
	}
	return s, g, nil
}

// open is a single node that is being filled.
type open struct {
	class int
	room  cluster.Resources
	uses  []Use
}

// rounding turns the program's solution into whole nodes.
type rounding struct {
	*program
	solution *Solution
	opens    []open
	// goal is the rate to serve of each demand, and price the value of one request per
	// second of it.
	goal, price []float64
	// premium is the present factor of prices. appraised is the one of the items' present
	// values, and changed has the demands that have got something since.
	premium, appraised float64
	changed            []int
	worthless          bool
	// items has the items of each demand, and least the demanded items that need least: if none of them
	// fits somewhere, no other one does.
	items [][]int
	least []int
}

func newRounding(g *program, s *Solution) *rounding {
	r := &rounding{program: g, solution: s, goal: make([]float64, len(g.Demands)), price: make([]float64, len(g.Demands))}
	r.items = make([][]int, len(g.Demands))
	for i, it := range g.Items {
		for _, k := range it.Demands {
			r.items[k] = append(r.items[k], i)
		}
	}
	barred := slices.ContainsFunc(g.Classes, func(c Class) bool { return c.Barred != nil })
	for i := range g.Items {
		need := g.Items[i].Need
		fits := func(k int) bool { return g.Items[k].Need.Fits(need) }
		if !g.asked(&g.Items[i]) || !barred && slices.ContainsFunc(r.least, fits) {
			continue
		}
		if !barred {
			r.least = slices.DeleteFunc(r.least, func(k int) bool { return need.Fits(g.Items[k].Need) })
		}
		r.least = append(r.least, i)
	}
	// A demand without a price gets a small one.
	least := g.missing / 10 / float64(len(g.demands))
	for _, k := range g.demands {
		r.price[k] = max(s.Prices[k], 1e-6*least/g.Demands[k])
	}
	return r
}

// whole uses every pattern on as many nodes as the program does, rounded down. rest is the number
// of nodes that the program uses beyond that. largest is the pattern with the largest such part,
// or -1.
func (r *rounding) whole() (rest float64, largest int) {
	largest = -1
	most := 0.0
	for i, j := range r.basis {
		c := &r.columns[j]
		if c.class < 0 {
			continue
		}
		at, _ := slices.BinarySearch(r.classes, c.class)
		n := min(int(r.x[i]+1e-6), r.left[at])
		if n > 0 {
			r.left[at] -= n
			r.solution.Filled = append(r.solution.Filled, Filled{c.class, n, c.uses})
			for _, u := range c.uses {
				r.Items[u.Item].serve(r.solution.Served, n*u.Count)
			}
		}
		part := max(0, r.x[i]-float64(n))
		if rest += part; part > most && r.left[at] > 0 {
			most, largest = part, j
		}
	}
	return rest, largest
}

// dive is for problems without enough room, or hardly enough, in which every node will be filled.
// It repeatedly fixes one more pattern on a node and solves the program for what is not served yet,
// as long as more than one node is left over. With few nodes, rounding matters.
func (r *rounding) dive(tight bool) {
	rest, largest := r.whole()
	for range dives {
		if rest <= 1 || largest < 0 || !tight && r.where[r.everywhere()] < 0 || r.Work.spent() {
			return
		}
		c := r.columns[largest]
		at, _ := slices.BinarySearch(r.classes, c.class)
		r.place(r.begun(at), c.uses)
		for i, k := range r.demands {
			r.done[i] = r.solution.Served[k] / r.Demands[k]
		}
		r.again()
		r.generate()
		rest, largest = r.whole()
	}
}

// dives bounds the number of steps of dive.
const dives = 64

// begun opens a node of the n-th class and returns its index in opens.
func (r *rounding) begun(n int) int {
	r.left[n]--
	r.opens = append(r.opens, open{class: r.classes[n], room: r.Classes[r.classes[n]].Free})
	return len(r.opens) - 1
}

// target sets the goals to the parts that the program serves, or to all.
func (r *rounding) target(theta []float64) {
	for i, k := range r.demands {
		if r.goal[k] = r.Demands[k]; theta != nil {
			r.goal[k] *= theta[i]
		}
	}
}

// lacks is the rate that a demand still needs for its goal.
func (r *rounding) lacks(k int) float64 {
	lack := r.goal[k] - r.solution.Served[k]
	if lack <= 1e-9*r.Demands[k] {
		return 0
	}
	return lack
}

// fill serves what is lacking, node by node. The next node is the one on which a pattern has the
// most value for its cost; rate beyond what is lacking has no value. Open nodes come first. If no
// instance pays at the program's prices, because most of its rate would be spare, fill raises the
// prices. A price at which no item has a value stays too low: room and lacks only shrink.
func (r *rounding) fill() {
	const premium, dearest = 1.25, 1e9
	r.appraised = 0
	lowest := premium
	for r.premium = premium; r.premium < dearest; {
		if !r.appraise() {
			return
		}
		r.sacks.fill(r.worth)
		at, uses := r.next()
		if len(uses) == 0 {
			if r.premium *= 4; r.worthless {
				lowest = r.premium
			}
			continue
		}
		if !r.place(at, uses) {
			return
		}
		r.premium = lowest
	}
}

// appraise sets the present value of each item whose demands or premium have changed. It reports
// whether any demand lacks something.
func (r *rounding) appraise() (lacking bool) {
	if r.premium != r.appraised {
		r.appraised = r.premium
		for i := range r.Items {
			r.appraiseItem(i)
		}
	} else {
		for _, k := range r.changed {
			for _, i := range r.items[k] {
				r.appraiseItem(i)
			}
		}
	}
	r.changed = r.changed[:0]
	return slices.ContainsFunc(r.demands, func(k int) bool { return r.lacks(k) > 0 })
}

func (r *rounding) appraiseItem(i int) {
	it, wanted := &r.Items[i], false
	r.worth[i] = 0
	for _, k := range it.Demands {
		if r.row[k] < 0 {
			continue
		}
		if lack := r.lacks(k); lack > 0 {
			wanted = true
			r.worth[i] += r.premium * r.price[k] * min(it.Rate, lack)
		}
	}
	if wanted {
		r.worth[i] -= it.Cost
	}
}

// next returns the open node to fill next and its pattern. If no open node pays, it opens one of
// the best class. worthless says that nothing has a value anywhere.
func (r *rounding) next() (int, []Use) {
	at, most := -1, 0.0
	var best []Use
	r.worthless = true
	for o := range r.opens {
		if r.sacks.value(r.opens[o].class, r.opens[o].room) <= most {
			continue
		}
		r.worthless = false
		if uses, benefit := r.trim(r.sacks.pattern(r.opens[o].class, r.opens[o].room)); benefit > most {
			at, best, most = o, uses, benefit
		}
	}
	if at >= 0 {
		return at, best
	}
	for n, j := range r.classes {
		c := &r.Classes[j]
		if r.left[n] == 0 || r.sacks.value(j, c.Free)/(c.Cost+1e-9) <= most {
			continue
		}
		r.worthless = false
		if uses, benefit := r.trim(r.sacks.pattern(j, c.Free)); benefit/(c.Cost+1e-9) > most {
			at, best, most = n, uses, benefit/(c.Cost+1e-9)
		}
	}
	if at < 0 {
		return 0, nil
	}
	return r.begun(at), best
}

// trim drops the instances of a pattern whose demands lack nothing. It returns the others and their
// value.
func (r *rounding) trim(uses []Use) ([]Use, float64) {
	lack := map[int]float64{}
	benefit := 0.0
	sorted := slices.Clone(uses)
	slices.SortStableFunc(sorted, func(a, b Use) int { return cmp.Compare(r.Items[b.Item].Rate, r.Items[a.Item].Rate) })
	kept := sorted[:0]
	for _, u := range sorted {
		it := &r.Items[u.Item]
		most := 0.0
		for _, k := range it.Demands {
			if _, known := lack[k]; !known {
				lack[k] = r.lacks(k)
			}
			most = max(most, lack[k])
		}
		n := min(u.Count, int(math.Ceil(most/it.Rate-1e-9)))
		if n <= 0 {
			continue
		}
		served, worth := float64(n)*it.Rate, 0.0
		for _, k := range it.Demands {
			worth += r.premium * r.price[k] * min(lack[k], served)
			lack[k] = max(0, lack[k]-served)
		}
		benefit += worth - float64(n)*it.Cost
		kept = append(kept, Use{u.Item, n})
	}
	return kept, benefit
}

// serve adds the rate of n instances to served.
func (it *Item) serve(served []float64, n int) {
	for _, k := range it.Demands {
		served[k] += float64(n) * it.Rate
	}
}

// place puts instances on an open node. It returns false if one does not fit; no pattern causes
// that.
func (r *rounding) place(at int, uses []Use) bool {
	o := &r.opens[at]
	for _, u := range uses {
		it := &r.Items[u.Item]
		for range u.Count {
			if !it.Need.Fits(o.room) {
				return false
			}
			r.put(o, u.Item, 1)
		}
	}
	return true
}

// put adds n instances of an item to an open node, or removes -n if n is negative.
func (r *rounding) put(o *open, item, n int) {
	it := &r.Items[item]
	for range max(n, -n) {
		if n > 0 {
			o.room = o.room.Sub(it.Need)
		} else {
			o.room = o.room.Add(it.Need)
		}
	}
	it.serve(r.solution.Served, n)
	r.changed = append(r.changed, it.Demands...)
	if i := slices.IndexFunc(o.uses, func(u Use) bool { return u.Item == item }); i >= 0 {
		if o.uses[i].Count += n; o.uses[i].Count == 0 {
			o.uses = slices.Delete(o.uses, i, i+1)
		}
		return
	}
	o.uses = append(o.uses, Use{item, n})
}

// finish adds the open nodes to the solution.
func (r *rounding) finish() {
	for _, o := range r.opens {
		if len(o.uses) > 0 {
			slices.SortFunc(o.uses, func(a, b Use) int { return a.Item - b.Item })
			r.solution.Filled = append(r.solution.Filled, Filled{o.class, 1, o.uses})
		}
	}
}
