package packing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
)

// inverses sets the number of rows up to which inverses are explicit, until the test ends.
func inverses(t *testing.T, explicit int) {
	before := explicitRows
	explicitRows = explicit
	t.Cleanup(func() { explicitRows = before })
}

// sparse returns a column with a few entries, one of them in the given row.
func sparse(r *rand.Rand, rows, row int) column {
	c := column{rows: []int{row}, in: []float64{1 + r.Float64()}}
	for k := range r.IntN(3) {
		if other := r.IntN(rows); other != row && (k == 0 || other != c.rows[len(c.rows)-1]) {
			c.rows, c.in = append(c.rows, other), append(c.in, r.Float64()-0.5)
		}
	}
	return c
}

// Both inverses are the same after they were calculated again and after pivots, and the product of
// the inverse and the basis is the unit matrix.
func TestInverses(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		rows := 1 + r.IntN(40)
		basis := make([]*column, rows)
		for i := range basis {
			c := sparse(r, rows, i)
			basis[i] = &c
		}
		product, at, ok := invertToProduct(basis)
		if !ok {
			continue
		}
		step, placed := make([]float64, rows), make([]*column, rows)
		for j, c := range basis {
			placed[at[j]] = c
		}
		for pivots := range 5 {
			explicit, ok := invertExplicitly(placed)
			if !ok {
				t.Fatalf("seed %d: singular after %d pivots", seed, pivots)
			}
			same := func(what string, f func(of inverse, to []float64)) {
				t.Helper()
				a, b := make([]float64, rows), make([]float64, rows)
				f(product, a)
				f(explicit, b)
				for i := range a {
					if math.Abs(a[i]-b[i]) > 1e-6*(1+math.Abs(b[i])) {
						t.Fatalf("seed %d, %d pivots: %s is %v as a product, explicitly %v", seed, pivots, what, a, b)
					}
				}
			}
			costs := make([]float64, rows)
			for i := range costs {
				costs[i] = r.Float64()
			}
			same("the row", func(of inverse, to []float64) { of.timesRow(costs, to) })
			c := sparse(r, rows, r.IntN(rows))
			same("the column", func(of inverse, to []float64) { of.times(&c, to) })
			for i, x := range placed {
				product.times(x, step)
				for k, v := range step {
					if want := map[bool]float64{true: 1}[i == k]; math.Abs(v-want) > 1e-6 {
						t.Fatalf("seed %d: the inverse times column %d is %v", seed, i, step)
					}
				}
			}
			product.times(&c, step)
			leave := 0
			for i, d := range step {
				if math.Abs(d) > math.Abs(step[leave]) {
					leave = i
				}
			}
			product.pivot(step, leave)
			placed[leave] = &c
		}
	}
}

func TestSingular(t *testing.T) {
	twice := &column{rows: []int{0, 1}, in: []float64{1, 2}}
	if _, _, ok := invertToProduct([]*column{twice, twice}); ok {
		t.Error("equal columns have an inverse as a product")
	}
	if _, ok := invertExplicitly([]*column{twice, twice}); ok {
		t.Error("equal columns have an explicit inverse")
	}
}

// many returns a problem with that many demands, more than fit if it is crowded.
func many(r *rand.Rand, demands int, crowded bool) Problem {
	p := Problem{Classes: []Class{
		{Free: cluster.Resources{CPU: 16000, Memory: 64 << 30}, Count: demands, Cost: 10},
		{Free: cluster.Resources{CPU: 16000, GPU: 100, Memory: 64 << 30}, Count: demands / 8, Cost: 100},
	}}
	if crowded {
		p.Classes[0].Count, p.Classes[1].Count = demands/16, demands/64
	}
	for k := range demands {
		p.Demands = append(p.Demands, 1+math.Floor(r.ExpFloat64()*50))
		speed := 5 + r.Float64()*20
		for _, cpu := range []int{500, 1000, 2000, 4000} {
			for _, gpu := range []int{0, 10, 20} {
				p.Items = append(p.Items, Item{
					Demands: []int{k}, Rate: speed * (math.Pow(float64(cpu)/1000, 0.9) + float64(gpu)/4), Cost: 0.06*float64(cpu)/1000 + 0.1*float64(gpu),
					Need: cluster.Resources{CPU: cpu, GPU: gpu, Memory: 256 << 20},
				})
			}
		}
	}
	return p
}

// The kind of the inverse is a matter of time alone: the program has the same optimum.
func TestManyDemands(t *testing.T) {
	for _, crowded := range []bool{false, true} {
		t.Run(fmt.Sprint("crowded ", crowded), func(t *testing.T) {
			p := many(rand.New(rand.NewPCG(7, 8)), 60, crowded)
			inverses(t, 0)
			product, err := Solve(p)
			if err != nil {
				t.Fatal(err)
			}
			inverses(t, math.MaxInt)
			explicit, err := Solve(p)
			if err != nil {
				t.Fatal(err)
			}
			p.verify(t, product)
			near := func(a, b float64) bool { return math.Abs(a-b) <= 2*gap*max(a, b) }
			if !near(product.Theta, explicit.Theta) || !near(product.Cost, explicit.Cost) {
				t.Errorf("with products %v is served at a cost of %v, with explicit inverses %v at %v", product.Theta, product.Cost, explicit.Theta, explicit.Cost)
			}
			if a, b := p.part(product), p.part(explicit); a < 0.9*b {
				t.Errorf("with products %v of each demand is served, with explicit inverses %v", a, b)
			}
		})
	}
}

// Little work makes a rough solution, which is valid, depends on nothing else and fills the nodes.
// Solutions that need less than they may have do not depend on the bound.
func TestWork(t *testing.T) {
	p := many(rand.New(rand.NewPCG(7, 8)), 300, true)
	solve := func(steps int) (Solution, int) {
		t.Helper()
		if p.Work = nil; steps > 0 {
			p.Work = NewWork(steps)
		}
		s, err := Solve(p)
		if err != nil {
			t.Fatal(err)
		}
		p.verify(t, s)
		if p.Work == nil {
			return s, 0
		}
		return s, steps - p.Work.left
	}
	full, _ := solve(0)
	enough, used := solve(math.MaxInt)
	if full.Rough || enough.Rough || !reflect.DeepEqual(full, enough) {
		t.Errorf("%d steps are enough; rough %v and %v", used, full.Rough, enough.Rough)
	}
	for _, steps := range []int{1, 1000, used / 10} {
		rough, took := solve(steps)
		again, _ := solve(steps)
		nodes, all := nodes(rough), p.Classes[0].Count+p.Classes[1].Count
		if !rough.Rough || !reflect.DeepEqual(rough, again) || nodes < all {
			t.Errorf("%d steps: rough %v, fills %d of %d nodes", steps, rough.Rough, nodes, all)
		}
		if took > steps/2+1_000_000 { // It may end a round.
			t.Errorf("%d steps were taken of %d", took, steps)
		}
	}
	relaxed, err := Relax(p)
	if err != nil || !relaxed.Rough {
		t.Errorf("rough %v, %v", relaxed.Rough, err)
	}
}

// plainFill is fill as it reads: it goes through all prices after each pattern, and appraises every
// item again.
func (r *rounding) plainFill() {
	for r.premium = 1.25; r.premium < 1e9; {
		r.appraised = 0
		if !r.appraise() {
			return
		}
		r.sacks.fill(r.worth)
		at, uses := r.next()
		if len(uses) == 0 {
			r.premium *= 4
			continue
		}
		if !r.place(at, uses) {
			return
		}
		r.premium = 1.25
	}
}

// What fill skips changes nothing.
func TestFillSkipsNothing(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 4))
		p := random(r)
		if seed%2 > 0 {
			p.share(r)
		}
		if seed%20 == 0 {
			p = many(r, 20, seed%40 == 0)
		}
		fill := func(how func(*rounding)) Solution {
			s, g, err := relax(&p)
			if err != nil || g == nil {
				return s
			}
			x := newRounding(g, &s)
			x.dive(false)
			x.target(g.theta)
			how(x)
			x.target(nil)
			how(x)
			x.finish()
			return s
		}
		if got, want := fill((*rounding).fill), fill((*rounding).plainFill); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %+v, plainly %+v", seed, got, want)
		}
	}
}
