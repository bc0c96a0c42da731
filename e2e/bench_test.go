package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/report"
)

// The bench commands print one JSON object on standard output, with the result names that
// others rely on. The figures are not tested because the machine is shared.
func TestBenchCommandsPrintTheirResults(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	benches := []struct {
		arguments string
		results   []string
		cores     int
	}{
		{"dataplane --each 50ms", []string{"added.p50_us", "added.p99_us", "rps_ratio.faas_proxy", "mib.added.p50_us"}, 1},
		{"throughput --model mnist --slo 500ms --trial 200ms", []string{"max_rps.one_to_one", "max_rps.infless", "max_rps.shared",
			"ratio.shared_over_one_to_one", "ratio.shared_over_infless"}, 2},
		{"coldstart --model mnist --runs 2", []string{"cold.p50_ms", "cold.library_ms", "cold.model_ms", "cold.first_run_ms", "cold.process_ms"}, 1},
		{"sharing --model mnist", []string{"second.load_ms", "second.private_mib", "second.shared_mib"}, 1},
		{"faults --repeat 1 --only killed --rate 10 --slo 2s --after 2s", []string{"killed.lost", "killed.wrong", "killed.unbounded", "killed.within_slo_pct",
			"killed.within_slo_pct_during", "killed.recover_s", "killed.leaked", "killed.memory", "lost.all", "wrong.all", "unbounded.all", "leaked.all", "memory.all", "generator.lag_ms"}, 1},
		{"memory --functions 3", []string{"idle.rss_mib", "functions.rss_mib"}, 1},
		{"partition --model mnist --served= --rounds 1 --requests 2 --database " + filepath.Join(p.state, "operators.jsonl"), []string{"round.p50_us.1mib",
			"whole_ms.mnist", "threads_ms.mnist", "parts_ms.mnist", "speedup.mnist", "speedup_threads.mnist", "error_pct.latency.mnist", "rel_diff.mnist"}, 2},
	}
	for _, b := range benches {
		t.Run(strings.Fields(b.arguments)[0], func(t *testing.T) {
			var complaint strings.Builder
			c := exec.Command(suite.lab, append(strings.Fields("bench "+b.arguments), "--json", "--prepared", suite.prepared)...)
			c.Stderr = &complaint
			out, err := c.Output()
			if runtime.NumCPU() < b.cores {
				if err == nil || !strings.Contains(complaint.String(), "needs two cores") {
					t.Errorf("on one core: %v: %s", err, complaint.String())
				}
				return
			}
			if err != nil {
				t.Fatalf("%v: %s", err, complaint.String())
			}
			var r report.Report
			if err := json.Unmarshal(out, &r); err != nil {
				t.Fatalf("not one JSON object: %v: %s", err, out)
			}
			for _, name := range b.results {
				if !slices.ContainsFunc(r.Results, func(x report.Result) bool { return x.Name == name }) {
					t.Errorf("no result %q", name)
				}
			}
			if r.Machine == "" || r.Date == "" || !strings.HasPrefix(r.Command, "bench ") {
				t.Errorf("report of %q on %q at %q", r.Command, r.Machine, r.Date)
			}
		})
	}
}
