package report

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func sample() *Report {
	r := New("load", time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("CET", 3600)))
	r.Add("achieved.rps", 15000, "1/s", "")
	r.Add("latency.p99_ms", 12.3456, "ms", "from the intended time")
	return r
}

func TestJSON(t *testing.T) {
	var out strings.Builder
	if err := sample().JSON(&out); err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	decoder := json.NewDecoder(strings.NewReader(out.String()))
	if err := decoder.Decode(&fields); err != nil {
		t.Fatal(err)
	}
	if decoder.More() {
		t.Error("more than one object")
	}
	for _, key := range []string{"command", "machine", "commit", "date", "results"} {
		if _, ok := fields[key]; !ok {
			t.Errorf("no %q in %s", key, out.String())
		}
	}
	if fields["date"] != "2026-11-21T11:00:00Z" {
		t.Errorf("date %v is not in UTC", fields["date"])
	}
	results := fields["results"].([]any)
	first := results[0].(map[string]any)
	if first["name"] != "achieved.rps" || first["value"] != 15000.0 || first["unit"] != "1/s" {
		t.Errorf("first result %v", first)
	}
	if _, ok := first["note"]; ok {
		t.Error("an empty note is printed")
	}
}

// JSON has no infinite numbers. A figure that is one must not lose the others.
func TestJSONOfNoNumber(t *testing.T) {
	r := New("bench", time.Unix(0, 0))
	r.Add("infinite", math.Inf(1), "ms", "")
	r.Add("none", math.NaN(), "ms", "no request was answered")
	r.Add("finite", 1, "ms", "")
	var out strings.Builder
	if err := r.JSON(&out); err != nil {
		t.Fatal(err)
	}
	var read struct{ Results []map[string]any }
	if err := json.Unmarshal([]byte(out.String()), &read); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{
		{"name": "infinite", "value": nil, "unit": "ms", "note": "+Inf"},
		{"name": "none", "value": nil, "unit": "ms", "note": "NaN; no request was answered"},
		{"name": "finite", "value": 1.0, "unit": "ms"},
	}
	if !reflect.DeepEqual(read.Results, want) {
		t.Errorf("%v", read.Results)
	}
}

// A report without results still holds a list, so that programs can read it.
func TestJSONWithoutResults(t *testing.T) {
	var out strings.Builder
	if err := New("load", time.Unix(0, 0)).JSON(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"results": []`) {
		t.Errorf("got %s", out.String())
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	if err := sample().Table(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("got %q", lines)
	}
	if got := strings.Fields(lines[2]); got[0] != "achieved.rps" || got[1] != "15000" || got[2] != "1/s" {
		t.Errorf("first row %q", lines[2])
	}
	if got := strings.Fields(lines[3]); got[1] != "12.35" {
		t.Errorf("second row %q", lines[3])
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.999: "0.999", 1.23456: "1.235", 1234.5: "1234", 15000: "15000", 123456.7: "123457", -20000: "-20000", 0.000012345: "1.234e-05",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is printed as %s, want %s", v, got, want)
		}
	}
}

func TestMachineAndCommit(t *testing.T) {
	if m := Machine(); !strings.Contains(m, " × ") {
		t.Errorf("machine %q", m)
	}
	if Version() == "" {
		t.Error("no commit")
	}
	t.Cleanup(func() { Commit = "" })
	Commit = "abc123"
	if got := New("x", time.Unix(0, 0)).Commit; got != "abc123" {
		t.Errorf("commit %q, want what the linker set", got)
	}
}
