package asyfunc

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/asyfunc/planning"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

func figures(r *report.Report) map[string]float64 {
	out := map[string]float64{}
	for _, x := range r.Results {
		out[x.Name] = x.Value
	}
	return out
}

// A small run of all policies: every figure is there and possible, ours takes less memory than
// BATCH, by both accountings, and misses no more; Fig. 1's k-LV holds more than LV and misses
// less.
func TestEvaluation(t *testing.T) {
	load, err := Twitter(20*time.Second, 1)
	if err != nil {
		t.Fatal(err)
	}
	run := func() *report.Report {
		r, err := Run(t.Context(), Options{Command: "test", Models: []string{"resnet-101", "vgg-19"}, Law: DefaultLaw(), Load: load, Nodes: Table1(8)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	got := figures(run())
	for name, x := range got {
		percentage := strings.Contains(name, "violation") || strings.Contains(name, "utility")
		if math.IsNaN(x) || math.IsInf(x, 0) || percentage && (x < 0 || x > 100) || strings.Contains(name, "memory_change") && x <= -100 {
			t.Errorf("%s is %v", name, x)
		}
	}
	for _, m := range []string{"resnet-101", "vgg-19"} {
		for _, p := range []string{AsyFunc, NoLayers, NoAdapt, Batch, BatchPlus, Ours} {
			for _, prefix := range []string{"", "slo1.5."} {
				for _, figure := range []string{"memory_change_pct.", "memory_change_pct.shared.", "slo_violation_pct.", "cpu_utility_pct."} {
					if _, ok := got[prefix+figure+m+"."+p]; !ok {
						t.Errorf("no %s%s%s.%s", prefix, figure, m, p)
					}
				}
			}
		}
		if own, shared := got["memory_change_pct."+m+"."+Ours], got["memory_change_pct.shared."+m+"."+Ours]; own > -25 || shared > -25 {
			t.Errorf("%s: ours changes memory by %v and %v %%", m, own, shared)
		}
		if ours, batch := got["slo_violation_pct."+m+"."+Ours], got["slo_violation_pct."+m+"."+Batch]; ours > batch+0.1 {
			t.Errorf("%s: ours misses %v %%, BATCH %v", m, ours, batch)
		}
	}
	if k, last := got["instances_over_opt.fig1.k-lv"], got["instances_over_opt.fig1.lv"]; k <= last {
		t.Errorf("k-LV holds %v times OPT, LV %v", k, last)
	}
	if k, last := got["slo_violation_pct.fig1.k-lv"], got["slo_violation_pct.fig1.lv"]; k > last {
		t.Errorf("k-LV misses %v %%, LV %v", k, last)
	}
	again := figures(run())
	for name, x := range got {
		if again[name] != x {
			t.Errorf("%s is %v and then %v", name, x, again[name])
		}
	}
}

// The law's two points of §1, and Amdahl's: 16 cores take 0.05 + 0.95/16 of the work of one.
func TestLaw(t *testing.T) {
	l := DefaultLaw()
	if got := l.LoadFixed + l.load(131e6); math.Abs(got-100) > 1e-6 {
		t.Errorf("131 MB load in %v ms", got)
	}
	if got := l.LoadFixed + l.load(6e6); math.Abs(got-11) > 1e-6 {
		t.Errorf("6 MB load in %v ms", got)
	}
	m, err := l.make("resnet-20")
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range m.Blocks {
		one, many := b.Ms[0][7], b.Ms[15][7]
		if many > one || many < one*(0.05+0.95/16)-1e-12 {
			t.Errorf("block %d takes %v ms on one core and %v on 16", i, one, many)
		}
	}
}

// The arithmetic of [extend].
func TestExtend(t *testing.T) {
	m := &shadow.Model{Rows: []int{1}, Threads: []int{1, 2}, Blocks: []shadow.Block{{Ms: [][]float64{{10}, {6}}}}}
	extend(m, 4)
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	if got := m.Blocks[0].Ms[3][0]; math.Abs(got-4) > 1e-9 {
		t.Errorf("4 threads take %v ms", got)
	}
}

// The day has 24 hours with the rates of their processes, the same with the same seed.
func TestTwitter(t *testing.T) {
	a, err := Twitter(time.Minute, 3)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := Twitter(time.Minute, 3)
	if a.Length != 24*time.Minute || len(a.Times) != len(b.Times) || a.Mean() < 20 || a.Mean() > 100 {
		t.Errorf("%d and %d requests in %v", len(a.Times), len(b.Times), a.Length)
	}
	for i, at := range a.Times {
		if i > 0 && at < a.Times[i-1] || at >= a.Length {
			t.Fatalf("request %d is at %v", i, at)
		}
	}
}

func TestRecorded(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	l, err := Recorded(write("counts.csv", "minute,a\n0,600\n1,600\n2,600\n"), 2*time.Minute, 1)
	if err != nil || l.Length != 2*time.Minute || len(l.Times) != 1200 {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := Recorded(write("short.csv", "timestamp\n0\n1\n"), 0, 1); err == nil {
		t.Error("a trace of two seconds is taken")
	}
	if _, err := Recorded(filepath.Join(dir, "none.csv"), 0, 1); err == nil {
		t.Error("a trace that is not there is taken")
	}
}

// FuzzWorld runs every policy on small random clusters and loads: each request is answered once,
// memory and cores are never negative nor more than the nodes', and a body has one shadow.
func FuzzWorld(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(seed, uint8(20*seed+10), uint8(3))
	}
	m, err := DefaultLaw().make("resnet-20")
	if err != nil {
		f.Fatal(err)
	}
	for i := range m.Blocks { // A slow model, so that instances matter.
		for _, row := range m.Blocks[i].Ms {
			for j := range row {
				row[j] *= 20
			}
		}
	}
	f.Fuzz(func(t *testing.T, seed uint64, rate, n uint8) {
		random := rand.New(rand.NewPCG(seed, 1))
		l := &Load{Length: warmup + 15*time.Second}
		for at := 0.0; ; {
			burst := 1 + 5*float64(int(at/4)%2)
			if at += random.ExpFloat64() / (1 + float64(rate)) / burst * 3; at >= l.Length.Seconds() {
				break
			}
			l.Times = append(l.Times, time.Duration(at*float64(time.Second)))
		}
		var nodes []planning.Node
		for range 1 + n%4 {
			nodes = append(nodes, planning.Node{Cores: 1 + random.IntN(30), Memory: int64(random.IntN(2000)) << 20})
		}
		for _, p := range policies {
			w := fuzzed(t, m, nodes, l, p)
			c := w.requests.Total()
			if c.Arrived != uint64(len(l.Times)) || c.Served+c.Rejected+uint64(w.requests.Waiting()) != c.Arrived {
				t.Fatalf("%s: %+v of %d requests, %d wait", p.name, c, len(l.Times), w.requests.Waiting())
			}
			if x := w.measure; x.own < 0 || x.shared < 0 || x.shared > x.own*(1+1e-9) || x.busy < 0 || x.busy > x.cores*(1+1e-6)+20 {
				t.Fatalf("%s: %+v", p.name, x)
			}
		}
	})
}

// fuzzed is a run whose state is checked at each look.
func fuzzed(t *testing.T, m *shadow.Model, nodes []planning.Node, l *Load, p policy) *world {
	planner, err := planning.NewPlanner(m, planning.Published(m.Time(0, len(m.Blocks), maxBatch, 1000*maxCores)))
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(planner, DefaultLaw(), l, nodes, &checked{p.make(), t, nodes}, p.empties)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.run(t.Context()); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	w.settleAll()
	return w
}

// checked is a controller after whose acts the world must add up.
type checked struct {
	controller
	t     *testing.T
	nodes []planning.Node
}

func (c *checked) tick(w *world) {
	c.controller.tick(w)
	left := append([]planning.Node(nil), c.nodes...)
	partners := map[*instance]int{}
	for _, in := range w.instances {
		if in == nil {
			continue
		}
		left[in.Node].Cores -= in.Cores
		left[in.Node].Memory -= in.own + in.weights
		if in.own < 0 || in.weights < 0 || in.Cores < 1 {
			c.t.Fatalf("%+v", in)
		}
		if in.shadow == nil {
			continue
		}
		if partners[in.body]++; partners[in.body] > 1 || in.body.Shadow != in.shadow {
			c.t.Fatalf("%s has %d shadows", in.body.id, partners[in.body])
		}
	}
	for i := range left {
		if left[i] != w.nodes[i].Node || left[i].Cores < 0 {
			c.t.Fatalf("node %d has %+v left, and counts %+v", i, left[i], w.nodes[i].Node)
		}
	}
}
