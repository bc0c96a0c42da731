package infaas

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/variant"
)

// random returns variants with few different values, so that many are equal.
func random(r *rand.Rand, n int) []registration.Placed {
	rows := make([]registration.Placed, n)
	for i := range rows {
		rows[i] = registration.Placed{Variant: variant.Variant{
			Model: fmt.Sprint("m", r.IntN(3)), Name: fmt.Sprint("v", r.IntN(n+1)), Hardware: "cpu",
			Latency: time.Duration(1+r.IntN(9)) * time.Millisecond, Load: time.Duration(r.IntN(9)) * time.Millisecond,
			RPS: float64(1 + r.IntN(4)), Accuracy: float64(10 * r.IntN(11)), Cost: float64(r.IntN(5)),
		}, State: variant.State(r.IntN(4))}
	}
	return rows
}

func randomQuery(r *rand.Rand) variant.Query {
	q := variant.Query{Accuracy: float64(r.IntN(102)), Latency: time.Duration(r.IntN(11)) * time.Millisecond}
	q.Accuracy = min(q.Accuracy, 100)
	if n := r.IntN(8); n < 4 {
		q.Model = fmt.Sprint("m", n)
	}
	return q
}

// bruteForce is getVariant by comparing all rows: first by state, then by the order of the
// state, then by row.
func bruteForce(rows []registration.Placed, q variant.Query) int {
	best := -1
	rank := func(s variant.State) int { return []int{1, 0, 2, 2}[s] }
	before := func(a, b *registration.Placed) int {
		if d := cmp.Compare(rank(a.State), rank(b.State)); d != 0 {
			return d
		}
		if a.State == variant.Inactive {
			if d := cmp.Compare(a.Load+a.Latency, b.Load+b.Latency); d != 0 {
				return d
			}
		}
		return cmp.Or(cmp.Compare(a.Cost/a.RPS, b.Cost/b.RPS), cmp.Compare(a.Latency, b.Latency), strings.Compare(a.Name, b.Name), strings.Compare(a.Model, b.Model))
	}
	for i := range rows {
		if q.Met(&rows[i].Variant) && (best < 0 || before(&rows[i], &rows[best]) < 0) {
			best = i
		}
	}
	return best
}

// The index finds what brute force finds, never a variant below what is asked.
func FuzzGetVariant(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed, uint8(5*seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) {
		r := rand.New(rand.NewPCG(seed, 1))
		rows := random(r, int(n))
		table := NewTable(rows)
		for range 50 {
			checkQuery(t, rows, table, randomQuery(r))
		}
	})
}

func checkQuery(t *testing.T, rows []registration.Placed, table *Table, q variant.Query) {
	t.Helper()
	want := bruteForce(rows, q)
	got, ok := table.Get(q)
	if !ok {
		got = -1
	}
	if got != want {
		t.Fatalf("%+v: row %d, brute force finds %d", q, got, want)
	}
	if ok && !q.Met(&rows[got].Variant) {
		t.Fatalf("%+v is answered by %+v", q, rows[got])
	}
}

// The order of §4.1, Algorithm 1.
func TestAlgorithm1(t *testing.T) {
	ms := time.Millisecond
	row := func(name string, s variant.State, latency, load time.Duration, rps, cost float64) registration.Placed {
		return registration.Placed{Variant: variant.Variant{Model: "resnet50", Name: name, Hardware: "cpu", Latency: latency, Load: load, RPS: rps, Memory: 100, Accuracy: 75, Cost: cost}, State: s}
	}
	rows := []registration.Placed{
		row("overloaded", variant.Overloaded, 10*ms, 0, 100, 0.1),
		row("quick-to-load", variant.Inactive, 40*ms, 100*ms, 10, 9),
		row("slow-to-load", variant.Inactive, 10*ms, 500*ms, 10, 1),
		row("active-dear", variant.Active, 20*ms, 0, 10, 9),
		row("active-cheap-b", variant.Active, 20*ms, 0, 10, 1),
		row("active-cheap-a", variant.Active, 20*ms, 0, 100, 10),
		row("active-cheap-slow", variant.Active, 30*ms, 0, 10, 1),
	}
	for _, c := range []struct {
		rows []registration.Placed
		q    variant.Query
		want int
	}{
		{rows, variant.Query{Accuracy: 70, Latency: 50 * ms}, 5}, // Active: the cheapest, the fastest, by name.
		{rows, variant.Query{}, 5},
		{rows[:3], variant.Query{Latency: 50 * ms}, 1}, // Inactive: 40 + 100 ms before 10 + 500 ms.
		{rows[:3], variant.Query{Latency: 30 * ms}, 2}, // Inference alone must meet the latency.
		{rows[:1], variant.Query{Latency: 30 * ms}, 0}, // Nothing but an overloaded one.
		{rows, variant.Query{Accuracy: 75.1}, -1},
		{rows, variant.Query{Latency: 9 * ms}, -1},
		{rows, variant.Query{Model: "vgg16"}, -1},
		{rows, variant.Query{Model: "resnet50", Latency: 10 * ms}, 2},
	} {
		got, ok := NewTable(c.rows).Get(c.q)
		if !ok {
			got = -1
		}
		if got != c.want {
			t.Errorf("%+v of %d rows: row %d, want %d", c.q, len(c.rows), got, c.want)
		}
	}
}

// many returns a table of 10,000 variants, all inactive or with a tenth of them active.
func many(active bool) []registration.Placed {
	r := rand.New(rand.NewPCG(1, 2))
	rows := make([]registration.Placed, 10_000)
	for i := range rows {
		rows[i] = registration.Placed{Variant: variant.Variant{
			Model: fmt.Sprint("m", i%100), Name: fmt.Sprint("v", i), Hardware: "cpu",
			Latency: time.Duration(1e6 * (1 + 5000*r.Float64())), Load: time.Duration(1e6 * (590 + 10000*r.Float64())),
			RPS: 1 + 100*r.Float64(), Accuracy: 56 + 26*r.Float64(), Cost: 1 + 30*r.Float64(),
		}}
		if active && i%10 == 0 {
			rows[i].State = variant.Active
		}
	}
	return rows
}

// A decision allocates nothing.
func TestGetVariantAllocatesNothing(t *testing.T) {
	table := NewTable(many(true))
	q := variant.Query{Accuracy: 72, Latency: 20 * time.Millisecond, Model: "m7"}
	if n := testing.AllocsPerRun(100, func() { table.Get(q) }); n != 0 {
		t.Errorf("a decision allocates %v times", n)
	}
}

func BenchmarkGetVariant(b *testing.B) {
	for _, c := range []struct {
		name   string
		active bool
		model  string
	}{{"named", true, "m7"}, {"active", true, ""}, {"inactive", false, ""}} {
		b.Run(c.name, func(b *testing.B) {
			table := NewTable(many(c.active))
			r := rand.New(rand.NewPCG(3, 4))
			queries := make([]variant.Query, 1024)
			for i := range queries {
				queries[i] = variant.Query{Model: c.model, Accuracy: 50 + 35*r.Float64(), Latency: time.Duration(5e9 * r.Float64())}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				table.Get(queries[i%len(queries)])
			}
		})
	}
}

// A dominated variant serves all the same while it is loaded.
func TestDominatedStillServes(t *testing.T) {
	ms := time.Millisecond
	rows := []registration.Placed{
		{Variant: variant.Variant{Model: "resnet50", Name: "A", Hardware: "cpu", Latency: 200 * ms, RPS: 5, Accuracy: 75, Cost: 1}, State: variant.Active},
		{Variant: variant.Variant{Model: "resnet50", Name: "C", Hardware: "gpu", Latency: 15 * ms, RPS: 800, Accuracy: 75, Cost: 16}},
	}
	if row, ok := NewTable(rows).Get(variant.Query{Latency: 300 * ms}); !ok || row != 0 {
		t.Errorf("row %d answers, %v", row, ok)
	}
}
