package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/report"
)

// table2 has the variants of INFaaS' Table 2, the CPU's loaded. The accuracies are chosen for the
// test.
const table2 = `model,variant,hardware,state,latency_ms,rps,load_ms,memory_mb,accuracy,cost
resnet50,A,cpu,active,200,5,900,180,76.1,1
resnet50,B,inferentia,inactive,20,100,4000,180,75.4,3
resnet50,C,gpu,inactive,15,800,2500,900,76.1,16
`

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
	var out bytes.Buffer
	root := NewRootCommand()
	root.SetArgs(append(args, "--json"))
	root.SetOut(&out)
	if err := root.Execute(); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	var r report.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	byName := map[string]report.Result{}
	for _, x := range r.Results {
		byName[x.Name] = x
	}
	return byName
}

func TestModelPick(t *testing.T) {
	variants := written(t, "variants.csv", table2)
	queries := written(t, "queries.csv", "accuracy,latency_ms,model\n,300,\n75,50,\n76,50,resnet50\n80,,\n,10,\n,,vgg16\n")
	got := results(t, "model", "pick", "--variants", variants, "--queries", queries)
	for name, want := range map[string]struct {
		row  float64
		note string
	}{
		"pick.1": {1, "A of resnet50 on cpu, active, 200ms, 0.2 per request; row 3 is at least as accurate"},
		"pick.2": {3, "C of resnet50 on gpu, inactive"}, // 2.5 s + 15 ms is sooner than 4 s + 20 ms.
		"pick.3": {3, "C of resnet50"},
		"pick.4": {0, "none; the nearest is row 3, C of resnet50 on gpu: its accuracy is 76.1 of 80 %"},
		"pick.5": {0, "the nearest is row 3, C of resnet50 on gpu: it takes 15ms of 10ms"},
		"pick.6": {0, "the nearest is row 3, C of resnet50 on gpu: there is no model vgg16, only resnet50"},
	} {
		if r := got[name]; r.Value != want.row || !strings.Contains(r.Note, want.note) {
			t.Errorf("%s is %v, %q; want %v, %q", name, r.Value, r.Note, want.row, want.note)
		}
	}
	if len(got) != 6 {
		t.Errorf("%d results, want 6", len(got))
	}
}

// An error about a table names the flag, the file, the row and the column.
func TestModelPickNamesBadCells(t *testing.T) {
	good, queries := written(t, "good.csv", table2), written(t, "queries.csv", "accuracy,latency_ms,model\n")
	bad := written(t, "bad.csv", table2+"resnet50,D,cpu,active,1,1,1,1,101,1\n")
	asks := written(t, "asks.csv", "accuracy,latency_ms,model\n70,20,\nhigh,20,\n")
	for _, c := range []struct{ variants, queries, want string }{
		{bad, queries, "--variants: " + bad + ": row 4, column accuracy is 101"},
		{good, asks, "--queries: " + asks + `: row 2, column accuracy is "high"`},
		{good + ".none", queries, "--variants: open "},
	} {
		root := NewRootCommand()
		root.SetArgs([]string{"model", "pick", "--variants", c.variants, "--queries", c.queries})
		root.SetOut(&bytes.Buffer{})
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
