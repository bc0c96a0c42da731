package operators

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/filelock"
	"github.com/faas-infer/faas-infer/profiler/database"
)

const engine, machine = "onnxruntime 1.32.0", "AMD EPYC × 2"

// aRow is row n of writer w.
func aRow(w, n int) database.Row {
	return database.Row{
		Operator: fmt.Sprintf("Conv %d %d", w, n), Family: "Conv", Batch: 1, Millicores: 1000,
		Median: 10, P95: 11, CPU: 10, Runs: 20,
		Engine: engine, Machine: machine, MeasuredAt: time.Unix(1_800_000_000, 0).UTC(),
	}
}

// unexpected fails the test on a repair.
func unexpected(t *testing.T) func(Repair) {
	return func(r Repair) { t.Errorf("repaired: %v", r) }
}

func open(t *testing.T, path string, said func(Repair)) *File {
	t.Helper()
	f, err := Open(path, said)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func add(t *testing.T, f *File, rows ...database.Row) {
	t.Helper()
	if err := f.Append(rows...); err != nil {
		t.Fatal(err)
	}
}

// have checks the rows of this machine in a database.
func have(t *testing.T, db *database.Database, want ...database.Row) {
	t.Helper()
	if got := slices.Collect(db.Rows(engine, machine)); !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v\nwant %+v", got, want)
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func load(t *testing.T, path string) *database.Database {
	t.Helper()
	db, damage, err := Load(path)
	if err != nil || len(damage) > 0 {
		t.Fatalf("damage %v, error %v", damage, err)
	}
	return db
}

func TestAppendAndReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "operators.jsonl")
	have(t, load(t, path))
	f := open(t, path, unexpected(t))
	add(t, f)
	add(t, f, aRow(1, 1), aRow(1, 2))
	have(t, f.Database(), aRow(1, 1), aRow(1, 2))
	bad := aRow(1, 3)
	bad.Batch = 0
	if err := f.Append(aRow(1, 4), bad); err == nil || !strings.Contains(err.Error(), "batch 0") {
		t.Errorf("got %v", err)
	}
	newer := aRow(1, 2)
	newer.MeasuredAt, newer.Median = newer.MeasuredAt.Add(time.Second), 5
	add(t, f, newer)
	have(t, load(t, path), aRow(1, 1), newer)
	have(t, open(t, path, unexpected(t)).Database(), aRow(1, 1), newer)
	for i := range 2 * group {
		add(t, f, aRow(2, i))
	}
	if f.unsynced >= group {
		t.Errorf("%d rows are not synced", f.unsynced)
	}
}

// Two users of the file see each other's rows.
func TestRefresh(t *testing.T) {
	path := filepath.Join(t.TempDir(), "o.jsonl")
	a, b := open(t, path, unexpected(t)), open(t, path, unexpected(t))
	add(t, a, aRow(1, 1))
	add(t, b, aRow(2, 1))
	have(t, b.Database(), aRow(1, 1), aRow(2, 1))
	have(t, a.Database(), aRow(1, 1))
	if err := a.Refresh(); err != nil {
		t.Fatal(err)
	}
	have(t, a.Database(), aRow(1, 1), aRow(2, 1))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	add(t, a, aRow(3, 1))
	have(t, a.Database(), aRow(3, 1))
	add(t, b, aRow(4, 1))
	have(t, load(t, path), aRow(3, 1), aRow(4, 1))
	// An empty file is begun again.
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	add(t, a, aRow(5, 1))
	have(t, load(t, path), aRow(5, 1))
}

// A file cut off at any byte is repaired, and the damaged one stays beside it. Appending
// then works, even for a process that had the file open.
func TestTruncatedAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	first := filepath.Join(dir, "first")
	add(t, open(t, first, unexpected(t)), aRow(1, 1), aRow(1, 2))
	whole := content(t, first)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	for n := range whole {
		path := filepath.Join(dir, fmt.Sprint(n), "o.jsonl")
		told := 0
		other := open(t, path, func(Repair) { told++ })
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path, func(r Repair) {
			told++
			if kept := content(t, r.Kept); !bytes.Equal(kept, whole[:n]) || !strings.Contains(r.String(), path+".damaged") {
				t.Errorf("%d bytes: kept %q, said %v", n, kept, r)
			}
		})
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		add(t, f, aRow(2, 1))
		add(t, other, aRow(3, 1))
		// A line is complete even without its line end.
		var want []database.Row
		cut, end := n > 0, 0
		for i, line := range lines[:3] {
			end += len(line)
			if n >= end-1 && i > 0 {
				want = append(want, aRow(1, i))
			}
			cut = cut && n != end-1 && n != end
		}
		have(t, load(t, path), append(want, aRow(2, 1), aRow(3, 1))...)
		if (told == 1) != cut || told > 1 {
			t.Errorf("%d bytes: said %d times", n, told)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A second damaged file gets another name, and the modes stay.
func TestRepairKeepsAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "o.jsonl")
	var said []Repair
	f := open(t, path, func(r Repair) { said = append(said, r) })
	add(t, f, aRow(1, 1))
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		data := content(t, path)
		if err := os.WriteFile(path, append(data, fmt.Sprintf("damage %d\n", i)...), 0); err != nil {
			t.Fatal(err)
		}
		add(t, f, aRow(2, i))
	}
	have(t, load(t, path), aRow(1, 1), aRow(2, 0), aRow(2, 1), aRow(2, 2))
	for i, name := range []string{".damaged", ".damaged.2", ".damaged.3"} {
		if said[i].Kept != path+name || said[i].Rows != 1+i || !strings.Contains(string(content(t, path+name)), fmt.Sprintf("damage %d", i)) {
			t.Errorf("said %+v", said[i])
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 4 {
		t.Errorf("files %v, error %v", entries, err)
	}
}

func TestLinkStaysALink(t *testing.T) {
	dir := t.TempDir()
	real, path := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(real, []byte("\x00\x00\x00"), 0o644), os.Symlink("real", path)); err != nil {
		t.Fatal(err)
	}
	add(t, open(t, path, nil), aRow(1, 1))
	if to, err := os.Readlink(path); err != nil || to != "real" {
		t.Errorf("link to %q, error %v", to, err)
	}
	have(t, load(t, real), aRow(1, 1))
}

// A file that must not be written stays unchanged.
func TestRefused(t *testing.T) {
	rest := `"format":2,"header":{}}`
	newer := fmt.Sprintf("{\"crc32c\":\"%08x\",%s\n", castagnoli(rest), rest)
	for _, text := range []string{newer, string(database.Header()) + newer + "damage\n", "model,cpu\n1,2\n"} {
		path := filepath.Join(t.TempDir(), "o.jsonl")
		f := open(t, path, unexpected(t))
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		var err error
		for _, try := range []func() error{
			func() error { _, err := Open(path, unexpected(t)); return err },
			func() error { _, _, err := Load(path); return err },
		} {
			if err = try(); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%q: got %v", text, err)
			}
			if newer := (*database.NewerError)(nil); !errors.As(err, &newer) && !errors.Is(err, database.ErrForeign) {
				t.Errorf("%q: got %v", text, err)
			}
		}
		if err := f.Append(aRow(1, 1)); err == nil {
			t.Errorf("%q: appended", text)
		}
		if got := string(content(t, path)); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestPathsThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	pipe, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "file")
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dir: "is not a regular file", pipe: "is not a regular file", filepath.Join(file, "x"): "not a directory", "/proc/x/operators": "mkdir /proc/x"} {
		if f, err := Open(path, nil); err == nil || f != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
		if _, _, err := Load(path); err == nil && !strings.HasPrefix(path, "/proc") {
			t.Errorf("%s: loaded", path)
		}
	}
	huge := filepath.Join(dir, "huge")
	if err := errors.Join(os.WriteFile(huge, nil, 0o600), os.Truncate(huge, MaxSize+1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(huge); err == nil || !strings.Contains(err.Error(), "1024 MiB") {
		t.Errorf("got %v", err)
	}
}

func TestLockedByAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "o.jsonl")
	a, b := open(t, path, unexpected(t)), open(t, path, unexpected(t))
	if err := a.acquire(); err != nil {
		t.Fatal(err)
	}
	if err := lock(b.f, filelock.Exclusive, 0); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v", err)
	}
	if err := a.unlock(); err != nil {
		t.Fatal(err)
	}
	add(t, b, aRow(1, 1))
}

func TestImport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "o.jsonl")
	f := open(t, path, unexpected(t))
	add(t, f, aRow(1, 1))
	var other database.Database
	theirs := aRow(1, 1)
	theirs.Machine = "another"
	for _, r := range []database.Row{aRow(1, 1), aRow(2, 1), theirs} {
		other.Add(r)
	}
	text, err := other.Export(database.Provenance{Note: "a test"}, func(string, string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	from, _, err := database.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []database.Merged{{Added: 2, Same: 1}, {Same: 3}} {
		if got, err := f.Import(from); err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	db := load(t, path)
	have(t, db, aRow(1, 1), aRow(2, 1))
	if got := db.Lookup(engine, "another", theirs.Operator); !reflect.DeepEqual(got, []database.Row{theirs}) || len(db.Provenance()) != 1 {
		t.Errorf("got %+v from %+v", got, db.Provenance())
	}
}

func TestDefaultPath(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/x")
	if got, err := DefaultPath(); err != nil || got != "/x/faas-infer/operators.jsonl" {
		t.Errorf("got %q, %v", got, err)
	}
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "/home/u")
	if got, err := DefaultPath(); err != nil || got != "/home/u/.local/state/faas-infer/operators.jsonl" {
		t.Errorf("got %q, %v", got, err)
	}
	t.Setenv("HOME", "")
	if _, err := DefaultPath(); err == nil || !strings.Contains(err.Error(), "XDG_STATE_HOME") {
		t.Errorf("got %v", err)
	}
}

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for _, text := range []string{"one", "two"} {
		if err := Replace(path, []byte(text), 0o600); err != nil || string(content(t, path)) != text {
			t.Errorf("%q: %v", content(t, path), err)
		}
	}
	if err := Replace(filepath.Join(path, "y"), nil, 0o600); err == nil {
		t.Error("in a file")
	}
	if err := Replace(filepath.Dir(path), nil, 0o600); err == nil {
		t.Error("over a directory")
	}
}
