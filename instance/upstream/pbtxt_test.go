package upstream_test

import (
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/upstream"
)

const config = `# A model of ours.
name: "digits"  # its name
backend: "python", max_batch_size: 8;
input [
  { name: "x" data_type: TYPE_FP32 dims: [ 1, -1 ] } # } no end
]
output < name: 'y }' >
dynamic_batching { preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 100 }
parameters: { key: "a" value: { string_value: "max_batch_size: 3 \" }" } }
instance_group [ { count: 2 } ]
version_policy: { latest { num_versions: -1 } }
note: "one "
      'two'
`

func TestFieldsAreFoundAndLeftOut(t *testing.T) {
	fields, err := upstream.PbtxtFields(config)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range fields {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, " "); got != "name backend max_batch_size input output dynamic_batching parameters instance_group version_policy note" {
		t.Errorf("the fields are %s", got)
	}
	if got := upstream.PbtxtValue(fields, "name"); got != "digits" {
		t.Errorf("the name is %q", got)
	}
	if got := upstream.PbtxtValue(fields, "max_batch_size"); got != "8" {
		t.Errorf("the batch size is %q", got)
	}
	rest := upstream.PbtxtWithout(fields, "name", "max_batch_size", "dynamic_batching")
	for _, gone := range []string{"digits", "max_batch_size: 8", "preferred", "max_queue"} {
		if strings.Contains(rest, gone) {
			t.Errorf("%q is still in\n%s", gone, rest)
		}
	}
	for _, kept := range []string{`backend: "python"`, `{ name: "x" data_type: TYPE_FP32 dims: [ 1, -1 ] } # } no end`, `"max_batch_size: 3 \" }"`, "'two'"} {
		if !strings.Contains(rest, kept) {
			t.Errorf("%q is not in\n%s", kept, rest)
		}
	}
	again, err := upstream.PbtxtFields(rest)
	if err != nil || len(again) != len(fields)-3 {
		t.Errorf("what is left has %d fields, %v", len(again), err)
	}
}

func TestWhatIsNoMessage(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: {\n c: 1\n": `line 4: b: '}' is missing`,
		"a: 1\n\nb: [ 1 }":    `line 3: b: expected ']'`,
		"a: \"text\nb: 1":     `line 1: a: a string does not end on its line`,
		"a:":                  `a: it has no value`,
		"{ a: 1 }":            "expected a field's name",
		"a: 1\nb: \"\\":       "does not end",
		"a: }":                "expected a value",
	} {
		if _, err := upstream.PbtxtFields(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzFields(f *testing.F) {
	f.Add(config)
	f.Add("a: \"\\")
	f.Fuzz(func(t *testing.T, text string) {
		fields, err := upstream.PbtxtFields(text)
		if err != nil {
			return
		}
		again, err := upstream.PbtxtFields(upstream.PbtxtWithout(fields))
		if err != nil || len(again) != len(fields) {
			t.Errorf("%q has %d fields; written, %d, %v", text, len(fields), len(again), err)
		}
	})
}
