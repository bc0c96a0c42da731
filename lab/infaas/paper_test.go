package infaas

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// table2 has the variants A, B and C of §2.2, Table 2. Those that are slower than slo serve
// nothing.
func table2(load float64, slo time.Duration) *Application {
	app := &Application{Load: load, Options: []Option{
		{Rate: 5, Latency: 200 * time.Millisecond, Cost: 1, Model: "resnet50"},
		{Rate: 100, Latency: 20 * time.Millisecond, Cost: 3, Model: "resnet50"},
		{Rate: 800, Latency: 15 * time.Millisecond, Cost: 16, Model: "resnet50"},
	}}
	for i := range app.Options {
		if app.Options[i].Latency > slo {
			app.Options[i].Rate = 0
		}
	}
	return app
}

// cases are the rows of §2.2, Table 3: load, objective, counts and cost as printed, the cost with
// a slack of 1.05, and the counts of the plan with 99 % in time.
var cases = []struct {
	load                float64
	slo                 time.Duration
	printed             []int
	cost, slack, greedy float64
	staffed             []int
}{
	{10, 300 * time.Millisecond, []int{2, 0, 0}, 2, 3, 2, []int{0, 1, 0}},
	{10, 50 * time.Millisecond, []int{0, 1, 0}, 3, 3, 3, []int{0, 1, 0}},
	{1000, 300 * time.Millisecond, []int{0, 2, 1}, 22, 25, 30, []int{0, 3, 1}},
}

func total(app *Application, counts []int) float64 {
	sum := 0.0
	for i, n := range counts {
		sum += app.Options[i].Price(n, 0)
	}
	return sum
}

// §2.2, Table 3 by the program of §4.2.1: as printed with a slack of 1, and with 1.05 (§5).
func TestTable3(t *testing.T) {
	for i, c := range cases {
		p := Program{Applications: []Application{*table2(c.load, c.slo)}}
		if plan, err := p.Solve(); err != nil || plan.Cost != c.cost || plan.Bound != c.cost || !slices.Equal(plan.Counts[0], c.printed) {
			t.Errorf("case %d: %+v, %v, want %d at %v", i+1, plan, err, c.printed, c.cost)
		}
		p = Program{Applications: []Application{*table2(1.05*c.load, c.slo)}}
		if plan, err := p.Solve(); err != nil || plan.Cost != c.slack || plan.Bound != c.slack {
			t.Errorf("case %d with slack: %+v, %v, want %v", i+1, plan, err, c.slack)
		}
	}
}

// §4.2.2 on Table 3: with nothing running, the heuristic takes one variant, so case 3 costs ten
// of B.
func TestTable3Greedy(t *testing.T) {
	for i, c := range cases {
		app := table2(c.load, c.slo)
		if got := total(app, Greedy(app, 0)); got != c.greedy {
			t.Errorf("case %d: greedy costs %v, want %v", i+1, got, c.greedy)
		}
	}
}

// The loads of Table 3 (§2.2) at random: 99 % are in time with the plan's instances, and with
// Table 3's they are not where those are saturated.
func TestTable3Staffed(t *testing.T) {
	for i, c := range cases {
		app := table2(c.load, c.slo)
		got := Staffed(app, c.slo, 0)
		if !slices.Equal(got, c.staffed) {
			t.Errorf("case %d: %d, want %d", i+1, got, c.staffed)
		}
		if late := simulate(app, got, c.slo); late > 0.01 {
			t.Errorf("case %d: %d answer %.3f late", i+1, got, late)
		}
		saturated := i != 1
		if late := simulate(app, c.printed, c.slo); late < 0.1 && saturated {
			t.Errorf("case %d: Table 3's %d answer only %.3f late", i+1, c.printed, late)
		}
	}
}

// Which instances are enough alone, as simulated: 5 of A for 10/s in 300 ms, not 4.
func TestUnluckyAgainstSimulation(t *testing.T) {
	for _, c := range []struct {
		load float64
		slo  time.Duration
		pool []int
		in   bool
	}{
		{10, 300 * time.Millisecond, []int{5, 0, 0}, true},
		{10, 300 * time.Millisecond, []int{4, 0, 0}, false},
		{10, 300 * time.Millisecond, []int{2, 0, 0}, false},
		{190, 60 * time.Millisecond, []int{0, 2, 0}, false},
		{190, 60 * time.Millisecond, []int{0, 3, 0}, true},
		{1000, 300 * time.Millisecond, []int{0, 11, 0}, true},
	} {
		app := table2(c.load, c.slo)
		var pool []capacity.Server
		for i, n := range c.pool {
			pool = append(pool, capacity.Server{Count: n, Exec: app.Options[i].Latency, Rate: []float64{5, 100, 800}[i]})
		}
		guess, late := capacity.Unlucky(pool, c.load, c.slo), simulate(app, c.pool, c.slo)
		if (guess <= 0.01) != c.in || (late <= 0.01) != c.in {
			t.Errorf("%d for %v/s in %v: %.4f are late, and %.4f are expected to be", c.pool, c.load, c.slo, late, guess)
		}
	}
}

// Random plans are in time, as simulated. Large pools have no batches here: there it is for the
// policy to fill them.
func TestStaffedAgainstSimulation(t *testing.T) {
	r := newRandom(11)
	mixed := 0
	for range 100 {
		app := &Application{Load: math.Exp2(2 + 8*r.Float64())}
		slo := time.Duration((50 + 400*r.Float64()) * float64(time.Millisecond))
		for range 4 {
			exec := time.Duration(float64(slo) * (0.05 + 0.85*r.Float64()))
			batch := math.Exp2(float64(r.IntN(4)))
			if app.Load*exec.Seconds() > 3*batch {
				batch = 1
			}
			app.Options = append(app.Options, Option{Latency: exec, Rate: batch / exec.Seconds(), Cost: batch * (0.5 + r.Float64())})
		}
		counts := Staffed(app, slo, 0)
		kinds := 0
		for _, n := range counts {
			kinds += min(n, 1)
		}
		if kinds > 1 {
			mixed++
		}
		if late := simulate(app, counts, slo); late > 0.02 {
			t.Errorf("%.0f/s within %v: %d of %+v answer %.4f late", app.Load, slo, counts, app.Options, late)
		}
	}
	if mixed < 5 {
		t.Errorf("only %d plans are mixtures", mixed)
	}
}

// A plan for millions of requests ends and is near the cheapest variant's price per request.
func TestStaffedAtScale(t *testing.T) {
	app := table2(3e6, time.Second)
	got := Staffed(app, time.Second, 0)
	if cost := total(app, got); cost > 3e6*0.02*1.01 {
		t.Errorf("%d cost %v", got, cost)
	}
	if got := Staffed(table2(0, time.Second), time.Second, 0); total(app, got) != 0 {
		t.Errorf("no load has %d", got)
	}
	if got := Staffed(table2(10, time.Millisecond), time.Millisecond, 0); got != nil {
		t.Errorf("an objective of 1 ms has %d", got)
	}
}

// §4.2.2: more of what runs, an upgrade, what is not needed, a downgrade.
func TestGreedyActions(t *testing.T) {
	for _, c := range []struct {
		name    string
		load    float64
		running []int
		loading float64
		lambda  float64
		want    []int
	}{
		{"replicate", 15, []int{2, 0, 0}, 0, 0, []int{3, 0, 0}},   // As cheap as B: it stays with A.
		{"replicate A", 14, []int{2, 0, 0}, 1, 1, []int{3, 0, 0}}, // Loading B would cost 3 more.
		{"upgrade", 60, []int{2, 0, 0}, 0, 0, []int{0, 1, 0}},     // 12 of A, or one B.
		{"enough", 10, []int{2, 0, 0}, 0, 0, []int{2, 0, 0}},      // Nothing to do.
		{"release", 150, []int{0, 5, 0}, 0, 0, []int{0, 2, 0}},    // Two of B carry it.
		{"downgrade", 9, []int{0, 1, 0}, 0, 0, []int{2, 0, 0}},    // B costs 3, two of A cost 2.
		{"stay", 9, []int{0, 1, 0}, 10, 1, []int{0, 1, 0}},        // Loading A costs more.
		{"mixed", 1000, []int{0, 2, 1}, 0, 0, []int{0, 2, 1}},     // Table 3, case 3, running.
		{"mixed grows", 1100, []int{0, 2, 1}, 0, 0, []int{0, 3, 1}},
	} {
		app := table2(c.load, 300*time.Millisecond)
		for i, n := range c.running {
			app.Options[i].Running, app.Options[i].Loading = n, c.loading
		}
		got := Greedy(app, c.lambda)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
		if sum := 5*got[0] + 100*got[1] + 800*got[2]; float64(sum) < c.load {
			t.Errorf("%s: %d carry %d/s", c.name, got, sum)
		}
	}
	if got := Greedy(table2(10, time.Millisecond), 0); got != nil {
		t.Errorf("no variant takes 1 ms, and greedy has %d", got)
	}
	other := table2(60, 300*time.Millisecond)
	other.Options[0].Running, other.Options[1].Model, other.Options[2].Model = 2, "vgg16", "vgg16"
	if got := Greedy(other, 0); !slices.Equal(got, []int{12, 0, 0}) {
		t.Errorf("an upgrade to another architecture: %d", got)
	}
}

// simulate returns the part of 200,000 requests that are late: one queue, the fastest free
// instance takes as many as its batch (Q·T), and a batch takes the variant's latency.
func simulate(app *Application, counts []int, slo time.Duration) float64 {
	type server struct {
		free, exec float64
		batch      int
	}
	var pool []server
	for i := len(counts) - 1; i >= 0; i-- {
		for range counts[i] {
			o := &app.Options[i]
			pool = append(pool, server{exec: o.Latency.Seconds(), batch: int(math.Round(o.Rate * o.Latency.Seconds()))})
		}
	}
	arrivals, r := make([]float64, 200_000), newRandom(7)
	now, late := 0.0, 0
	for i := range arrivals {
		now += r.ExpFloat64() / app.Load
		arrivals[i] = now
	}
	for i := 0; i < len(arrivals); {
		first := 0
		for k := range pool {
			at, least := max(pool[k].free, arrivals[i]), max(pool[first].free, arrivals[i])
			if at < least || at == least && pool[k].exec < pool[first].exec {
				first = k
			}
		}
		s := &pool[first]
		start := max(s.free, arrivals[i])
		s.free = start + s.exec
		for taken := 0; taken < s.batch && i < len(arrivals) && arrivals[i] <= start; taken++ {
			if s.free-arrivals[i] > slo.Seconds()+1e-9 {
				late++
			}
			i++
		}
	}
	return float64(late) / float64(len(arrivals))
}

// The price of an action is that of §4.2.1: C·(δ + λ·T_load·max(δ, 0)), and C·N.
func TestPriceOfAction(t *testing.T) {
	o := Option{Cost: 3, Loading: 2, Running: 4}
	for n, want := range map[int]float64{0: 0, 3: 9, 4: 12, 6: 18 + 3*0.5*2*2} {
		if got := o.Price(n, 0.5); math.Abs(got-want) > 1e-12 {
			t.Errorf("%d instances cost %v, want %v", n, got, want)
		}
	}
}
