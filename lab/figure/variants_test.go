package figure

import (
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/scenario"
)

// simulated runs a built-in scenario with its policies, or all for variants.
func simulated(t *testing.T, name string, o scenario.Overrides) *Outcome {
	t.Helper()
	s, err := scenario.Load(name, o)
	if err != nil {
		t.Fatal(err)
	}
	policies := s.Policies
	if len(policies) == 0 {
		policies = baselines.ForVariants()
	}
	out, err := Run(t.Context(), s, Options{Systems: systemsOf(t, policies...)})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// between fails if a result is not from low to high.
func between(t *testing.T, out *Outcome, name string, low, high float64) {
	t.Helper()
	if got := value(t, out, name); !(got >= low && got <= high) {
		t.Errorf("%s is %v, want %v to %v", name, got, low, high)
	}
}

// holds fails if the variants that a policy held at any time are not these, the most held first.
func holds(t *testing.T, out *Outcome, of string, want ...string) {
	t.Helper()
	var got []string
	for _, r := range out.Results {
		if rest, ok := strings.CutPrefix(r.Name, "instances."+of+"."); ok {
			got = append(got, rest)
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s holds %q, want %q", of, got, want)
	}
}

// INFaaS, Table 3: the costs as printed. They leave no room for chance, so nearly all is late,
// except for one Inferentia core under a tenth of its rate. ours is in time at the least cost at
// which that is possible.
func TestINFaaSTable3(t *testing.T) {
	out := simulated(t, "infaas-table3", scenario.Overrides{Duration: 4 * time.Minute})
	for i, c := range []struct {
		name              string
		ilp, greedy, ours float64
	}{{"10-300ms", 2, 2, 3}, {"10-50ms", 3, 3, 3}, {"1000-300ms", 22, 30, 25}} {
		for policy, want := range map[string]float64{"infaas-ilp": c.ilp, "infaas": c.greedy, "faas-infer": c.ours} {
			between(t, out, "cost."+c.name+"."+policy, want-1e-9, want+1e-9)
		}
		between(t, out, "within_slo_pct."+c.name+".faas-infer", 99, 100)
		if i == 1 {
			between(t, out, "within_slo_pct."+c.name+".infaas-ilp", 99, 100)
		} else {
			between(t, out, "within_slo_pct."+c.name+".infaas-ilp", 0, 50)
		}
	}
	holds(t, out, "1000-300ms.infaas-ilp", "B", "C")
	for name, want := range map[string]float64{"10-300ms": 3, "10-50ms": 3, "1000-300ms": 25} {
		between(t, out, "cost."+name+".fixed", want, want)
	}
}

// INFaaS, Fig. 6: what it chooses, and the order of costs.
func TestINFaaSFig6(t *testing.T) {
	for _, prices := range []string{"", "infaas-fig6-table2"} {
		out := simulated(t, "infaas-fig6", scenario.Overrides{Variants: prices})
		holds(t, out, "low.infaas", "cpu")
		holds(t, out, "steady.infaas", "gpu-8")
		holds(t, out, "fluctuating.infaas", "cpu", "inferentia-1")
		holds(t, out, "steady.sm+", "gpu-1")
		between(t, out, "served_ratio.steady.sm+_over_infaas", 0.82, 0.88) // −15 %
		between(t, out, "served_ratio.steady.clipper+_over_infaas", 0.999, 1.001)
		between(t, out, "served_ratio.steady.clipper+cpu_over_infaas", 0, 0.02)
		holds(t, out, "fluctuating-cpu-gpu.infaas", "cpu", "gpu-1")
		low, high := 2.4, 3.6 // 3 ± 20 %
		if prices != "" {
			low, high = 6, 9
		}
		for policy, want := range map[string]float64{"clipper+": 21.6, "sm+": 21.3} {
			if prices != "" {
				want = 16
			}
			between(t, out, "cost_ratio.low."+policy+"_over_infaas", want-0.1, want+0.1)
			between(t, out, "cost_ratio.fluctuating."+policy+"_over_infaas", low, high)
			between(t, out, "cost_ratio.fluctuating-cpu-gpu."+policy+"_over_infaas", 1.36, 2.04) // 1.7 ± 20 %
		}
		between(t, out, "slo_violation_pct.fluctuating.faas-infer", 0, 1)
		between(t, out, "slo_violation_pct.low.faas-infer", 0, 1)
		between(t, out, "slo_violation_pct.steady.faas-infer", 0, 1)
	}
}

// INFaaS, Fig. 5, with three seeds: it serves more than Clipper+ and SM+ and misses the objective
// less often. ours misses 1 % at most.
func TestINFaaSProduction(t *testing.T) {
	for seed := range uint64(3) {
		seed++
		out := simulated(t, "infaas-production", scenario.Overrides{Seed: &seed})
		late := value(t, out, "slo_violation_pct.infaas")
		for _, baseline := range []string{"clipper+", "sm+"} {
			between(t, out, "served_ratio."+baseline+"_over_infaas", 0.8, 1)
			between(t, out, "slo_violation_pct."+baseline, 1.2*late, 4*late)
		}
		between(t, out, "slo_violation_pct.infaas", 2, 12)
		between(t, out, "slo_violation_pct.faas-infer", 0, 1)
		between(t, out, "served_ratio.faas-infer_over_infaas", 0.99, 1.01)
		between(t, out, "cost_ratio.faas-infer_over_infaas", 0.6, 1.1)
		between(t, out, "cost.fixed", 330, 350)
	}
}

// INFaaS, Fig. 7: it packs both models on one GPU while that is enough, and then answers more of
// the large model's requests in time than Clipper+, which has one GPU for each model.
func TestINFaaSSharing(t *testing.T) {
	out := simulated(t, "infaas-sharing", scenario.Overrides{})
	late := value(t, out, "slo_violation_pct.infaas")
	between(t, out, "slo_violation_pct.clipper+", 1.5*late, 100)
	between(t, out, "machines.infaas", 1.1, 1.9)
	between(t, out, "machines.clipper+", 2, 2)
	between(t, out, "p99_ms.infaas.inceptionresnetv2", 0, value(t, out, "p99_ms.clipper+.inceptionresnetv2"))
	between(t, out, "p99_ms.infaas.mobilenetv1", value(t, out, "p99_ms.clipper+.mobilenetv1"), 50)
	between(t, out, "slo_violation_pct.faas-infer", 0, 1)
}
