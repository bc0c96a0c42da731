package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
)

// profileCommands are the commands under test.
var profileCommands = map[string]func() *cobra.Command{
	"export": newProfileExportCommand, "import": newProfileImportCommand, "list": newProfileListCommand,
}

// runProfile runs one of them and returns what it printed.
func runProfile(t *testing.T, in []byte, name string, args ...string) (out, errs string, err error) {
	t.Helper()
	c := profileCommands[name]()
	var o, e bytes.Buffer
	c.SetIn(bytes.NewReader(in))
	c.SetOut(&o)
	c.SetErr(&e)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	err = c.ExecuteContext(t.Context())
	return o.String(), e.String(), err
}

// profileRows makes a database of rows and returns its path.
func profileRows(t *testing.T, rows ...database.Row) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "operators.jsonl")
	f, err := operators.Open(path, nil)
	if err == nil {
		err = errors.Join(f.Append(rows...), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// profileRow is a row of this machine.
func profileRow(operator string, batch int) database.Row {
	return database.Row{
		Operator: operator, Family: strings.Fields(operator)[0], Batch: batch, Millicores: 1000, Median: 5, P95: 6, CPU: 5, Runs: 20,
		Engine: onnxruntime.Name(), Machine: report.Machine(), MeasuredAt: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC),
	}
}

func wantInOrder(t *testing.T, text string, want ...string) {
	t.Helper()
	rest := text
	for _, w := range want {
		_, after, found := strings.Cut(rest, w)
		if !found {
			t.Fatalf("%q is not in (its place in)\n%s", w, text)
		}
		rest = after
	}
}

// Rows move from one database to another in one file. Rows of another machine are kept and
// listed as not used.
func TestProfileExportImportList(t *testing.T) {
	theirs := profileRow("Conv 1", 4)
	theirs.Machine, theirs.Engine, theirs.Noisy = "Another × 8", "onnxruntime 0.1", true
	from := profileRows(t, profileRow("Conv 1", 1), profileRow("Conv 1", 2), profileRow("Gemm 1", 1), theirs)
	to, file := profileRows(t, profileRow("Conv 1", 1)), filepath.Join(t.TempDir(), "export.jsonl")

	out, _, err := runProfile(t, nil, "export", file, "--database", from, "--note", "a quiet night")
	if err != nil {
		t.Fatal(err)
	}
	wantInOrder(t, out, "Wrote "+file, "3 rows of 2 operators")
	if _, _, err := runProfile(t, nil, "export", file, "--database", from); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("replaced: %v", err)
	}
	if _, _, err := runProfile(t, nil, "export", file, "--database", from, "--note", "a quiet night", "--force"); err != nil {
		t.Error(err)
	}

	out, _, err = runProfile(t, nil, "import", file, "--database", to)
	if err != nil {
		t.Fatal(err)
	}
	// Which machine comes first depends on this one's name.
	for _, machine := range [][]string{{"Another × 8, onnxruntime 0.1: 1 rows", "not used here"}, {report.Machine(), "used here"}} {
		wantInOrder(t, out, append(append([]string{"a quiet night"}, machine...),
			"3 rows are new, 0 replace", "1 were here", "Predictions here do not use rows of another engine or machine")...)
	}
	db, _, err := operators.Load(to)
	if err != nil || len(db.Lookup(onnxruntime.Name(), report.Machine(), "Conv 1")) != 2 || len(db.Lookup(theirs.Engine, theirs.Machine, "Conv 1")) != 1 {
		t.Errorf("%d rows, error %v", db.Len(), err)
	}

	out, _, err = runProfile(t, nil, "list", "--database", to)
	if err != nil {
		t.Fatal(err)
	}
	table := strings.Join(strings.Fields(out), " ")
	wantInOrder(t, table, "4 rows", "MACHINE ENGINE OPERATORS ROWS NOISY", "Another × 8 onnxruntime 0.1 1 1 1 2026-11-21 – 2026-11-21 no")
	wantInOrder(t, table, report.Machine()+" "+onnxruntime.Name()+" 2 3 0 2026-11-21 – 2026-11-21 yes")
	wantInOrder(t, table, report.Machine()+", "+onnxruntime.Name(), "Conv 2", "Gemm 1", "Imported exported", "a quiet night")

	out, _, err = runProfile(t, nil, "list", "--database", to, "--json")
	var l listed
	if err = errors.Join(err, json.Unmarshal([]byte(out), &l)); err != nil {
		t.Fatal(err)
	}
	if l.Rows != 4 || len(l.Machines) != 2 || len(l.Provenance) != 1 || l.Database != to || l.Machine != report.Machine() {
		t.Errorf("got %+v", l)
	}
	for _, m := range l.Machines {
		if m.Used != (m.Machine == report.Machine()) || m.Used && !reflect.DeepEqual(m.Families, map[string]int{"Conv": 2, "Gemm": 1}) {
			t.Errorf("got %+v", m)
		}
	}
}

// export can write a part of the rows to standard output.
func TestProfileExportToStandardOutput(t *testing.T) {
	theirs := profileRow("Conv 1", 4)
	theirs.Machine = "Another × 8"
	from, to := profileRows(t, profileRow("Conv 1", 1), theirs), filepath.Join(t.TempDir(), "new", "operators.jsonl")
	for _, args := range [][]string{{"--machine", "Another × 8"}, {"-", "--machine", "Another × 8", "--engine", onnxruntime.Name()}} {
		out, _, err := runProfile(t, nil, "export", append(args, "--database", from)...)
		if err != nil || strings.Contains(out, report.Machine()+`","measuredAt`) {
			t.Fatalf("error %v, out %s", err, out)
		}
		if _, _, err := runProfile(t, []byte(out), "import", "-", "--database", to); err != nil {
			t.Fatal(err)
		}
	}
	db, _, err := operators.Load(to)
	if err != nil || db.Len() != 1 || len(db.Lookup(theirs.Engine, theirs.Machine, "Conv 1")) != 1 {
		t.Errorf("%d rows, error %v", db.Len(), err)
	}
}

func TestProfileListOfNothing(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	out, _, err := runProfile(t, nil, "list")
	if err != nil || !strings.Contains(out, "operators.jsonl: 0 rows") || !strings.Contains(out, "faas-infer profile operators") {
		t.Errorf("error %v, out %s", err, out)
	}
	out, _, err = runProfile(t, nil, "list", "--json")
	if err != nil || !strings.Contains(out, `"machines": []`) || !strings.Contains(out, `"provenance": []`) {
		t.Errorf("error %v, out %s", err, out)
	}
}

// The intact rows of a damaged file are used, and the damaged lines are named.
func TestProfileDamaged(t *testing.T) {
	from := profileRows(t, profileRow("Conv 1", 1), profileRow("Conv 1", 2))
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, strings.Repeat("damage\n", 12)...)
	if err := os.WriteFile(from, text, 0o644); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "o.jsonl")
	out, _, err := runProfile(t, nil, "import", from, "--database", to)
	if err == nil || !strings.Contains(err.Error(), "12 lines of "+from) || !strings.Contains(err.Error(), "line 4 (6 bytes") || !strings.Contains(err.Error(), "and 2 more") || !strings.Contains(out, "2 rows are new") {
		t.Errorf("error %v, out %s", err, out)
	}
	out, errs, err := runProfile(t, nil, "list", "--database", from)
	if err != nil || !strings.Contains(errs, from+" is damaged") || !strings.Contains(out, "2 rows") {
		t.Errorf("error %v, out %s, errs %s", err, out, errs)
	}
	if got, err := os.ReadFile(from); err != nil || !bytes.Equal(got, text) {
		t.Errorf("list has changed the file: %v", err)
	}
}

func TestProfileDatabaseRefuses(t *testing.T) {
	dir := t.TempDir()
	path, foreign := profileRows(t, profileRow("Conv 1", 1)), filepath.Join(dir, "x.csv")
	empty := profileRows(t)
	if err := os.WriteFile(foreign, []byte("a,b\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"has no such rows", []string{"export", "--database", path, "--machine", "nobody's"}},
		{"has no such rows", []string{"export", "--database", filepath.Join(dir, "absent")}},
		{"is the database itself", []string{"export", path, "--database", path, "--force"}},
		{"is not a regular file", []string{"export", dir, "--database", path, "--force"}},
		{"no such file", []string{"export", filepath.Join(dir, "no", "x"), "--database", path}},
		{"no such file", []string{"import", filepath.Join(dir, "absent"), "--database", path}},
		{"is not a regular file", []string{"import", dir, "--database", path}},
		{"does not hold operator profiles", []string{"import", foreign, "--database", path}},
		{"does not hold operator profiles", []string{"import", "-", "--database", path}},
		{empty + " has no intact row", []string{"import", empty, "--database", path}},
		{"does not hold operator profiles", []string{"import", path, "--database", foreign}},
		{"does not hold operator profiles", []string{"list", "--database", foreign}},
		{"does not hold operator profiles", []string{"export", "--database", foreign}},
	} {
		if _, _, err := runProfile(t, []byte("a,b\n"), c.args[0], c.args[1:]...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.args, err, c.want)
		}
	}
	if text, err := os.ReadFile(foreign); err != nil || string(text) != "a,b\n" {
		t.Errorf("became %q: %v", text, err)
	}
}
