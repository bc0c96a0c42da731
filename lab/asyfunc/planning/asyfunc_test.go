package planning

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// simple is a model of a head that computes much and a tail that weighs much: on one core a row
// takes 80 + 20 ms, on n cores a part 1/n of it. The head weighs 10 MiB, the tail 90; a row's
// activations are 1 MiB.
func simple() *shadow.Model {
	m := &shadow.Model{Name: "simple", Own: 10 << 20}
	for b := 1; b <= 16; b++ {
		m.Rows = append(m.Rows, b)
	}
	for n := 1; n <= 16; n++ {
		m.Threads = append(m.Threads, n)
	}
	for _, part := range []struct {
		ms      float64
		weights int64
	}{{80, 10 << 20}, {20, 90 << 20}} {
		b := shadow.Block{MACs: int64(part.ms * 1e6), Weights: part.weights, Activations: 1 << 20, Load: float64(part.weights>>20) / 10}
		for _, n := range m.Threads {
			var row []float64
			for _, rows := range m.Rows {
				row = append(row, part.ms*float64(rows)/float64(n))
			}
			b.Ms = append(b.Ms, row)
		}
		m.Blocks = append(m.Blocks, b)
	}
	return m
}

// planner is one with an objective of 100 ms, B_max = 8, C_max = 16, pairs of 16 and no price of
// memory, so that only cores count.
func planner(t *testing.T, change func(*Settings)) *Planner {
	t.Helper()
	s := Published(100)
	s.Rho, s.Transfer = 0, shadow.Transfer{}
	if change != nil {
		change(&s)
	}
	p, err := NewPlanner(simple(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func nodes(cores ...int) (out []Node) {
	for _, c := range cores {
		out = append(out, Node{Cores: c, Memory: 1 << 40})
	}
	return out
}

// Eq. 1: on 4 cores b rows take 25·b ms, so up to 4 of them are within 100 ms: 40 per second. A
// body of one core has 10, and one for which nothing is within the objective has none.
func TestEquation1(t *testing.T) {
	p := planner(t, nil)
	if got := p.Max([]*Body{{Cores: 4}, {Cores: 1}}); math.Abs(got-50) > 1e-9 {
		t.Errorf("R_max is %v, want 40 + 10", got)
	}
	tight := planner(t, func(s *Settings) { s.SLO = 50 })
	if got := tight.Max([]*Body{{Cores: 1}}); got != 0 {
		t.Errorf("R_max is %v for a body that takes 100 ms", got)
	}
}

// §4.1: within [β·R_max, α·R_max] nothing changes. Above it, bodies start until α·R_max carries
// the rate; below it, they stop while the rest does.
func TestSection41Decisions(t *testing.T) {
	p := planner(t, nil)
	pair := func() []*Body { return []*Body{{ID: 1, Cores: 4}, {ID: 2, Cores: 4}} } // R_max 80
	for _, c := range []struct {
		name          string
		rate          float64
		starts, stops int
	}{
		{"stable", 60, 0, 0}, {"at α", 64, 0, 0}, {"at β", 48, 0, 0},
		{"two equal ones at 0.55·R_max: the rest would be at 1.1", 44, 0, 0},
		{"at 0.4·R_max the rest is at 0.8", 32, 0, 1}, {"no load: one stays", 0, 0, 1},
	} {
		starts, stops, short := p.Scale(c.rate, pair(), nodes(26))
		if len(starts) != c.starts || len(stops) != c.stops || short {
			t.Errorf("%s: %v, %v, %v", c.name, starts, stops, short)
		}
	}
	starts, _, short := p.Scale(200, pair(), nodes(10, 26, 26))
	sum := p.Max(pair())
	for _, s := range starts {
		sum += p.rate(p.Times(s.Cores))
		if s.Node == 0 && len(starts) == 1 {
			t.Errorf("%+v is not on the node with the most cores", s)
		}
	}
	if short || 200 > 0.8*sum || 200 <= 0.8*(sum-p.rate(p.Times(starts[len(starts)-1].Cores))) {
		t.Errorf("%+v carry %v in all", starts, sum)
	}
	if _, _, short := p.Scale(200, nil, nodes(1)); !short {
		t.Error("there is room for 200 requests per second on one core")
	}
}

// Algorithm 1, lines 3 to 15: the first request waits (b−1)/R. Without a price of memory every
// config has the same η of 1 request per core and 100 ms, so the first one wins; with one the
// largest throughput does: at 50 per second b rows wait 20·(b−1) ms, on 16 cores they take 6.25·b,
// so 4 rows are within 100 ms and 5 are not. Alone, nobody else comes.
func TestAlgorithm1Config(t *testing.T) {
	p := planner(t, nil)
	if cores, rows, ok := p.Config(50, 16); cores != 1 || rows != 1 || !ok {
		t.Errorf("%d cores, %d rows, %v", cores, rows, ok)
	}
	priced := planner(t, func(s *Settings) { s.Rho = 0.25 })
	if cores, rows, ok := priced.Config(50, 16); cores != 16 || rows > 4 || !ok {
		t.Errorf("with a price: %d cores, %d rows, %v", cores, rows, ok)
	}
	if cores, _, ok := priced.Config(50, 3); cores != 3 || !ok {
		t.Errorf("with three cores free: %d, %v", cores, ok)
	}
	if _, rows, ok := priced.Config(0, 16); rows != 1 || !ok {
		t.Errorf("without load: %d rows, %v", rows, ok)
	}
	tight := planner(t, func(s *Settings) { s.SLO = 6 })
	if _, _, ok := tight.Config(50, 16); ok {
		t.Error("a config takes less than 6.25 ms")
	}
}

// Algorithm 2: the bodies with the most cores first, until γ·R_max carries the burst; none where
// the node has no cores, where the body has a shadow, or where R_max would not rise. A shadow
// takes at most C_max cores.
func TestAlgorithm2Pairs(t *testing.T) {
	p := planner(t, func(s *Settings) { s.Rho = 0.25 })
	bodies := []*Body{{ID: 1, Node: 0, Cores: 2}, {ID: 2, Node: 1, Cores: 4}, {ID: 3, Node: 2, Cores: 4}}
	free := nodes(26, 26, 0)
	got := p.Pairs(61, bodies, free) // R_max is 20 + 40 + 40.
	if len(got) != 0 {
		t.Errorf("no burst: %+v", got)
	}
	got = p.Pairs(101, bodies, free)
	if len(got) != 1 || got[0].Body.ID != 2 || got[0].Shadow.Cores != 16 || free[1].Cores != 10 {
		t.Fatalf("%+v, free %v", got, free)
	}
	s := got[0].Shadow
	if s.Memory != 10<<20+p.Model.Weights(s.Pair.Phi)+int64(s.Rows-s.Pair.Splits[s.Rows-1].Body)<<20 {
		t.Errorf("%d bytes for %d rows of %v", s.Memory, s.Rows, s.Pair.Phi)
	}
	bodies[1].Shadow = &s
	if p.Rate(bodies[1]) <= 40 {
		t.Errorf("the pair has %v", p.Rate(bodies[1]))
	}
	got = p.Pairs(10_000, bodies, nodes(26, 26, 0))
	if len(got) != 1 || got[0].Body.ID != 1 {
		t.Errorf("only body 1 is unpaired and has cores: %+v", got)
	}
}

// §4.3: the shadow with the least η goes first, no earlier than the keep-alive after it was last
// needed.
func TestSection43ScaleDown(t *testing.T) {
	p := planner(t, func(s *Settings) { s.Rho, s.KeepAlive = 0.25, time.Second })
	bodies := []*Body{{ID: 1, Node: 0, Cores: 4}, {ID: 2, Node: 1, Cores: 4}} // R_max 80
	for i, pairing := range p.Pairs(10_000, bodies, nodes(26, 26)) {
		s := pairing.Shadow
		s.Eta = float64(2 - i)
		pairing.Body.Shadow = &s
	}
	if gone := p.Release(10*time.Second, 90, bodies); len(gone) != 1 || gone[0].ID != 2 {
		t.Errorf("at 90 of 80 and two shadows, %v go", gone)
	}
	if bodies[0].Shadow.Needed != 10*time.Second {
		t.Errorf("the other was needed at %v", bodies[0].Shadow.Needed)
	}
	bodies[1].Shadow = nil
	if gone := p.Release(10*time.Second+500*time.Millisecond, 50, bodies); len(gone) != 0 {
		t.Errorf("%v go within the keep-alive", gone)
	}
	if gone := p.Release(11*time.Second, 50, bodies); len(gone) != 1 {
		t.Errorf("%v go after it", gone)
	}
}

// The arithmetic of the comments.
func TestPredictors(t *testing.T) {
	past := []float64{10, 40, 40, 60, 60}
	if got := LastValue(past); got != 60 {
		t.Errorf("last value: %v", got)
	}
	if got := Recent([]float64{40, 40, 60, 60}); math.Abs(got-60) > 1e-9 {
		t.Errorf("ours: %v, want 50 + 10", got)
	}
	if LastValue(nil) != 0 || Recent(nil) != 0 {
		t.Error("something is predicted of nothing")
	}
}

// The arithmetic of [Planner.carried]: 2 rows in 40 ms on two, within 132 ms.
func TestCarried(t *testing.T) {
	p := planner(t, func(s *Settings) { s.SLO = 132 })
	if got := p.carried(2, 2, 40); math.Abs(got-75) > 0.1 {
		t.Errorf("%v, want 75", got)
	}
	if got := p.carried(2, 2, 132); got != 0 {
		t.Errorf("%v without time to queue", got)
	}
}

// Ours: as few rows, then as few cores as carry the rate, and a help with the least memory that
// is there in time.
func TestLeast(t *testing.T) {
	p := planner(t, nil)
	last := 0
	for rate := 5.0; rate < 200; rate += 5 {
		h, ok := p.Fit(rate, 2)
		if !ok {
			break
		}
		if h.Rate < rate || h.Cores < last {
			t.Errorf("%v: %+v, before %d cores", rate, h, last)
		}
		last = h.Cores
	}
	if _, ok := p.Fit(1e6, 2); ok || last == 0 {
		t.Errorf("two bodies carry a million, or nothing: %d", last)
	}
	near := Site{Node: Node{Cores: 16, Memory: 1 << 40}, Index: 0, Here: true}
	far := Site{Node: Node{Cores: 16, Memory: 1 << 40}, Index: 1, Start: 2000}
	w, ok := p.Help([]Site{near, far}, true, 100)
	if !ok || w.Node != 0 || w.Whole || !w.Here || w.Memory >= 110<<20 {
		t.Errorf("%+v", w)
	}
	if w, ok = p.Help([]Site{near, far}, false, 100); !ok || !w.Whole || !w.Here {
		t.Errorf("without a lone body: %+v", w)
	}
	shared := planner(t, func(s *Settings) { s.Memory = shadow.Shared })
	near.Holds = true
	if w, ok = shared.Help([]Site{near, far}, false, 100); !ok || w.Memory > 30<<20 || w.Ready != 0 {
		t.Errorf("a twin that maps the weights: %+v", w)
	}
	if _, ok = p.Help([]Site{{Node: Node{Cores: 0, Memory: 1 << 40}}}, true, 100); ok {
		t.Error("help without cores")
	}
}

func TestBadSettings(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"alpha":     func(s *Settings) { s.Alpha = 1.5 },
		"beta":      func(s *Settings) { s.Beta = 0.9 },
		"max_cores": func(s *Settings) { s.MaxCores = 0 },
		"slo":       func(s *Settings) { s.SLO = math.NaN() },
	} {
		s := Published(100)
		change(&s)
		if _, err := NewPlanner(simple(), s); err == nil {
			t.Errorf("%s: %+v is taken", name, s)
		}
	}
}

// FuzzScaling checks that no decision gives away more than the nodes have, that a body has at
// most one shadow, that one body stays, and that what remains carries the rate if there is room.
func FuzzScaling(f *testing.F) {
	f.Add(50.0, 3, 20, uint8(3))
	f.Add(900.0, 40, 1, uint8(0))
	f.Add(0.0, 0, 26, uint8(9))
	p, err := NewPlanner(simple(), Published(100))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, rate float64, first, second int, n uint8) {
		if !(rate >= 0) || rate > 1e4 {
			return
		}
		free := nodes(abs(first)%64, abs(second)%64)
		free[1].Memory = int64(abs(second)%1000) << 20
		var bodies []*Body
		for i := range int(n % 12) {
			bodies = append(bodies, &Body{ID: i, Node: i % 2, Cores: 1 + (i*7+abs(first))%16})
		}
		starts, stops, short := p.Scale(rate, bodies, free)
		if len(starts) > 0 && len(stops) > 0 || len(bodies) > 0 && len(stops) >= len(bodies) {
			t.Fatalf("%d bodies: %v start, %v stop", len(bodies), starts, stops)
		}
		rest := p.Max(bodies)
		for _, s := range starts {
			rest += p.rate(p.Times(s.Cores))
		}
		for _, b := range stops {
			rest -= p.Rate(b)
		}
		if !short && rate > 0.8*rest*(1+1e-9) {
			t.Fatalf("%v of %v after %v, %v", rate, rest, starts, stops)
		}
		for _, pairing := range p.Pairs(2*rate, bodies, free) {
			if pairing.Body.Shadow != nil || pairing.Shadow.Cores < 1 || pairing.Shadow.Cores > 16 || pairing.Shadow.Rows < 1 || pairing.Shadow.Rows > 16 {
				t.Fatalf("%+v", pairing)
			}
			if err := p.Model.CheckPhi(pairing.Shadow.Pair.Phi); err != nil {
				t.Fatal(err)
			}
			pairing.Body.Shadow = &pairing.Shadow
		}
		for _, n := range free {
			if n.Cores < 0 || n.Memory < 0 {
				t.Fatalf("%+v is left", n)
			}
		}
		for _, b := range p.Release(time.Hour, 0, bodies) {
			b.Shadow = nil
		}
		for _, b := range bodies {
			if b.Shadow != nil {
				t.Fatal("a shadow stays without load")
			}
		}
	})
}

func abs(x int) int {
	if x < 0 {
		x = ^x
	}
	return x
}
