package packing

import "slices"

// program is the master program of a problem. It has a row for every demand that can be served, in
// units of that demand, and one for every class of nodes. If not all demands can be served, all are
// served to the same part θ. Those that can have more without harm to the others then get it
// (max-min).
type program struct {
	*Problem
	*master
	sacks *zones
	// demands and classes have the demand or class of each row. row has the row of each
	// demand, or -1.
	demands, classes []int
	row              []int
	// theta is, by row, the part that a demand gets, and fixed whether that is final. done
	// is the part that is already served. left is the number of unused nodes of each class.
	theta, done []float64
	fixed       []bool
	left        []int
	// missing is the cost if all demands are missing. worth is the present value of each
	// item.
	missing float64
	worth   []float64
}

// pivots and rounds bound the work; they are far above the usual numbers.
const (
	pivots = 20000
	rounds = 2000
	// gap is the relative distance from the optimum at which the program may stop.
	gap = 1e-3
)

// newProgram returns the program of a problem, or nil if nothing can be served at all.
func newProgram(p *Problem, loose bool) *program {
	g := &program{Problem: p, row: make([]int, len(p.Demands)), worth: make([]float64, len(p.Items))}
	served := make([]bool, len(p.Demands))
	for j, c := range p.Classes {
		usable := false
		for i := range p.Items {
			it := &p.Items[i]
			if c.Count == 0 || !it.Need.Fits(c.Free) || c.bars(it) {
				continue
			}
			for _, k := range it.Demands {
				if p.Demands[k] > 0 {
					usable, served[k] = true, true
				}
			}
		}
		if usable {
			g.classes = append(g.classes, j)
		}
	}
	for k := range p.Demands {
		if g.row[k] = -1; served[k] {
			g.row[k] = len(g.demands)
			g.demands = append(g.demands, k)
		}
	}
	if len(g.demands) == 0 {
		return nil
	}
	g.theta, g.fixed = make([]float64, len(g.demands)), make([]bool, len(g.demands))
	for i := range g.theta {
		g.theta[i] = 1
	}
	g.done = make([]float64, len(g.demands))
	usable := make([]Class, 0, len(g.classes))
	for _, j := range g.classes {
		usable, g.left = append(usable, p.Classes[j]), append(g.left, p.Classes[j].Count)
	}
	g.sacks = newZones(p, usable, loose)
	g.missing = g.dear()
	g.begin(nil)
	return g
}

// dear is an upper bound for the cost of serving all demands: ten times the cost with one item on
// each node, the cheapest for each demand.
func (g *program) dear() float64 {
	least := make([]float64, len(g.demands))
	dearest := 1.0
	for _, j := range g.classes {
		dearest = max(dearest, g.Classes[j].Cost)
	}
	for _, it := range g.Items {
		for _, k := range it.Demands {
			i := g.row[k]
			if i < 0 {
				continue
			}
			if c := (dearest + it.Cost) * g.Demands[k] / it.Rate; least[i] == 0 || c < least[i] {
				least[i] = c
			}
		}
	}
	sum := 0.0
	for _, c := range least {
		sum += c
	}
	return 10 * sum
}

// begin builds the master program with these patterns.
func (g *program) begin(patterns []column) {
	var right []float64
	var first []column
	everywhere := column{cost: g.missing, class: -1}
	for i := range g.demands {
		right = append(right, max(0, g.theta[i]-g.done[i]))
		first = append(first, column{cost: 10 * g.missing, rows: []int{i}, in: []float64{1}, class: -1})
		if !g.fixed[i] {
			everywhere.rows, everywhere.in = append(everywhere.rows, i), append(everywhere.in, 1)
		}
	}
	for n := range g.classes {
		right = append(right, float64(g.left[n]))
		first = append(first, column{rows: []int{len(g.demands) + n}, in: []float64{1}, class: -1})
	}
	g.master = newMaster(right, first, g.Work)
	if len(everywhere.rows) > 0 {
		g.add(everywhere)
	}
	for i := range g.demands {
		g.add(column{rows: []int{i}, in: []float64{-1}, class: -1})
	}
	for _, c := range patterns {
		g.add(c)
	}
}

// everywhere is the index of the column of the part that all demands lack.
func (g *program) everywhere() int { return g.rows }

// run solves the program and fixes the part that each demand gets.
func (g *program) run() {
	g.generate()
	g.raise()
	for ; ; g.generate() {
		at := g.where[g.everywhere()]
		if at < 0 || g.x[at] < 1e-7 || !slices.Contains(g.fixed, false) {
			return
		}
		theta := 1 - g.x[at]
		for i := range g.demands {
			// A demand without a price could have more, if there were work left to find out.
			if !g.fixed[i] && (g.prices[i] > 1e-9*g.missing || g.Work.spent()) {
				g.theta[i], g.fixed[i] = theta, true
			}
		}
		if !slices.Contains(g.fixed, false) {
			return
		}
		g.again()
	}
}

// again rebuilds the program with its present patterns.
func (g *program) again() {
	g.begin(slices.DeleteFunc(g.columns, func(c column) bool { return c.class < 0 }))
}

// generate solves the program over all possible patterns: it adds a pattern of a class as long as
// one has more value than cost.
func (g *program) generate() {
	for range rounds {
		g.solve(pivots)
		if g.Work.spend(8 * len(g.Items)); g.Work.spent() {
			return
		}
		g.evaluate()
		added := false
		for n, j := range g.classes {
			c := &g.Classes[j]
			value := g.sacks.value(j, c.Free)
			if c.Cost-value-g.prices[len(g.demands)+n] < -g.tolerance(c.Cost) {
				added = g.add(g.pattern(n, g.sacks.pattern(j, c.Free))) || added
			}
		}
		if !added || g.total()-g.least() <= gap*g.total() {
			return
		}
	}
}

// evaluate fills the knapsacks with the items' values at the current prices.
func (g *program) evaluate() {
	for i := range g.Items {
		it, worth, asked := &g.Items[i], 0.0, false
		for _, k := range it.Demands {
			if row := g.row[k]; row >= 0 {
				worth, asked = worth+g.prices[row]*it.Rate/g.Demands[k], true
			}
		}
		if asked {
			worth -= it.Cost
		}
		g.worth[i] = worth
	}
	g.sacks.fill(g.worth)
}

// asked reports whether an item serves a demand that has a row.
func (g *program) asked(it *Item) bool {
	return slices.ContainsFunc(it.Demands, func(k int) bool { return g.row[k] >= 0 })
}

// pattern returns the column of a pattern on the n-th class.
func (g *program) pattern(n int, uses []Use) column {
	j := g.classes[n]
	c := column{cost: g.Classes[j].Cost, class: j, uses: uses}
	served := map[int]float64{}
	for _, u := range uses {
		it := &g.Items[u.Item]
		c.cost += float64(u.Count) * it.Cost
		for _, k := range it.Demands {
			if g.row[k] < 0 {
				continue
			}
			if _, known := served[k]; !known {
				c.rows = append(c.rows, g.row[k])
			}
			served[k] += float64(u.Count) * it.Rate
		}
	}
	for _, i := range c.rows {
		k := g.demands[i]
		c.in = append(c.in, served[k]/g.Demands[k])
	}
	c.rows, c.in = append(c.rows, len(g.demands)+n), append(c.in, 1)
	return c
}

// least is a lower bound of the objective from the current prices: Lagrange's, or Farley's, which
// lowers the prices until no pattern pays.
func (g *program) least() float64 {
	pays := 1.0
	for _, j := range g.classes {
		if c := &g.Classes[j]; c.Cost > 0 {
			if v := g.sacks.value(j, c.Free); v > c.Cost {
				pays = min(pays, c.Cost/v)
			}
		}
	}
	return max(g.lagrange(1), g.lagrange(pays))
}

func (g *program) lagrange(scale float64) float64 {
	sum, all := 0.0, 0.0
	for i := range g.demands {
		sum += scale * g.prices[i] * g.right[i]
		if !g.fixed[i] {
			all += scale * g.prices[i]
		}
	}
	for n, j := range g.classes {
		c := &g.Classes[j]
		sum += float64(g.left[n]) * min(0, c.Cost-scale*g.sacks.value(j, c.Free))
	}
	return sum + min(0, g.missing-all)
}
