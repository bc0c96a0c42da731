package shadow

import (
	"math"
	"math/rand/v2"
	"testing"
)

const mib = 1 << 20

// linear is a model whose blocks take times in proportion to rows and to 1/threads. work are
// the blocks' times of a row in ms, weights their MiB.
func linear(work, weights []float64) *Model {
	m := &Model{Name: "linear", Rows: []int{1, 2, 4, 8, 16}, Threads: []int{1, 2, 4}}
	for i, ms := range work {
		b := Block{Name: string(rune('a' + i%26)), MACs: int64(ms * 1e6), Weights: int64(weights[i] * mib), Activations: mib, In: mib, Out: mib}
		for _, threads := range m.Threads {
			var row []float64
			for _, rows := range m.Rows {
				row = append(row, ms*float64(rows)/float64(threads))
			}
			b.Ms = append(b.Ms, row)
		}
		m.Blocks = append(m.Blocks, b)
	}
	return m
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s is %g, not %g", what, got, want)
	}
}

// Eq. 6 with 80 % of the work in Φ: a pair has 1/0.6 of a body's rate, which is 83 % of two
// whole instances. Pipelined it has all of it: each works half as long as one for all rows.
func TestFourFifthsOfTheWork(t *testing.T) {
	m := linear([]float64{8, 2}, []float64{1, 9})
	o := Options{Body: 1000, Shadow: 1000, MaxRows: 8, Synchronous: true}
	pair, err := m.Pair(Phi{{0, 1}}, 1, o)
	if err != nil {
		t.Fatal(err)
	}
	twin, err := m.Pair(m.All(), 1, o)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "the twins' rate", twin.PerSecond, 200)
	near(t, "the ratio of Eq. 6", pair.PerSecond/twin.PerSecond, 0.5/0.6)
	near(t, "the body's rows", float64(pair.Best.Body), float64(pair.Best.Rows)/2)
	o.Synchronous = false
	if pair, err = m.Pair(Phi{{0, 1}}, 1, o); err != nil {
		t.Fatal(err)
	}
	near(t, "the ratio pipelined", pair.PerSecond/twin.PerSecond, 1)
	if pair.Best.Rows != 8 || pair.Best.Body != 3 || pair.Best.Waits {
		t.Errorf("the best split is %+v; 8 rows are 3 and 5", pair.Best)
	}
	near(t, "the pipelined latency", pair.Best.Latency, 40+16)
}

// The time of a choice among 300 blocks.
func BenchmarkChoose(b *testing.B) {
	m := random(rand.New(rand.NewPCG(1, 2)), 300)
	for b.Loop() {
		if _, _, err := Choose(m, Options{Body: 1000, Shadow: 1000, MaxRows: 8, Rho: 0.25, Transfer: Transfer{0.3, 0.1}, Partial: true}); err != nil {
			b.Fatal(err)
		}
	}
}

// random is a model of random blocks, of which those that compute most weigh least.
func random(rng *rand.Rand, blocks int) *Model {
	work, weights := make([]float64, blocks), make([]float64, blocks)
	for i := range work {
		work[i], weights[i] = rng.Float64()*10, rng.Float64()*rng.Float64()*20
	}
	m := linear(work, weights)
	for i := range m.Blocks {
		b := &m.Blocks[i]
		b.Activations, b.In, b.Out = rng.Int64N(8*mib), rng.Int64N(2*mib), rng.Int64N(2*mib)
		b.Load = float64(b.Weights) / mib
	}
	m.Own, m.Call = 30*mib, 0.05
	return m
}

func TestTimes(t *testing.T) {
	m := linear([]float64{10}, []float64{1})
	for _, test := range []struct {
		rows, millicores int
		ms               float64
	}{{1, 1000, 10}, {3, 1000, 30}, {32, 1000, 320}, {1, 500, 20}, {1, 2000, 5}, {2, 1500, 10 * 4. / 3}, {0, 1000, 0}} {
		near(t, "the time", m.Time(0, 1, test.rows, test.millicores), test.ms)
	}
}
