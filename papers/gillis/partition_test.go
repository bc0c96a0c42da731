package gillis

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/papers/gillis/forkjoin"
	"github.com/faas-infer/faas-infer/papers/gillis/member"
	"github.com/faas-infer/faas-infer/papers/gillis/partitioning"
)

// On Lambda the convolutions of VGG-16 run in parts and the rest is mostly whole, nearly
// twice as fast as on one function or faster (Gillis Fig. 9); a looser SLO costs less.
func TestModelPartitionFig9(t *testing.T) {
	got := results(t, "model", "partition", "vgg-16", "--platform", "lambda")
	if s := got["speedup"].Value; s < 1.9 || s > 4 {
		t.Errorf("speedup %v", s)
	}
	tight := results(t, "model", "partition", "vgg-11", "--platform", "lambda", "--for", "cost", "--slo", "450ms")
	loose := results(t, "model", "partition", "vgg-11", "--platform", "lambda", "--for", "cost", "--slo", "600ms")
	if tight["latency_ms"].Value > 450 || loose["latency_ms"].Value > 600 || loose["cost"].Value >= tight["cost"].Value {
		t.Errorf("450 ms: %+v; 600 ms: %+v", tight, loose)
	}
}

// The parts are models of their own, and their answer is the whole model's.
func TestModelPartitionCheck(t *testing.T) {
	parts := filepath.Join(t.TempDir(), "parts")
	platform := written(t, "near.json", `{"name": "near", "memory_mib": 500, "max_parts": 4, "codec": {"unit_bytes": 4},
		"transfer": {"unit_bytes": 4}, "compute": {"relu": {"a": 1}, "pool": {"a": 1}, "bn": {"a": 1}, "add": {"a": 1}, "conv": {"a": 1}, "gemm": {"a": 1}, "lstm": {"a": 1}}}`)
	got := results(t, "model", "partition", "mnist", "--platform", platform, "--out", parts, "--check")
	if got["check.rel_diff"].Value > 1e-5 || got["functions"].Value < 4 || got["check.parts_ms"].Value <= 0 {
		t.Errorf("%+v", got)
	}
	// The plan is in the form that instances read.
	c, err := bundle.ReadCutting(filepath.Join(parts, planFile))
	if err != nil || !bundle.IsCutting(planFile) {
		t.Fatal(err)
	}
	again, err := member.Cut(t.Context(), c, member.All, filepath.Join(t.TempDir(), "again"))
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, r := range again.Rounds {
		for _, p := range r {
			if _, err := model.ReadFile(filepath.Join(parts, p.Dir, forkjoin.ModelFile)); err != nil {
				t.Error(err)
			}
			read++
		}
	}
	if read < 4 {
		t.Errorf("%d parts are written", read)
	}
}

// On this machine a model that computes for less time than its tensors travel stays whole, and
// its time is that of the whole. The machine was measured before.
func TestModelPartitionHere(t *testing.T) {
	database := filepath.Join(t.TempDir(), "operators.jsonl")
	platform := fmt.Sprintf(`{"name": %q, "source": "measured on %s with %s", "memory_mib": 1000000, "max_parts": 2, "crowding": 1,
		"codec": {"unit_bytes": 4}, "transfer": {"unit_bytes": 4, "send": {"loc_ms": 1000}, "return": {"loc_ms": 1000}}}`, partitioning.Local, report.Machine(), onnxruntime.Name())
	if err := os.WriteFile(database+".platform.json", []byte(platform), 0o644); err != nil {
		t.Fatal(err)
	}
	got := results(t, "model", "partition", "mnist", "--database", database)
	if got["functions"].Value != 1 || got["latency_ms"].Value <= 0 || got["latency_ms"].Value != got["whole_ms"].Value {
		t.Errorf("%+v", got)
	}
}

func TestBadModelPartition(t *testing.T) {
	for want, args := range map[string][]string{
		"--for is":                       {"mnist", "--for", "fun"},
		"--slo is 0s":                    {"mnist", "--for", "cost"},
		"--slo is of no use":             {"mnist", "--slo", "1s"},
		"--percentile is 20":             {"mnist", "--percentile", "20"},
		"--functions is -1":              {"mnist", "--functions", "-1"},
		"--platform \"nope\" is neither": {"mnist", "--platform", "nope"},
		"--memory \"lots\": give":        {"mnist", "--platform", "knix", "--memory", "lots"},
		"give functions":                 {"vgg-16", "--platform", "knix", "--memory", "10Mi"},
		"the fastest takes":              {"vgg-11", "--platform", "knix", "--for", "cost", "--slo", "10ms"},
		"no such file":                   {"nosuch.onnx", "--platform", "knix"},
		"--out must be a new directory":  {"mnist", "--platform", "knix", "--out", t.TempDir()},
	} {
		_, err := execute(t, append([]string{"model", "partition"}, args...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

// written writes a file for a flag.
func written(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// results runs a command with --json and returns its figures by name.
func results(t *testing.T, args ...string) map[string]report.Result {
	t.Helper()
	out, err := execute(t, append(args, "--json")...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	var r report.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	byName := map[string]report.Result{}
	for _, x := range r.Results {
		byName[x.Name] = x
	}
	return byName
}
