package figure

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// capacities returns a simulation in which each system bears the given requests/s in all.
func capacities(of map[string]float64) func(context.Context, sim.Setup) (*sim.Result, error) {
	return func(_ context.Context, s sim.Setup) (*sim.Result, error) {
		total := 0.0
		for _, f := range s.Functions {
			total += f.Arrivals.(sim.Rate).Rate(s.Warmup)
		}
		r := &sim.Result{ResourceSeconds: 100, FragmentPct: 7}
		for _, f := range s.Functions {
			one := sim.FunctionResult{Name: f.Name, Requests: 1000, Served: 1000, Latency: &sim.Histogram{}, Batches: []uint64{0, 400, 300}, Configs: configs(s)}
			switch most := of[s.System.Name]; {
			case total > 2*most:
				one.Missed, one.Rejected, one.Served = 6, 34, 966
			case total > most: // 97 % are in time.
				one.Missed, one.Rejected, one.Served = 6, 6, 994
			}
			r.Functions = append(r.Functions, one)
		}
		return r, nil
	}
}

// configs returns 8 instances with a tenth of a GPU, which have served 900 requests, and 16
// without GPU.
func configs(s sim.Setup) []sim.ConfigResult {
	span := (s.Duration - s.Warmup).Seconds()
	return []sim.ConfigResult{
		{Config: cluster.Config{Batch: 2, Resources: cluster.Resources{CPU: 2000, GPU: 10}}, Requests: 900, InstanceSeconds: 8 * span},
		{Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000}}, Requests: 100, InstanceSeconds: 16 * span},
	}
}

// The highest load of each system is found, and the results have their fixed names.
func TestMaxRPS(t *testing.T) {
	told := 0
	out, err := Run(t.Context(), parsed(t, "testbed-osvt", text("max-rps", "")), Options{
		Systems: systemsOf(t, baselines.OpenFaaS, baselines.Batch, systems.INFless, baselines.INFlessBB, systems.FaaSInfer), Drawings: true,
		run:      capacities(map[string]float64{baselines.OpenFaaS: 100, baselines.Batch: 200, systems.INFless: 500, systems.FaaSInfer: 800}),
		Progress: func(done, total int) { told = 100 * done / total },
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"max_rps.openfaas+": 100, "max_rps.infless": 500, "max_rps.faas-infer": 800, "max_rps.infless-bb": 0,
		// At twice that load 97 % are in time. All are answered up to the first load.
		"max_rps_97.openfaas+": 200, "saturation_rps.openfaas+": 2 * 1000 / 50.0,
		"ratio.infless_over_openfaas+": 5, "ratio.infless_over_batch": 2.5, "ratio.faas-infer_over_infless": 1.6, "ratio.infless-bb_over_infless": 0,
	} {
		if got := value(t, out, name); math.Abs(got-want) > 0.012*want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	bound := value(t, out, "max_rps.bound")
	if share := value(t, out, "share_of_bound.faas-infer"); bound < 800 || math.Abs(share-800/bound) > 0.01 {
		t.Errorf("a share of %v of %v", share, bound)
	}
	if own := value(t, out, "own_limit_rps.openfaas+"); own <= 0 || own > bound*1.01 {
		t.Errorf("OpenFaaS+'s own limit is %v, no policy has more than %v", own, bound)
	}
	if told != 100 {
		t.Errorf("%d %% are told at the end", told)
	}
	for _, want := range []string{"2952", "5.21", "bound", "paper: INFless"} {
		if got := printed(t, out); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	var files []string
	for _, d := range out.Drawings {
		files = append(files, d.Name)
	}
	if strings.Join(files, " ") != "fig11-osvt fig12b-osvt fig13-osvt fig15bc-osvt" {
		t.Errorf("drawings %q", files)
	}
}

// The table explains INFless' limit with the numbers of the run. Under 200 ms it cannot
// batch SSD (a): two requests take 157 ms at best. Four of ResNet-50 (b) take 74 ms. Two
// functions hold 2·32 of 256 cores and 2·0.8 of 16 GPUs. Of 1,000 requests, 400 were alone
// and 600 in pairs.
func TestCauses(t *testing.T) {
	out, err := Run(t.Context(), parsed(t, "testbed-osvt-400ms", text("max-rps", "")), Options{
		Systems: systemsOf(t, systems.INFless), run: capacities(map[string]float64{systems.INFless: 500}),
	})
	if err != nil {
		t.Fatal(err)
	}
	bound := value(t, out, "max_rps.bound")
	for name, want := range map[string]float64{
		"cause.largest_batch.a": 1, "cause.largest_batch.b": 4, "cause.without_gpu_pct.a": 10,
		"cause.cpu_empty_pct": 75, "cause.gpu_empty_pct": 90, "gpu_held_pct.infless": 10, "cpu_held_pct.infless": 25,
		"cause.paper_over_bound": 2952 / bound, "cause.tail_over_mean.a": math.Exp(2.3263 * 0.019587), "stress_rps.infless": 2 * 960 / 50.0,
	} {
		if got := value(t, out, name); math.Abs(got-want) > 1e-4 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := value(t, out, "cause.cpu_only_over_gpu.b"); !(got > 1) {
		t.Errorf("b's configs without a GPU have %v times the requests for each βc + g", got)
	}
	for _, want := range []string{"Why infless", "a: no batch of two", "b: more than 1 %", "tried a misses 1.2 %", "90 % of the GPUs and 75 % of the CPUs are empty", "(Eq. 10)", "of the bound"} {
		if got := printed(t, out); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// Without INFless there is no such table. If INFless bears no load, the table has no use of
// the machines.
func TestNoCauses(t *testing.T) {
	for _, name := range []string{baselines.Batch, systems.INFless} {
		out, err := Run(t.Context(), parsed(t, "mine", text("max-rps", "")), Options{Systems: systemsOf(t, name), run: capacities(nil)})
		if err != nil {
			t.Fatal(err)
		}
		if got := printed(t, out); strings.Contains(got, "Why infless") != (name == systems.INFless) || strings.Contains(got, "are empty") || strings.Contains(got, "NaN") {
			t.Errorf("%s:\n%s", name, got)
		}
		for _, r := range out.Results {
			if math.IsNaN(r.Value) || math.IsInf(r.Value, 0) {
				t.Errorf("%s is %v", r.Name, r.Value)
			}
		}
	}
}

// Under 200 ms two images of SSD take 157 ms, more than half (Eq. 4). Two of MobileNet take 94 ms,
// and 104 with the offset.
func TestCausesOfNoBatches(t *testing.T) {
	const ms = time.Millisecond
	long, offset := unbatched([]reason{
		{function: "ssd", half: 100 * ms, pair: 157 * ms, foreseen: 173 * ms, largest: 1},
		{function: "mobilenet", half: 100 * ms, pair: 94 * ms, foreseen: 104 * ms, largest: 1},
		{function: "resnet-50", half: 100 * ms, pair: 40 * ms, foreseen: 44 * ms, largest: 8},
		{function: "none", half: 100 * ms, largest: 1},
	})
	if strings.Join(long, " ") != "ssd none" || strings.Join(offset, " ") != "mobilenet" {
		t.Errorf("Eq. 4: %q, the offset: %q", long, offset)
	}
}

// What sums of times leave over does not count as empty.
func TestEmpty(t *testing.T) {
	for held, want := range map[float64]float64{100: 0, 100 - 1.5e-14: 0, 100 + 1e-12: 0, 33.125: 66.875, 0: 100} {
		if got := empty(held); got != want {
			t.Errorf("%v %% held: %v %% empty, want %v", held, got, want)
		}
	}
}
