package command

import (
	"bytes"
	"strings"
	"testing"
)

// The costs of INFaaS' Table 3 (§2.2): as printed with a slack of 1 and λ of 0, and with the
// slack of 1.05 that INFaaS runs with (§5).
func TestModelPlanTable3(t *testing.T) {
	variants := written(t, "variants.csv", strings.ReplaceAll(table2, "active,200", "inactive,200"))
	for _, c := range []struct {
		load, latency               string
		printed, slack, greedy, own float64
		counts                      string
	}{
		{"10", "300ms", 2, 3, 2, 3, "2 × A of resnet50 on cpu"},
		{"10", "50ms", 3, 3, 3, 3, "1 × B of resnet50 on inferentia"},
		{"1000", "300ms", 22, 25, 30, 25, "2 × B of resnet50 on inferentia, 1 × C of resnet50 on gpu"},
	} {
		args := []string{"model", "plan", "--variants", variants, "--load", c.load, "--latency", c.latency}
		got := results(t, append(args, "--slack", "1", "--lambda", "0")...)
		if r := got["cost.ilp"]; r.Value != c.printed || r.Note != c.counts {
			t.Errorf("%s/s in %s: %v, %q, want %v, %q", c.load, c.latency, r.Value, r.Note, c.printed, c.counts)
		}
		if got["cost.greedy"].Value != c.greedy || got["cost.faas-infer"].Value != c.own {
			t.Errorf("%s/s in %s: %+v", c.load, c.latency, got)
		}
		if r := results(t, args...)["cost.ilp"]; r.Value != c.slack {
			t.Errorf("%s/s in %s with slack: %v, want %v", c.load, c.latency, r.Value, c.slack)
		}
	}
}

// Accuracy decides who serves, a running instance need not be loaded, and what fails the
// request counts for nothing.
func TestModelPlanAccuracyAndLoading(t *testing.T) {
	variants := written(t, "variants.csv", table2+"resnet50,A,cpu,overloaded,200,5,900,180,76.1,1\n")
	args := []string{"model", "plan", "--variants", variants, "--load", "10", "--latency", "300ms", "--slack", "1"}
	if r := results(t, append(args, "--lambda", "1")...)["cost.ilp"]; r.Value != 2 || r.Note != "2 × A of resnet50 on cpu" {
		t.Errorf("with two running: %+v", r)
	}
	if r := results(t, append(args, "--lambda", "1")...)["cost.faas-infer"]; r.Value != 7.7 {
		t.Errorf("five of A, three of them loaded for 0.9 each: %+v, want 7.7", r)
	}
	got := results(t, "model", "plan", "--variants", variants, "--load", "10", "--latency", "50ms", "--accuracy", "76")
	if r := got["cost.ilp"]; r.Value != 16 || !strings.HasPrefix(r.Note, "1 × C") {
		t.Errorf("76 %% in 50 ms: %+v", r)
	}
}

// Wrong flags and objectives that no variant meets are refused with the flag's name.
func TestModelPlanRefuses(t *testing.T) {
	variants := written(t, "variants.csv", table2)
	for want, flags := range map[string][]string{
		"--load is NaN":     {"--load", "NaN"},
		"--load is -1":      {"--load", "-1"},
		"--latency is 0s":   {"--latency", "0"},
		"--accuracy is 101": {"--accuracy", "101"},
		"--accuracy is NaN": {"--accuracy", "NaN"},
		"--slack is 0.5":    {"--slack", "0.5"},
		"--lambda is -1":    {"--lambda", "-1"},
		"--load is 1e+12: times --slack 1.05 it is more than the 8e+11 requests/s": {"--load", "1e12"},
		"the nearest is row": {"--accuracy", "99"},
		"it takes 15ms of":   {"--latency", "1ms"},
	} {
		root := NewRootCommand()
		root.SetArgs(append([]string{"model", "plan", "--variants", variants, "--load", "10", "--latency", "300ms"}, flags...))
		root.SetOut(&bytes.Buffer{})
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", flags, err, want)
		}
	}
}
