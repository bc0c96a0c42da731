package command

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/report"
)

func simulateAsyFunc(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c, out := newSimulateAsyFuncCommand(), &bytes.Buffer{}
	c.SetArgs(args)
	c.SetOut(out)
	c.SetErr(io.Discard)
	c.SilenceUsage = true
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// A bad value is refused with the flag's name, before the work.
func TestSimulateAsyFuncRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--policy", "best"}, {"--each", "2h"}, {"--nodes", "0"}, {"--start", "-1s"}, {"--times", "guessed"}, {"--cluster", "nowhere.yaml"},
	} {
		if _, err := simulateAsyFunc(t, args...); err == nil || !strings.Contains(err.Error(), strings.TrimLeft(args[0], "-")) {
			t.Errorf("%v: %v", args, err)
		}
	}
	if _, err := simulateAsyFunc(t, "--trace", "nowhere.csv"); err == nil || !strings.Contains(err.Error(), "trace") {
		t.Errorf("a trace that is not there: %v", err)
	}
}

// A trace, a cluster and a model of one's own.
func TestSimulateAsyFunc(t *testing.T) {
	dir := t.TempDir()
	trace, nodes := filepath.Join(dir, "load.csv"), filepath.Join(dir, "nodes.yaml")
	for path, text := range map[string]string{
		trace: "minute,a\n0,300\n1,900\n2,300\n", nodes: "machines:\n- {name: n, count: 3, cpu: 18, memory: 16GiB}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := simulateAsyFunc(t, "--policy", "asyfunc, faas-infer", "--model", "resnet-20", "--trace", trace, "--cluster", nodes, "--json")
	if err != nil {
		t.Fatal(err)
	}
	var r report.Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, x := range r.Results {
		got[x.Name] = x.Value
	}
	for _, name := range []string{"memory_change_pct.resnet-20.asyfunc", "memory_change_pct.shared.resnet-20.faas-infer", "slo_violation_pct.resnet-20.batch"} {
		if _, ok := got[name]; !ok {
			t.Errorf("no %s among %v", name, got)
		}
	}
	if got["requests"] != 1500 || got["nodes"] != 3 {
		t.Errorf("%v requests on %v nodes", got["requests"], got["nodes"])
	}
}
