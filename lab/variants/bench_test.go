package variants

import (
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/scaling/infaas"
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
