package registration

import (
	"bytes"
	"encoding/csv"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// registered is a variant with an accuracy of hits in 100 rows.
func registered(name string, generated bool, ms float64, hits int) Registered {
	accuracy := ShareOf(hits, 100)
	model, _, _ := strings.Cut(name, "-")
	return Registered{Model: model, Name: name, File: name + ".onnx", Generated: generated, Hash: "h", Accuracy: &accuracy, LatencyMS: ms, RPS: 1000 / ms, LoadMS: 3, MemoryMB: 80}
}

func TestDrop(t *testing.T) {
	original := registered("a", false, 10, 90)
	change := func(how func(*Registered)) Registered {
		r := registered("a-int8", true, 4, 89)
		how(&r)
		return r
	}
	agreement := func(hits int) func(*Registered) {
		return func(r *Registered) {
			s := ShareOf(hits, 100)
			r.Accuracy, r.Agreement = nil, &s
		}
	}
	for want, r := range map[string]Registered{
		"":                         change(func(*Registered) {}),
		"rows with NaN":            change(func(r *Registered) { r.NaNRows = 3 }),
		"it is not a tenth faster": change(func(r *Registered) { r.LatencyMS, r.RPS = 9.5, 105 }),
		"it loses 11.0 points":     change(func(r *Registered) { s := ShareOf(79, 100); r.Accuracy = &s }),
		"answers only 80.0 % of":   change(agreement(80)),
	} {
		if got := Drop(&original, &r, 5); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for name, r := range map[string]Registered{
		"slower alone, faster in batches": change(func(r *Registered) { r.LatencyMS = 11 }),
		"more accurate":                   change(func(r *Registered) { s := ShareOf(99, 100); r.Accuracy = &s }),
		"in agreement":                    change(agreement(95)),
	} {
		if got := Drop(&original, &r, 5); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Generated variants that others dominate go. Registered models stay, whatever they are.
func TestDropDominated(t *testing.T) {
	names := func(all []Registered) (out []string) {
		for _, r := range all {
			out = append(out, r.Name)
		}
		return out
	}
	r := Registration{Variants: []Registered{
		registered("big", false, 10, 90), registered("big-int8", true, 4, 88), registered("big-int8-weights", true, 6, 87),
		registered("small", false, 3, 89), registered("bad", false, 20, 50),
	}}
	r.DropDominated()
	if got := names(r.Variants); !slices.Equal(got, []string{"big", "small", "bad"}) || len(r.Dropped) != 2 || r.Dropped[0].Name != "big-int8" || !strings.Contains(r.Dropped[0].Reason, "small is at least") {
		t.Errorf("%q, %+v", got, r.Dropped)
	}
	// Without accuracies, the agreement of one model's variants counts, and small's are others.
	unknown := Registration{Variants: []Registered{
		registered("big", false, 10, 1), registered("big-int8", true, 4, 97), registered("big-int8-weights", true, 6, 96), registered("small", false, 3, 1),
	}}
	for i := range unknown.Variants {
		v := &unknown.Variants[i]
		if v.Generated {
			v.Agreement = v.Accuracy
		}
		v.Accuracy = nil
	}
	unknown.DropDominated()
	if got := names(unknown.Variants); !slices.Equal(got, []string{"big", "big-int8", "small"}) {
		t.Errorf("%q", got)
	}
}

func TestRegistrationRoundTrips(t *testing.T) {
	stated := 70.6
	r := &Registration{Key: "k", Machine: "m", Engine: "e", Data: "d", Metric: Top1, Variants: []Registered{registered("a", false, 10, 90), registered("a-int8", true, 4, 89)},
		Dropped: []Dropped{{"a", "a-int8-weights", "slow"}}}
	r.Variants[1].Accuracy, r.Variants[1].Stated = nil, &stated
	text, err := yaml.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(text)
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("%+v, %v", got, err)
	}
	var table bytes.Buffer
	if err := WriteVariants(&table, r.Table()); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&table).ReadAll()
	if err != nil || len(rows) != 3 || !slices.Equal(rows[0], Columns) || rows[2][8] != "70.6" || rows[1][9] != "1" || rows[1][3] != "inactive" {
		t.Errorf("%q, %v", rows, err)
	}
	for change, want := range map[string]string{
		"latency_ms: 10/latency_ms: 0": "variants[0].latency_ms is 0",
		"value: 90/value: 101":         "variants[0].accuracy is 101",
		"name: a-int8\n/name: a\n":     `variants[1]: the name "a" is there twice`,
		"machine:/machinery:":          "machinery",
		"file: a.onnx/file: ''":        "file is missing",
	} {
		old, fresh, _ := strings.Cut(change, "/")
		if _, err := Read(bytes.Replace(text, []byte(old), []byte(fresh), 1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", change, err, want)
		}
	}
	if _, err := Read([]byte("variants: []\n")); err == nil {
		t.Error("no variant")
	}
}
