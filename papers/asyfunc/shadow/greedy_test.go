package shadow

import (
	"slices"
	"testing"
)

// three is a model of three blocks: a computes much and weighs little, b the reverse.
func three() *Model {
	m := linear([]float64{8, 1, 3}, []float64{1, 20, 2})
	for i := range m.Blocks {
		m.Blocks[i].Load = float64(m.Blocks[i].Weights) / mib
	}
	return m
}

// Algorithm 2 by hand. The order by MACs per weight is a (8), c (1.5), b (0.05). At a price of
// a core for each MiB, of the memory of Φ with 1 MiB for each row:
//
//	Φ    b  b_S  t_l        m  η = b_S/t_l + b_S/(m·t_l)
//	a    4  2    16+16=32   3  0.0833
//	a    2  1     8+8=16    2  0.0938
//	ac   4  2     4+22=26   5  0.0923
//	ac   2  1     2+11=13   4  0.0962
//	acb  4  2    24        25  0.0867
//	acb  2  1    12        24  0.0868
//
// With three rows the parts end less together, and with one the body keeps it.
func TestGreedyByHand(t *testing.T) {
	m := three()
	if order := m.Order(); !slices.Equal(order, []int{0, 2, 1}) {
		t.Errorf("the order is %v", order)
	}
	o := Options{Body: 1000, Shadow: 1000, MaxRows: 4, Rho: 1024}
	for _, test := range []struct {
		name                  string
		change                func(*Options, *Burst)
		phi                   string
		rows, sent            int
		latency, load, memory float64
	}{
		{"no bound", func(*Options, *Burst) {}, "[0,1) [2,3)", 2, 1, 13, 3, 4},
		{"no price of memory", func(o *Options, _ *Burst) { o.Rho = 0 }, "[0,3)", 4, 2, 24, 23, 25},
		{"16 ms with a load of 3", func(_ *Options, b *Burst) { b.SLO = 16 }, "[0,1) [2,3)", 2, 1, 13, 3, 4},
		{"12.5 ms, loaded", func(_ *Options, b *Burst) { b.SLO, b.Loaded = 12.5, true }, "[0,3)", 2, 1, 12, 23, 24},
		// At 50 requests per second the first of two waits for 20 ms, of four for 60.
		{"35 ms, loaded, waiting", func(_ *Options, b *Burst) { b.SLO, b.Loaded, b.Rate = 35, true, 50 }, "[0,1) [2,3)", 2, 1, 13, 3, 4},
		// Two cores take half as long: 1 row takes 12 ms on the body, 3 take 18 on the shadow.
		{"a shadow of two cores", func(o *Options, _ *Burst) { o.Shadow, o.Rho = 2000, 0 }, "[0,3)", 4, 3, 18, 23, 26},
	} {
		options, burst := o, Burst{}
		test.change(&options, &burst)
		p, found, err := Greedy(m, options, burst)
		if err != nil || !found {
			t.Fatalf("%s: %v, %v", test.name, found, err)
		}
		if p.Phi.String() != test.phi || p.Best.Rows != test.rows || p.Best.sent() != test.sent {
			t.Errorf("%s: Φ is %v with %+v", test.name, p.Phi, p.Best)
		}
		near(t, test.name+": latency", p.Best.Latency, test.latency)
		near(t, test.name+": load", p.Load, test.load)
		near(t, test.name+": memory", float64(p.Memory)/mib, test.memory)
	}
	if p, found, err := Greedy(m, o, Burst{SLO: 5}); found || err != nil {
		t.Errorf("within 5 ms: %+v, %v", p, err)
	}
	if p, found, err := Greedy(m, o, Burst{SLO: 15}); found || err != nil {
		t.Errorf("within 15 ms, of which Φ takes 3 to load: %+v, %v", p, err)
	}
}

// Transfers are the shadow's (Eq. 6): a MiB there and a MiB back for each row of a run.
func TestGreedyCountsTransfers(t *testing.T) {
	o := Options{Body: 1000, Shadow: 1000, MaxRows: 2, Transfer: Transfer{Fixed: 0.25, PerMiB: 0.5}}
	m := three()
	e := newEvaluation(m, mustDefault(t, o))
	s := e.printed(Phi{{0, 1}, {2, 3}}, 2)
	near(t, "the latency", s.Latency, 2+11+2*(0.5+1)) // own layers, the shadow's row, two crossings
	if s.Body != 1 {
		t.Errorf("%+v", s)
	}
}

func mustDefault(t *testing.T, o Options) Options {
	t.Helper()
	o, err := o.defaults()
	if err != nil {
		t.Fatal(err)
	}
	return o
}
