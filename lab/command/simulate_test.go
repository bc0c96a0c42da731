package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/baselines"
)

const smallScenario = `
about: "one function"
kind: run
cluster: testbed
duration: 20s
warmup: 10s
functions:
  - {name: textcnn, model: textcnn-69, size: 11MiB, slo: 50ms, arrivals: {poisson: 100}}
`

// simulated runs the command and returns what it prints.
func simulated(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := newSimulateCommand()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// small writes a file with a small scenario and returns its name.
func small(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "small.yaml")
	if err := os.WriteFile(name, []byte(smallScenario), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestSimulate(t *testing.T) {
	file, dir := small(t), filepath.Join(t.TempDir(), "plots")
	text, err := simulated(t, file, "--policy", "infless,faas-infer", "--seed", "7", "--plot", dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"simulate small: one function", "seed 7", "SLO missed %", "\ninfless ", "\nfaas-infer "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	drawings, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil || len(drawings) != 3 {
		t.Errorf("drawings %q, %v", drawings, err)
	}
}

// The output is one object with each policy once, and is the same for the same seed.
func TestSimulateJSON(t *testing.T) {
	file := small(t)
	read := func(args ...string) map[string]float64 {
		text, err := simulated(t, append([]string{file, "--json"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		var r report.Report
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if r.Command != "simulate small" {
			t.Errorf("command %q", r.Command)
		}
		values := map[string]float64{}
		for _, x := range r.Results {
			if _, twice := values[x.Name]; twice {
				t.Errorf("%s is there twice", x.Name)
			}
			values[x.Name] = x.Value
		}
		return values
	}
	first := read("--policy", "batch,all,batch")
	for _, name := range baselines.Names() {
		if _, ok := first["slo_violation_pct.small."+name]; !ok {
			t.Errorf("nothing of %s", name)
		}
	}
	for name, v := range read() {
		if first[name] != v {
			t.Errorf("%s is %v, was %v", name, v, first[name])
		}
	}
}

func TestSimulateBadInput(t *testing.T) {
	file := small(t)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"0 scenarios", "testbed-osvt", "coldstart"}},
		{[]string{"testbed-osvt", "scale"}, []string{"2 scenarios"}},
		{[]string{"nothing"}, []string{"nothing", "testbed-osvt"}},
		{[]string{file, "--policy", "best"}, []string{`"best"`, "--policy", "infless-op1.5", "faas-infer", "all"}},
		{[]string{file, "--duration", "-1s"}, []string{"--duration -1s", "more than 0"}},
		{[]string{file, "--duration", "0s"}, []string{"--duration 0s", "the scenario's duration applies"}},
		{[]string{file, "--cluster", "none.yaml"}, []string{"none.yaml"}},
		{[]string{"traces", "--trace", "none.csv"}, []string{"none.csv"}},
		{[]string{file, "--plot", file}, []string{"--plot", "small.yaml"}},
		{[]string{file, "--plot", "/proc"}, []string{"--plot: the directory is not writable", "/proc"}},
	} {
		text, err := simulated(t, c.args...)
		if err == nil {
			t.Errorf("%q is taken:\n%s", c.args, text)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: no %q in %q", c.args, want, err)
			}
		}
	}
}

// The help lists policies, scenarios and flags.
func TestSimulateHelp(t *testing.T) {
	text, err := simulated(t, "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range append(baselines.Names(), "testbed-qa", "one-machine", "--trace", "my-load.csv") {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the help", want)
		}
	}
}
