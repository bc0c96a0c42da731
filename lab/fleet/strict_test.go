package fleet

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func parse(t *testing.T, text string) *Document {
	t.Helper()
	d, err := ParseDocument("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestValues(t *testing.T) {
	d := parse(t, `
name: here
yes: true
rate: 1.5
count: 3
slo: 200ms
week: 7d
memory: 1.5GiB
slos: [100ms, 1s]
one: 50ms
counts: [1, 2]
rates: [0.5, 2]
words: [a, b]
nothing: ~
inner: {x: 1}
list:
- {x: 1}
- {x: 2}
`)
	o := d.Root()
	if s := o.String("name"); s != "here" {
		t.Errorf("name %q", s)
	}
	if !o.Bool("yes", false) || !o.Bool("absent", true) {
		t.Error("booleans")
	}
	if n := o.Number("rate", 0, 2, 9); n != 1.5 {
		t.Errorf("rate %v", n)
	}
	if n := o.Number("nothing", 0, 2, 9); n != 9 || o.Has("nothing") {
		t.Errorf("nothing %v", n)
	}
	if n := o.Int("count", 0, 3, 9); n != 3 {
		t.Errorf("count %v", n)
	}
	if d := o.Duration("slo", 0, time.Second, 9); d != 200*time.Millisecond {
		t.Errorf("slo %v", d)
	}
	if d := o.Duration("week", 0, 8*24*time.Hour, 9); d != 7*24*time.Hour {
		t.Errorf("week %v", d)
	}
	if b := o.Bytes("memory", 9); b != 3<<29 {
		t.Errorf("memory %v", b)
	}
	if ds := o.Durations("slos", 0, time.Hour); !slices.Equal(ds, []time.Duration{100 * time.Millisecond, time.Second}) {
		t.Errorf("slos %v", ds)
	}
	if ds := o.Durations("one", 0, time.Hour); !slices.Equal(ds, []time.Duration{50 * time.Millisecond}) {
		t.Errorf("one %v", ds)
	}
	if ns := o.Ints("counts", 0, 5); !slices.Equal(ns, []int{1, 2}) {
		t.Errorf("counts %v", ns)
	}
	if ns := o.Numbers("rates", 0, 5); !slices.Equal(ns, []float64{0.5, 2}) {
		t.Errorf("rates %v", ns)
	}
	if s := o.Strings("words"); !slices.Equal(s, []string{"a", "b"}) {
		t.Errorf("words %v", s)
	}
	inner, ok := o.Object("inner")
	if !ok || inner.Int("x", 0, 1, 9) != 1 || !o.IsObject("inner") || o.IsObject("one") {
		t.Error("inner")
	}
	if l := o.Objects("list"); len(l) != 2 || l[1].Int("x", 0, 5, 9) != 2 || l[1].Where("x") != "x.yaml:18" {
		t.Error("list")
	}
	o.Done()
	if err := d.Err(); err != nil {
		t.Error(err)
	}
}

// Every error names the line, the key and what to write.
func TestWhatIsWrongIsNamed(t *testing.T) {
	read := func(o *Object) {
		o.Need("name")
		o.String("name")
		o.Bool("yes", false)
		o.Number("rate", 0, 10, 0)
		o.Int("count", 1, 5, 0)
		o.Duration("slo", time.Millisecond, time.Hour, 0)
		o.Durations("slos", time.Millisecond, time.Hour)
		o.Bytes("memory", 0)
		if inner, ok := o.Object("inner"); ok {
			inner.Int("x", 0, 1, 0)
			inner.Done()
		}
		for _, item := range o.Objects("list") {
			item.Int("x", 0, 1, 0)
			item.Done()
		}
		o.Done()
	}
	for text, want := range map[string]string{
		"name: a\nnme: b":                "x.yaml:2: nme: unknown key: the known keys are name, yes, rate",
		"yes: true":                      "x.yaml:1: name: it is missing",
		"name: a\nname: b":               "x.yaml:2: name: the key occurs twice",
		"name: [a]":                      "x.yaml:1: name: it must be a single value",
		"name: a\nyes: 1":                "x.yaml:2: yes: it must be true or false",
		"name: a\nrate: -3":              `x.yaml:2: rate: "-3" is not a number from 0 to 10`,
		"name: a\nrate: .nan":            `x.yaml:2: rate: ".nan" is not a number from 0 to 10`,
		"name: a\nrate: NaN":             `rate: "NaN" is not a number`,
		"name: a\nrate: [1]":             "rate: it must be a number from 0 to 10",
		"name: a\ncount: 2.5":            `count: "2.5" is not a whole number from 1 to 5`,
		"name: a\nslo: 200":              `slo: "200" is not a duration such as 200ms`,
		"name: a\nslo: 1d1h":             `slo: "1d1h" is not a duration`,
		"name: a\nslo: 9e99d":            `slo: "9e99d" is not a duration`,
		"name: a\nslos: [1s, x]":         `x.yaml:2: slos: "x" is not a duration`,
		"name: a\nslos: []":              "slos: the list is empty",
		"name: a\nslos: [[1s]]":          `slos: "" is not a duration`,
		"name: a\nmemory: 5GB":           `memory: "5GB" is not a size above 0, such as 512MiB or 11GiB`,
		"name: a\nmemory: 0MiB":          `memory: "0MiB" is not a size above 0`,
		"name: a\ninner: 5":              "inner: it must be a mapping of keys to values",
		"name: a\ninner: {x: 1, y: 2}":   "x.yaml:2: inner.y: unknown key: the known keys are x",
		"name: a\nlist: {x: 1}":          "list: it must be a list",
		"name: a\nlist: [5]":             "list[0]: it must be a mapping of keys to values",
		"name: a\nlist:\n- x: 1\n- x: 7": `x.yaml:4: list[1].x: "7" is not a whole number from 0 to 1`,
		"name: &a 1\nrate: *a":           "anchors and aliases are not supported",
		"name: a\n? [b]\n: c":            "a key must be a word",
	} {
		d := parse(t, text)
		read(d.Root())
		if err := d.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "the file is empty",
		"- a":                      "must be a mapping",
		"a: 1\n---\nb: 2":          "several documents",
		"a: [":                     "x.yaml: yaml: line 1",
		strings.Repeat("#", 2<<20): "too much",
	} {
		if _, err := ParseDocument("x.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: got %v, want %q", text, err, want)
		}
	}
}

func TestErrorsAreBounded(t *testing.T) {
	d := parse(t, strings.Repeat("a: 1\n", 3)+"b: 1")
	o := d.Root()
	for i := range 30 {
		o.Fail("b", "wrong %d", i)
		o.Fail("b", "wrong 0")
	}
	o.Fail("", "all of it")
	if err := d.Err().Error(); strings.Count(err, "\n") != maxErrors || !strings.HasSuffix(err, "and 23 more") {
		t.Errorf("got %s", err)
	}
}

func FuzzParseDocument(f *testing.F) {
	for _, text := range []string{"a: 1\nb: [1, 2]\nc: {d: e}", "a: &x {b: *x}", "<<: {a: 1}", "a: !!binary x", "? a\n: b", "a: 7d"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := ParseDocument("f", text)
		if err != nil {
			return
		}
		o := d.Root()
		for _, key := range []string{"a", "b", "c"} {
			o.String(key)
			o.Strings(key)
			o.Number(key, 0, 1, 0)
			o.Ints(key, 0, 1)
			if d := o.Duration(key, 0, time.Hour, 0); d < 0 || d > time.Hour {
				t.Errorf("%v is out of range", d)
			}
			if b := o.Bytes(key, 1); b < 1 {
				t.Errorf("%d bytes", b)
			}
			o.Objects(key)
			if inner, ok := o.Object(key); ok {
				inner.Done()
			}
		}
		o.Done()
		_ = d.Err()
	})
}
