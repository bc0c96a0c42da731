package accuracy

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// execute runs faas-infer-lab accuracy with args.
func execute(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	c := NewCommand()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(io.Discard)
	err = c.ExecuteContext(t.Context())
	return out.String(), err
}

// accuracyRunFile writes a file with an output of "accuracy --json".
func accuracyRunFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// One row takes 2 ms and then 2.5 ms: |2 − 2.5|/2.5 = 20 %. Another takes 4 ms twice. The
// third is in one run only.
func TestRepeatability(t *testing.T) {
	first := accuracyRunFile(t, `{"results": [{"name": "error_pct.all", "value": 3}, {"name": "row.m.1.c500.b2.measured_ms", "value": 2},
		{"name": "row.m.1.c1000.b2.measured_ms", "value": 4}, {"name": "row.m.1.c2000.b2.measured_ms", "value": 9}]}`)
	second := accuracyRunFile(t, `{"results": [{"name": "row.m.1.c1000.b2.measured_ms", "value": 4}, {"name": "row.m.1.c500.b2.measured_ms", "value": 2.5}]}`)
	out, err := execute(t, "repeatability", first, second)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"repeat_pct.m.1 10 %", "repeat_pct.all.c500 20 %", "repeat_pct.all.c1000 0 %", "repeat_pct.all 10 % 2 rows, bias -10.0 %; 1 rows in one run only",
		"repeat_pct.worst 20 % m.1 at a batch of 2 on 500m"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

func TestRepeatabilityRefuses(t *testing.T) {
	good := accuracyRunFile(t, `{"results": [{"name": "row.m.c500.b2.measured_ms", "value": 2}]}`)
	for text, want := range map[string]string{
		"":                "empty or cut off",
		`{"results": [`:   "empty or cut off",
		"model batch CPU": "accuracy --json",
		`{"results": []}`: "no measured rows",
		`{"results": [{"name": "row.m.c500.measured_ms", "value": 2}]}`:    "row.MODEL.cMILLICORES.bBATCH",
		`{"results": [{"name": "row.m.c500.b4.measured_ms", "value": 2}]}`: "share to compare",
		`{"results": [{"name": "row.m.c500.b2.measured_ms", "value": 0}]}`: "cannot be compared",
	} {
		if _, err := execute(t, "repeatability", good, accuracyRunFile(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := execute(t, "repeatability", good, "no-such-file.json"); err == nil || !strings.Contains(err.Error(), "no-such-file.json") {
		t.Error(err)
	}
}
