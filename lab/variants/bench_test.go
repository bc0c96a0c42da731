package variants

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/lab/infaas"
)

// The bench prints its results, its decisions are sound, and its plans are HiGHS'. The times are
// not tested because the machine is shared.
func TestRun(t *testing.T) {
	r, err := Run(t.Context(), "bench variants", Bench{Decisions: 300, Programs: 2})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range r.Results {
		names = append(names, x.Name)
		if x.Name == "ilp_gap_pct.100" && x.Value > 1 {
			t.Errorf("%s is %v %%, more than 1 %%", x.Name, x.Value)
		}
	}
	if want := []string{"decide_us.named.10000", "decide_us.active.10000", "decide_us.inactive.10000",
		"ilp_ms.50", "ilp_ms.100", "ilp_gap_pct.100", "highs_ms.100"}; !slices.Equal(names, want) {
		t.Errorf("the results are %q, want %q", names, want)
	}
}

// A program is the same for a seed, and its limits bind.
func TestProgram(t *testing.T) {
	p, again := Program(20, 3), Program(20, 3)
	plan, err := p.Solve()
	same, err2 := again.Solve()
	if err != nil || err2 != nil || plan.Cost != same.Cost {
		t.Errorf("%v, %v; %v, %v", plan.Cost, err, same.Cost, err2)
	}
	variants := 0
	for _, a := range Program(22, 1).Applications {
		variants += len(a.Options)
	}
	if variants != 175 {
		t.Errorf("22 architectures have %d variants, Table 6 175", variants)
	}
	free := infaas.Program{Applications: p.Applications, Limits: []float64{1e9, 1e9, 1e9, 1e9}, Lambda: p.Lambda}
	if plan2, err := free.Solve(); err != nil || plan2.Cost > plan.Cost*(1-1e-6) {
		t.Errorf("without limits the plan costs %v, with them %v, %v", plan2.Cost, plan.Cost, err)
	}
}

// A matrix has what a program says.
func TestMatrix(t *testing.T) {
	p := &infaas.Program{Lambda: 1, Limits: []float64{7}, Applications: []infaas.Application{{Load: 5, Options: []infaas.Option{
		{Rate: 2, Cost: 3, Loading: 2, Running: 4, Needs: []float64{1}}, {Cost: 1, Needs: []float64{2}},
	}}}}
	m := matrixOf(p)
	if !slices.Equal(m.Cost, []float64{3, 9, 1, 1}) || !slices.Equal(m.Bounds, []float64{4, -1, 0, -1}) ||
		!slices.Equal(m.Rows, []int{0, 1, 0, 1, 1, 1}) || !slices.Equal(m.Values, []float64{2, 1, 2, 1, 2, 2}) || *m.Lower[0] != 5 || *m.Upper[1] != 7 {
		t.Errorf("%+v", m)
	}
}

// The zoo has the numbers of INFaaS' Table 6 and lies within the ranges of its §1.
func TestZoo(t *testing.T) {
	families := map[string]int{}
	models := map[string]bool{}
	for _, v := range Zoo(1) {
		if err := v.Check(); err != nil {
			t.Errorf("%s: %v", v.Name, err)
		}
		for _, family := range []string{"mobilenet", "alexnet", "densenet", "resnet", "vgg", "inception", "nasnet", "gnmt"} {
			if strings.HasPrefix(v.Model, family) {
				families[family]++
			}
		}
		models[v.Model] = true
		if v.Latency < time.Millisecond || v.Latency > 5700*time.Millisecond || v.Load < 590*time.Millisecond || v.Load > 11*time.Second {
			t.Errorf("%s takes %v, and %v to load", v.Name, v.Latency, v.Load)
		}
		if v.Model == "resnet50" && v.Name == "resnet50-tensorflow-4cpu" && (v.RPS < 4 || v.RPS > 6.5) {
			t.Errorf("%s serves %v/s, Table 2's 5", v.Name, v.RPS)
		}
	}
	want := map[string]int{"mobilenet": 13, "alexnet": 9, "densenet": 22, "resnet": 61, "vgg": 30, "inception": 25, "nasnet": 6, "gnmt": 9}
	if !maps.Equal(families, want) || len(models) != 22 {
		t.Errorf("%d architectures, %v", len(models), families)
	}
	if !slices.Equal(Zoo(1), Zoo(1)) || slices.Equal(Zoo(1), Zoo(2)) {
		t.Error("a seed must give one table, and another one another")
	}
	for _, name := range Tables() {
		if rows, err := Table(name); err != nil || len(rows) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Table("infaas-176"); err == nil {
		t.Error("an unknown table is found")
	}
}
