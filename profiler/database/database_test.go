package database

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/profiler/operator"
)

const engine, machine = "onnxruntime 1.32.0", "AMD EPYC × 2"

// aRow is row n of some operators.
func aRow(n int) Row {
	return Row{
		Operator: fmt.Sprintf(`Conv[group=%d "x" <b,64> & b]`, n/4), Family: "Conv general",
		Features: operator.Features{FLOPs: int64(n) * 1e9, InBytes: 1, OutBytes: 2, WeightBytes: 3},
		Batch:    1 << (n % 4), Millicores: 1000, Cold: n%8 > 3,
		Median: 12.5 + float64(n)/3, P95: 14, CPU: 12, Spread: 0.02, Runs: 30,
		Engine: engine, Machine: machine, MeasuredAt: time.Unix(1_800_000_000+int64(n), 5).UTC(),
	}
}

func encodeAll(t testing.TB, rows ...Row) []byte {
	t.Helper()
	out := Header()
	for _, r := range rows {
		line, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, line...)
	}
	return out
}

func someRows(n int) (rows []Row) {
	for i := range n {
		rows = append(rows, aRow(i))
	}
	return rows
}

func all(d *Database) (rows []Row) {
	for _, m := range d.Machines() {
		rows = slices.AppendSeq(rows, d.Rows(m.Engine, m.Machine))
	}
	return rows
}

// same compares rows that were added in any order.
func same(t *testing.T, d *Database, want ...Row) {
	t.Helper()
	w := &Database{}
	for _, r := range want {
		w.Add(r)
	}
	if got, want := all(d), all(w); !reflect.DeepEqual(got, want) {
		t.Fatalf("got %d rows\n%+v\nwant %d\n%+v", len(got), got, len(want), want)
	}
}

func TestRoundTrip(t *testing.T) {
	rows := someRows(20)
	rows[3].GPU, rows[4].Machine, rows[5].Engine, rows[6].Noisy = 30, "another", "another 2", true
	rows[6].Operator = "a\nb\t\"{\\\"crc32c\\\":\\\"\" {\"crc32c\":\" \u2028 ⟨b⟩"
	d, damage, err := Decode(encodeAll(t, rows...))
	if err != nil || len(damage) > 0 {
		t.Fatalf("damage %v, error %v", damage, err)
	}
	same(t, d, rows...)
	if d.Len() != 20 {
		t.Errorf("%d rows", d.Len())
	}
}

func TestNewerWins(t *testing.T) {
	var d Database
	r := aRow(1)
	older, newer := r, r
	older.MeasuredAt, older.Median = r.MeasuredAt.Add(-1), 1
	newer.MeasuredAt, newer.Median = r.MeasuredAt.Add(1), 2
	if !d.Add(r) || d.Add(older) || !d.Add(newer) || d.Add(r) {
		t.Error("Add tells otherwise")
	}
	same(t, &d, newer)
	again := newer
	again.Median = 3
	if !d.Add(again) {
		t.Error("of two rows of one time the later added does not stay")
	}
	same(t, &d, again)
}

// A profile from another machine is never used silently.
func TestOthersAreApart(t *testing.T) {
	var d Database
	if d.Lookup(engine, machine, "x") != nil || len(slices.Collect(d.Rows(engine, machine))) > 0 || d.Machines() != nil || d.Len() != 0 {
		t.Error("an empty database is not empty")
	}
	mine, theirs, older := aRow(1), aRow(1), aRow(1)
	older.Noisy = true
	theirs.Machine, older.Engine = "Intel Xeon × 8", "onnxruntime 1.30.0"
	theirs.MeasuredAt = mine.MeasuredAt.Add(time.Hour)
	for _, r := range []Row{mine, theirs, older, aRow(2), aRow(9)} {
		d.Add(r)
	}
	if got := d.Lookup(engine, machine, mine.Operator); !reflect.DeepEqual(got, []Row{mine, aRow(2)}) {
		t.Errorf("got %+v", got)
	}
	if got := slices.Collect(d.Rows(engine, machine)); len(got) != 3 {
		t.Errorf("got %+v", got)
	}
	if got := d.Lookup(engine, theirs.Machine, mine.Operator); !reflect.DeepEqual(got, []Row{theirs}) {
		t.Errorf("asked by name: %+v", got)
	}
	want := []Machine{
		{older.Engine, machine, 1, 1, 1, map[string]int{"Conv general": 1}, older.MeasuredAt, older.MeasuredAt},
		{engine, machine, 3, 0, 2, map[string]int{"Conv general": 3}, mine.MeasuredAt, aRow(9).MeasuredAt},
		{engine, theirs.Machine, 1, 0, 1, map[string]int{"Conv general": 1}, theirs.MeasuredAt, theirs.MeasuredAt},
	}
	if got := d.Machines(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestRowsAreInOrder(t *testing.T) {
	var d Database
	var want []Row
	for _, p := range []point{{1, 500, 0, false}, {4, 500, 0, false}, {1, 500, 0, true}, {1, 1000, 0, false}, {2, 1000, 0, false}, {1, 1000, 10, false}} {
		r := aRow(0)
		r.Batch, r.Millicores, r.GPU, r.Cold = p.batch, p.millicores, p.gpu, p.cold
		want = append(want, r)
	}
	for _, i := range rand.Perm(len(want)) {
		d.Add(want[i])
	}
	if got := d.Lookup(engine, machine, want[0].Operator); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestValidate(t *testing.T) {
	if err := aRow(0).Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Row){
		"has no operator":       func(r *Row) { r.Operator = "" },
		"has no machine":        func(r *Row) { r.Machine = "" },
		"is not UTF-8":          func(r *Row) { r.Family = "\xff" },
		"operator has 65537":    func(r *Row) { r.Operator = strings.Repeat("x", maxKey+1) },
		"batch 0":               func(r *Row) { r.Batch = 0 },
		"0 millicores":          func(r *Row) { r.Millicores = 0 },
		"GPU share of 101":      func(r *Row) { r.GPU = 101 },
		"comes from 0 runs":     func(r *Row) { r.Runs = 0 },
		"work is negative":      func(r *Row) { r.Features.OutBytes = -1 },
		"spread is NaN":         func(r *Row) { r.Spread = math.NaN() },
		"measured at 0001":      func(r *Row) { r.MeasuredAt = time.Time{} },
		"took 0 µs":             func(r *Row) { r.Median = 0 },
		"took NaN µs":           func(r *Row) { r.Median = math.NaN() },
		"took +Inf µs":          func(r *Row) { r.P95 = math.Inf(1) },
		"took -1 µs":            func(r *Row) { r.CPU = -1 },
		"row of xxxxx":          func(r *Row) { r.Operator, r.Runs = strings.Repeat("x", 100)+"\ny", 0 },
		"took 1e+12 µs":         func(r *Row) { r.Median = 1e12 },
		"not between 1 and 104": func(r *Row) { r.Batch = maxBatch + 1 },
	} {
		r := aRow(0)
		change(&r)
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 250 {
			t.Errorf("got error %v, want %q", err, want)
		}
		if text, err := Encode(r); err == nil || text != nil {
			t.Errorf("%s: encoded", want)
		}
	}
}

func TestExportAndMerge(t *testing.T) {
	var d Database
	rows := someRows(8)
	rows[2].Machine = "another"
	for _, r := range rows {
		d.Add(r)
	}
	from := Provenance{ExportedAt: time.Unix(1_800_000_000, 0).UTC(), Commit: "abc", Machine: machine, Note: "a note"}
	text, err := d.Export(from, func(_, m string) bool { return m == machine })
	if err != nil {
		t.Fatal(err)
	}
	back, damage, err := Decode(text)
	if err != nil || len(damage) > 0 {
		t.Fatal(damage, err)
	}
	same(t, back, append(slices.Clone(rows[:2]), rows[3:]...)...)
	if got := back.Provenance(); !reflect.DeepEqual(got, []Provenance{from}) {
		t.Errorf("provenance %+v", got)
	}
	var into Database
	newer, older := rows[0], rows[1]
	newer.MeasuredAt, older.MeasuredAt = newer.MeasuredAt.Add(1), older.MeasuredAt.Add(-1)
	for _, r := range []Row{newer, older, rows[3]} {
		into.Add(r)
	}
	m, taken := into.Merge(back)
	if want := (Merged{Added: 4, Replaced: 1, Older: 1, Same: 1}); m != want || len(taken) != 5 {
		t.Errorf("merged %+v, want %+v; %d taken", m, want, len(taken))
	}
	same(t, &into, append([]Row{newer, rows[1]}, rows[3:]...)...)
	if m, taken := into.Merge(back); m.Added+m.Replaced+len(taken) > 0 {
		t.Errorf("merged twice: %+v", m)
	}
	// A second export has both origins.
	text, err = into.Export(Provenance{Note: "on"}, func(string, string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if back, _, err = Decode(text); err != nil || len(back.Provenance()) != 2 || back.Provenance()[0] != from {
		t.Errorf("provenance %+v, error %v", back.Provenance(), err)
	}
}

func TestNewerFormat(t *testing.T) {
	text := encodeAll(t, someRows(3)...)
	next := bytes.Replace(bytes.TrimSuffix(Header(), newline), []byte(`"format":1`), []byte(`"format": 2`), 1)
	summed := next[overhead:]
	line := fmt.Appendf(nil, "%s%x%s%s\n", begin, sum(summed), between, summed)
	for name, data := range map[string][]byte{"first": append(line, text...), "last": append(slices.Clone(text), line...)} {
		_, _, err := Decode(data)
		var newer *NewerError
		if !errors.As(err, &newer) || newer.Format != 2 || !strings.Contains(err.Error(), "newer") {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := Repair(data); !errors.As(err, &newer) {
			t.Errorf("%s: repaired: %v", name, err)
		}
	}
	// A line that only resembles a newer format is damage.
	if d, damage, err := Decode(append(bytes.Replace(line, []byte("2,"), []byte("3,"), 1), text...)); err != nil || len(damage) != 1 || d.Len() != 3 {
		t.Errorf("damage %v, error %v", damage, err)
	}
}

func TestForeign(t *testing.T) {
	for _, text := range []string{"model,cpu\n", "\x08\x07\x12", `{"a":1}`, "PK\x03\x04", "\n"} {
		if _, _, err := Decode([]byte(text)); !errors.Is(err, ErrForeign) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"", "\x00\x00\x00", `{"crc`} {
		if d, damage, err := Decode([]byte(text)); err != nil || d.Len() != 0 || (len(damage) > 0) != (text != "") {
			t.Errorf("%q: damage %v, error %v", text, damage, err)
		}
	}
}
