package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/report"
)

func tune(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := newTuneCommand()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// gapsFile writes a file with n gaps and returns its name.
func gapsFile(t *testing.T, n int, gap func(i int) float64) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("gap\n")
	for i := range n {
		fmt.Fprintln(&b, gap(i))
	}
	name := filepath.Join(t.TempDir(), "gaps.csv")
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestTune(t *testing.T) {
	drawing := filepath.Join(t.TempDir(), "cdf.svg")
	args := []string{"--arrivals", "azure-llm", "--profile", "2080ti:ssd", "--slo", "600ms", "--percentile", "95", "--plot", drawing}
	text, err := tune(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"19366 requests", "fitted", "choice", "the file replayed", "p99.9", "RUNNERS-UP", "resource·s"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if svg, err := os.ReadFile(drawing); err != nil || !bytes.Contains(svg, []byte("</svg>")) {
		t.Errorf("the drawing: %v", err)
	}
	text, err = tune(t, append(args, "--json")...)
	if err != nil {
		t.Fatal(err)
	}
	var r report.Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, x := range r.Results {
		values[x.Name] = x.Value
	}
	if values["choice.percentile_ms"] > 600 || values["choice.batch"] < 1 || values["choice.within_pct"] < 95 || values["cdf.p95_ms"] != values["choice.percentile_ms"] && values["cdf.p95_ms"] > 600 {
		t.Errorf("%v", values)
	}
	if a, b := values["replayed.p95_ms"], values["cdf.p95_ms"]; a > 1.05*b || a < 0.95*b {
		t.Errorf("p95 is predicted to be %v ms, the file's requests have %v", b, a)
	}
}

// An outage in a file gives it the moments of a burst, and small processes cannot
// distinguish the two. tune chooses for the file's own requests, and they meet the
// prediction.
func TestTuneOutage(t *testing.T) {
	outage := gapsFile(t, 2000, func(i int) float64 {
		if i == 1000 {
			return 200
		}
		return 0.02 + 0.06*float64(i*7%11)/10
	})
	text, err := tune(t, "--arrivals", outage, "--profile", "ssd", "--slo", "500ms")
	if err != nil || !strings.Contains(text, "chosen for  the file's own requests") || strings.Contains(text, "Take care") {
		t.Errorf("%v in\n%s", err, text)
	}
}

// With a bounded number of instances, tune prints the smallest number that meets the
// objective. One instance is too few.
func TestTuneInstances(t *testing.T) {
	args := []string{"--arrivals", "azure-llm", "--profile", "2080ti:ssd", "--slo", "600ms", "--percentile", "95", "--runners-up", "2"}
	text, err := tune(t, append(args, "--instances", "8")...)
	if err != nil || !strings.Contains(text, " × batches of ") {
		t.Errorf("%v in\n%s", err, text)
	}
	if _, err := tune(t, append(args, "--instances", "8", "--spread", "0.9")...); err == nil || !strings.Contains(err.Error(), "--spread 0.9: it must be from 0 to 0.7") {
		t.Errorf("got %v", err)
	}
	burst := gapsFile(t, 3000, func(i int) float64 { return 0.0002 + 0.00001*float64(i%7) })
	if _, err := tune(t, "--arrivals", burst, "--profile", "2080ti:ssd", "--slo", "600ms", "--instances", "1"); err == nil || !strings.Contains(err.Error(), "no choice has enough instances") {
		t.Errorf("got %v", err)
	}
}

// For odd files too, the prediction is what the file's requests would meet, or tune prints
// a warning.
func TestTuneOddFiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, c := range map[string]struct {
		gap  func(i int) float64
		args []string
	}{
		"equal gaps":             {gap: func(int) float64 { return 0.1 }},
		"equal gaps, no batch":   {gap: func(int) float64 { return 0.1 }, args: []string{"--max-batch", "1"}},
		"mostly zero":            {gap: func(i int) float64 { return float64(i%10/9) * 2 }},
		"a pause of 200 s":       {gap: func(i int) float64 { return 0.02*random.ExpFloat64() + float64(i/1000*(i%1000/999))*200 }},
		"an SCV in the hundreds": {gap: func(i int) float64 { return 0.01*random.ExpFloat64() + float64(i%500/499)*30 }},
		"nothing to wait with":   {gap: func(int) float64 { return 0.05 * random.ExpFloat64() }, args: []string{"--slo", "170ms"}},
		"two instances":          {gap: func(int) float64 { return 0.2 * random.ExpFloat64() }, args: []string{"--instances", "2"}},
	} {
		args := append([]string{"--arrivals", gapsFile(t, 3000, c.gap), "--profile", "ssd", "--slo", "500ms"}, c.args...)
		text, err := tune(t, append(args, "--json")...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var r report.Report
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		values, notes := map[string]float64{}, map[string]string{}
		for _, x := range r.Results {
			values[x.Name], notes[x.Name] = x.Value, x.Note
		}
		off := values["replayed.difference_pct"]
		t.Logf("%-22s batches of %v, %.4g ms, for %v phases; p95 %.4g ms, replayed %+.2f %%", name, values["choice.batch"], values["choice.timeout_ms"], values["choice.phases"], values["cdf.p95_ms"], off)
		if math.Abs(off) > tolerance && !strings.Contains(notes["replayed.difference_pct"], "Take care") || values["choice.within_pct"] < 95 {
			t.Errorf("%s: %+v", name, values)
		}
	}
}

// tune accepts a budget in $ on Lambda, and evenly spaced requests.
func TestTuneBudget(t *testing.T) {
	even := gapsFile(t, 200, func(int) float64 { return 0.1 })
	text, err := tune(t, "--arrivals", even, "--profile", "lambda:resnet-v2", "--budget", "4.5e-5", "--max-batch", "8")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "$ a request") || !strings.Contains(text, " MB") {
		t.Errorf("got %s", text)
	}
}

func TestTuneRefuses(t *testing.T) {
	few := gapsFile(t, 10, func(int) float64 { return 1 })
	zero := gapsFile(t, 100, func(int) float64 { return 0 })
	some := gapsFile(t, 100, func(i int) float64 { return 0.1 + 0.01*float64(i%7) })
	counts := filepath.Join(t.TempDir(), "counts.csv")
	if err := os.WriteFile(counts, []byte("minute,a\n0,4\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	notProfile := filepath.Join(t.TempDir(), "profile.json")
	if err := os.WriteFile(notProfile, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	with := func(args ...string) []string { return append([]string{"--arrivals", some}, args...) }
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--arrivals is missing"},
		{[]string{"--arrivals", some}, "--profile is missing"},
		{with("--profile", "ssd"), "--slo or --budget is missing"},
		{with("--profile", "ssd", "--slo", "-1s"), "must not be negative"},
		{with("--profile", "ssd", "--slo", "1s", "--percentile", "100"), "--percentile 100: it must be from 50 to 99.99"},
		{with("--profile", "ssd", "--slo", "1s", "--max-batch", "0"), "--max-batch 0"},
		{with("--profile", "ssd", "--slo", "1s", "--instances", "-1"), "--instances -1: it must be 1 or more"},
		{with("--profile", "nobody", "--slo", "1s"), `--profile: "nobody" is unknown: it must be a profile's file, 2080ti:MODEL with catdog`},
		{with("--profile", "2080ti:bert", "--slo", "1s"), `no model "bert"`},
		{with("--profile", "lambda:bert", "--slo", "1s"), `of model "bert": it must be one of inception-v4`},
		{with("--profile", notProfile, "--slo", "1s"), `it has no key "profile"`},
		{with("--profile", "ssd", "--slo", "5ms"), "the lowest that can be met is"},
		{with("--profile", "ssd", "--slo", "1s", "--budget", "1e-9"), "the cheapest costs"},
		{[]string{"--arrivals", few, "--profile", "ssd", "--slo", "1s"}, "11 requests are too few"},
		{[]string{"--arrivals", zero, "--profile", "ssd", "--slo", "1s"}, "all requests came at the same time"},
		{[]string{"--arrivals", counts, "--profile", "ssd", "--slo", "1s"}, "its first column must be timestamp or gap"},
		{[]string{"--arrivals", "absent.csv", "--profile", "ssd", "--slo", "1s"}, `there is no trace "absent.csv"`},
	} {
		if out, err := tune(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %s\n%s", c.args, err, c.want, out)
		}
	}
}

// The error for invalid vectors names their file and field.
func TestBatchModelRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vectors.json")
	if err := os.WriteFile(file, []byte(`[{"Name": "x", "D0": [[-1]], "D1": [[1]], "B": 2, "T": 1, "S": [1]}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{file: `vector 1, "x": S has 1 times`, file + ".absent": "no such file"} {
		c := newBatchModelCommand()
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs([]string{"--vectors", args})
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
