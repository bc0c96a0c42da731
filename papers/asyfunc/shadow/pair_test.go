package shadow

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// sets are some Φ of a model: none, all, and random ones.
func sets(rng *rand.Rand, blocks int) []Phi {
	in := make([]bool, blocks)
	for i := range in {
		in[i] = rng.IntN(2) == 0
	}
	first := rng.IntN(blocks)
	out := []Phi{{{first, first + 1 + rng.IntN(blocks-first)}}, {{0, blocks}}}
	if phi := Of(in); len(phi) > 0 {
		out = append(out, phi)
	}
	return out
}

// FuzzPair checks what holds for every pair: rows add up, no batch is slower than the body
// alone makes it, a period is no longer than a latency, and memory is not above the whole's.
func FuzzPair(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, seed%3 == 0, uint8(seed), uint8(seed/3))
	}
	f.Fuzz(func(t *testing.T, seed uint64, synchronous bool, shadows, rows uint8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := random(rng, 1+rng.IntN(12))
		o := Options{
			Body: 100 + rng.IntN(4000), Shadow: 100 + rng.IntN(4000), Shadows: 1 + int(shadows)%5, MaxRows: 1 + int(rows)%40,
			Rho: rng.Float64(), Transfer: Transfer{rng.Float64(), rng.Float64()}, Synchronous: synchronous,
			Memory: []Accounting{Own, Shared}[rng.IntN(2)],
		}
		alone, err := m.Alone(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, phi := range sets(rng, len(m.Blocks)) {
			p, err := m.Pair(phi, o.Shadows, o)
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range p.Splits {
				sum, largest := s.Body, 0
				for _, n := range s.Shadows {
					sum, largest = sum+n, max(largest, n)
					if n < 0 || n < s.Shadows[len(s.Shadows)-1] {
						t.Errorf("the shadows' rows are %v", s.Shadows)
					}
				}
				if sum != i+1 || s.Rows != i+1 || s.Body < 0 {
					t.Errorf("the rows of %+v are %d", s, sum)
				}
				if s.Period > alone.Splits[i].Period || s.Latency < s.Period-1e-9 || s.Waits != (s.Latency == s.Period) && s.Waits {
					t.Errorf("%v by %d: %+v; alone %+v", phi, o.Shadows, s, alone.Splits[i])
				}
				if memory := m.Own + m.Weights(phi) + int64(largest)*m.Activations(phi); memory > m.Own+m.Weights(m.All())+int64(largest)*m.Activations(m.All()) {
					t.Errorf("%v takes %d bytes", phi, memory)
				}
			}
			// Whoever plans with the streams sees the rate that the choice was made by.
			if streams, times := p.Streams(); float64(streams*p.Best.Rows)/times[p.Best.Rows-1] < p.PerSecond/1000*(1-1e-9) {
				t.Errorf("%v: %d streams of %g ms for %+v", phi, streams, times[p.Best.Rows-1], p.Best)
			}
			if p.Memory > ownMemory(m, p) {
				t.Errorf("%v takes %d bytes, the whole %d", phi, p.Memory, ownMemory(m, p))
			}
		}
		if o.MaxRows > 12 {
			return
		}
		best, _, err := Choose(m, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, phi := range sets(rng, len(m.Blocks)) {
			p, err := m.Pair(phi, 1, o)
			if err != nil {
				t.Fatal(err)
			}
			if len(phi) == 1 && p.Best.sent() > 0 && p.Cost < best.Cost*(1-1e-2) {
				t.Errorf("the choice %v by %d costs %g, %v costs %g", best.Phi, best.Shadows, best.Cost, phi, p.Cost)
			}
		}
	})
}

// ownMemory is what a whole instance takes with the rows that a pair sends to a shadow.
func ownMemory(m *Model, p Pair) int64 {
	most := 0
	for _, n := range p.Best.Shadows {
		most = max(most, n)
	}
	return m.Own + m.Weights(m.All()) + int64(most)*m.Activations(m.All())
}

// What a run is sent and returns is the same by the sums as tensor by tensor.
func TestCrossings(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		m := random(rng, 2+rng.IntN(9))
		n := len(m.Blocks)
		for range 12 {
			tensor := Tensor{Bytes: rng.Int64N(100), From: rng.IntN(n+1) - 1}
			for i := tensor.From + 1; i <= n; i++ {
				if rng.IntN(3) == 0 {
					tensor.Readers = append(tensor.Readers, i)
				}
			}
			m.Tensors = append(m.Tensors, tensor)
		}
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		e := newEvaluation(m, mustDefault(t, Options{Body: 1000, Shadow: 1000}))
		for first := range n {
			for end := first + 1; end <= n; end++ {
				r := Run{first, end}
				in, out := m.Crossing(r)
				if in != e.in[e.key(r)] || out != e.out[e.key(r)] {
					t.Errorf("%v: %d and %d, by the sums %d and %d", r, in, out, e.in[e.key(r)], e.out[e.key(r)])
				}
			}
		}
	}
}

// A head, a middle and a tail of tensors: the model's input is read by blocks 0 and 2, block 0
// computes what 1 and 3 read, and block 1 an output of the model.
func TestCrossingByHand(t *testing.T) {
	m := linear([]float64{1, 1, 1, 1}, []float64{1, 1, 1, 1})
	m.Tensors = []Tensor{
		{Name: "input", Bytes: 1, From: -1, Readers: []int{0, 2}}, {Name: "a", Bytes: 10, From: 0, Readers: []int{1, 3}},
		{Name: "b", Bytes: 100, From: 1, Readers: []int{2, 4}}, {Name: "c", Bytes: 1000, From: 2, Readers: []int{3}},
		{Name: "d", Bytes: 10000, From: 3, Readers: []int{4}},
	}
	for r, want := range map[Run][2]int64{
		{0, 1}: {1, 10}, {0, 2}: {1, 110}, {1, 2}: {10, 100}, {2, 4}: {111, 10000}, {1, 4}: {11, 10100}, {0, 4}: {1, 10100}, {2, 3}: {101, 1000},
	} {
		if in, out := m.Crossing(r); in != want[0] || out != want[1] {
			t.Errorf("%v: %d and %d, not %v", r, in, out, want)
		}
	}
}

// Two shadows of a body: with 80 % in Φ, and pipelined, the three work all the time.
func TestTwoShadows(t *testing.T) {
	m := linear([]float64{8, 2}, []float64{1, 9})
	p, err := m.Pair(Phi{{0, 1}}, 2, Options{Body: 1000, Shadow: 1000, MaxRows: 12})
	if err != nil {
		t.Fatal(err)
	}
	// 12 rows: the body's own layers take 24 of the 40 ms that each works, so it computes 2
	// rows of Φ, and each shadow 5.
	if s := p.Splits[11]; s.Body != 2 || s.Shadows[0] != 5 || s.Shadows[1] != 5 || s.Period != 40 || s.Latency != 64 {
		t.Errorf("%+v", s)
	}
	near(t, "the rate", p.PerSecond, 300)
}

// Two runs, of which the second is short, and own layers of 2 ms after each: a row takes 6 + 2 + 1.2 + 2 ms.
// With five of six rows on the shadow its runs take 30 and 6 ms, the body's 6 and 1.2 and its own layers
// 12 each: max(30, 18) + max(6, 13.2) = 43.2 ms.
func TestRunsTakeTurns(t *testing.T) {
	m := linear([]float64{6, 2, 1.2, 2}, []float64{1, 9, 1, 9})
	p, err := m.Pair(Phi{{0, 1}, {2, 3}}, 1, Options{Body: 1000, Shadow: 1000, MaxRows: 6})
	if err != nil {
		t.Fatal(err)
	}
	e := newEvaluation(m, mustDefault(t, Options{Body: 1000, Shadow: 1000, MaxRows: 6}))
	var s Split
	e.time(&s, e.parts(p.Phi, 6, 5, 1))
	near(t, "the period", s.Period, 43.2)
	near(t, "the latency", s.Latency, 86.4)
	if p.Best.Period > s.Period {
		t.Errorf("the best split is %+v", p.Best)
	}
}

// A bound on the latency makes the shadow wait where only that is within it.
func TestWaitsForTheObjective(t *testing.T) {
	m := linear([]float64{8, 2}, []float64{1, 9})
	o := Options{Body: 1000, Shadow: 1000, MaxRows: 8}
	for slo, waits := range map[float64]bool{0: false, 56: false, 52: true} {
		o.SLO = slo
		p, err := m.Pair(Phi{{0, 1}}, 1, o)
		if err != nil {
			t.Fatal(err)
		}
		if s := p.Splits[7]; s.Waits != waits || slo > 0 && s.Latency > slo {
			t.Errorf("within %g ms: %+v", slo, s)
		}
	}
	o.SLO = 1
	if p, err := m.Pair(Phi{{0, 1}}, 1, o); err != nil || p.Within || p.Best.Rows != 1 {
		t.Errorf("within 1 ms: %+v, %v", p, err)
	}
}

// A shadow that takes 4 of 6 rows: with three quarters of the work in Φ a pair is as fast as two whole
// instances, with half of the work it is not, though without the cap it would be. So the lightest Φ
// that is as fast holds three quarters.
func TestShadowRows(t *testing.T) {
	m := linear([]float64{2, 1, 1}, []float64{1, 3, 9})
	o := Options{Body: 1000, Shadow: 1000, MinRows: 6, MaxRows: 6, ShadowRows: 4}
	for end, want := range map[int]float64{1: 16, 2: 12} {
		p, err := m.Pair(Phi{{0, end}}, 1, o)
		if err != nil {
			t.Fatal(err)
		}
		if s := p.Splits[5]; s.Period != want || s.Shadows[0] != 4 {
			t.Errorf("%d blocks: %+v, not %v ms", end, s, want)
		}
	}
	o.Partial, o.Reach = true, 0.99
	for rows, want := range map[int]string{4: "[0,2)", 6: "[0,1)"} {
		o.ShadowRows = rows
		if p, found, err := Choose(m, o); err != nil || !found || p.Phi.String() != want {
			t.Errorf("%d rows: %v, %v, %v, not %s", rows, p.Phi, found, err, want)
		}
	}
	for want, o := range map[string]Options{"shadow_rows is -1": {ShadowRows: -1}, "min_rows is 9": {MinRows: 9}} {
		o.Body, o.Shadow = 1000, 1000
		if _, err := m.Pair(m.All(), 1, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
}

// A quota makes everything of it slower, so its rows are fewer.
func TestQuota(t *testing.T) {
	m := linear([]float64{10}, []float64{1})
	p, err := m.Pair(m.All(), 1, Options{Body: 1000, Shadow: 500, MaxRows: 3})
	if err != nil {
		t.Fatal(err)
	}
	if s := p.Splits[2]; s.Body != 2 || s.Period != 20 {
		t.Errorf("%+v", s)
	}
}
