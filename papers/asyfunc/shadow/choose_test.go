package shadow

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// every calls yield with each Φ of up to three runs.
func every(blocks int, yield func(Phi)) {
	for set := 1; set < 1<<blocks; set++ {
		in := make([]bool, blocks)
		for i := range in {
			in[i] = set>>i&1 == 1
		}
		if phi := Of(in); len(phi) <= maxRuns {
			yield(phi)
		}
	}
}

// The choice among small models is that of looking at everything for nearly all, and next to
// it for the others.
func TestChooseIsNearlyExact(t *testing.T) {
	for _, synchronous := range []bool{false, true} {
		for _, reach := range []float64{0, 0.9} {
			same, all, worst := 0, 0, 1.0
			for seed := range uint64(60) {
				rng := rand.New(rand.NewPCG(seed, 7))
				m := random(rng, 3+rng.IntN(6))
				o := mustDefault(t, Options{
					Body: 1000, Shadow: 1000, Shadows: 1 + rng.IntN(2), MaxRows: 8, Rho: 10 * rng.Float64(), Partial: rng.IntN(2) == 0,
					Transfer: Transfer{0.3, 0.1 + rng.Float64()}, Synchronous: synchronous, Reach: reach,
				})
				if rng.IntN(2) == 0 {
					o.SLO = m.Time(0, len(m.Blocks), 4, 1000)
				}
				p, _, err := Choose(m, o)
				if err != nil {
					t.Fatal(err)
				}
				e := newEvaluation(m, o)
				best := rank{math.Inf(1), math.Inf(1)}
				every(len(m.Blocks), func(phi Phi) {
					if o.Partial && m.IsAll(phi) {
						return
					}
					for n := 1; n <= o.Shadows; n++ {
						other := e.pair(phi, n)
						if r := e.rank(e.holds(phi), other.Best, n); r.better(best) {
							best = r
						}
					}
				})
				got := e.rank(e.holds(p.Phi), p.Best, p.Shadows)
				if !math.IsInf(best.value, 1) {
					all++
				}
				if !math.IsInf(got.value, 1) {
					worst = max(worst, got.value/best.value)
					if got.value <= best.value*(1+1e-9) {
						same++
					}
				}
			}
			t.Logf("synchronous %v, reach %g: %d of %d are the best; at worst %.2f %% dearer", synchronous, reach, same, all, 100*(worst-1))
			if worst > 1.08 || same < all*9/10 {
				t.Errorf("%d of %d are the best; at worst %g times as dear", same, all, worst)
			}
		}
	}
}

// A choice among 300 blocks takes less than 100 ms; the benchmark says how much less.
func TestChooseOfManyBlocks(t *testing.T) {
	m := random(rand.New(rand.NewPCG(3, 4)), 300)
	for _, o := range []Options{
		{Body: 1000, Shadow: 1000, MaxRows: 8, Rho: 4, Transfer: Transfer{0.3, 0.1}, Partial: true},
		{Body: 1000, Shadow: 1000, MaxRows: 32, Rho: 4, Transfer: Transfer{0.3, 0.1}, Reach: 0.9},
	} {
		p, _, err := Choose(m, o)
		if err != nil {
			t.Fatal(err)
		}
		greedy, _, err := Greedy(m, o, Burst{Loaded: true})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := m.Pair(greedy.Phi, 1, o); o.Reach == 0 && len(greedy.Phi) <= maxRuns && (err != nil || again.Cost < p.Cost) {
			t.Errorf("the greedy Φ costs %g, the chosen %g: %v", again.Cost, p.Cost, err)
		}
	}
}

// Blocks that compute much and weigh little are chosen wherever they are: at the head, in the
// middle, at the tail.
func TestWhereTheBlocksAre(t *testing.T) {
	for phi, work := range map[string][]float64{
		"[0,2)": {20, 20, 1, 1, 1}, "[1,3)": {1, 20, 20, 1, 1}, "[3,5)": {1, 1, 1, 20, 20}, "[0,1) [2,3)": {20, 5, 20, 5},
	} {
		weights := make([]float64, len(work))
		for i, ms := range work {
			weights[i] = map[bool]float64{true: 1, false: 200}[ms > 5]
		}
		o := Options{Body: 1000, Shadow: 1000, Rho: 4, Partial: true, Transfer: Transfer{0.3, 0.1}}
		p, found, err := Choose(linear(work, weights), o)
		if err != nil || !found || p.Phi.String() != phi {
			t.Errorf("%v: Φ is %v: %v, %v", work, p.Phi, found, err)
		}
	}
}

// A model of one block has no part.
func TestNothingToDivide(t *testing.T) {
	m := linear([]float64{5}, []float64{5})
	p, found, err := Choose(m, Options{Body: 1000, Shadow: 1000, Partial: true})
	if err != nil || found || p.Shadows != 0 || p.PerSecond != 200 {
		t.Errorf("%+v, %v, %v", p, found, err)
	}
	if p, found, err = Choose(m, Options{Body: 1000, Shadow: 1000}); err != nil || !m.IsAll(p.Phi) {
		t.Errorf("%+v, %v, %v", p, found, err)
	}
}

// An error names the field and its value.
func TestErrors(t *testing.T) {
	good := Options{Body: 1000, Shadow: 1000}
	for want, change := range map[string]func(*Model, *Options){
		"body is 0":            func(_ *Model, o *Options) { o.Body = 0 },
		"shadows is 65":        func(_ *Model, o *Options) { o.Shadows = 65 },
		"max_rows is -1":       func(_ *Model, o *Options) { o.MaxRows = -1 },
		"runs is 4":            func(_ *Model, o *Options) { o.Runs = 4 },
		"slo_ms is NaN":        func(_ *Model, o *Options) { o.SLO = math.NaN() },
		`memory is "most"`:     func(_ *Model, o *Options) { o.Memory = "most" },
		"reach is 2":           func(_ *Model, o *Options) { o.Reach = 2 },
		"blocks is empty":      func(m *Model, _ *Options) { m.Blocks = nil },
		"rows is [2]":          func(m *Model, _ *Options) { m.Rows = []int{2} },
		"blocks[1]: weights":   func(m *Model, _ *Options) { m.Blocks[1].Weights = -1 },
		"blocks[0]: ms has 0":  func(m *Model, _ *Options) { m.Blocks[0].Ms = nil },
		"blocks[2]: ms has -1": func(m *Model, _ *Options) { m.Blocks[2].Ms[1][0] = -1 },
		"tensors[0]":           func(m *Model, _ *Options) { m.Tensors = []Tensor{{From: 1, Readers: []int{1}}} },
	} {
		m, o := three(), good
		change(m, &o)
		if _, _, err := Choose(m, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
		if _, _, err := Greedy(m, o, Burst{}); err == nil && !strings.Contains("shadows runs slo_ms reach", strings.Fields(want)[0]) {
			t.Errorf("Algorithm 2: no error %q", want)
		}
	}
	for _, phi := range []Phi{{{1, 1}}, {{0, 1}, {1, 2}}, {{2, 4}}, {{-1, 1}}} {
		if _, err := three().Pair(phi, 1, good); err == nil || !strings.Contains(err.Error(), "phi is") {
			t.Errorf("%v: %v", phi, err)
		}
	}
	if _, err := three().Pair(nil, 1, good); err == nil {
		t.Error("a shadow without blocks")
	}
}
