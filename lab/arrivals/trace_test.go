package arrivals

import (
	"bytes"
	"compress/gzip"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The built-in traces have the numbers of their sources: 10,080 minutes, and the sums.
func TestBuiltin(t *testing.T) {
	week, err := OpenTrace("azure-7d")
	if err != nil {
		t.Fatal(err)
	}
	if week.Length() != 7*24*time.Hour || week.Step != time.Minute || week.Name != "azure-7d" {
		t.Errorf("%v in steps of %v", week.Length(), week.Step)
	}
	for name, want := range map[string][2]float64{"sporadic": {1529, 16}, "periodic": {31211, 15}, "bursty": {40786, 16}} {
		c, err := week.Column(name)
		if err != nil || c.Total() != want[0] || c.Max() != want[1] || c.Times != nil {
			t.Errorf("%s: %v requests, at most %v a minute (%v)", name, c.Total(), c.Max(), err)
		}
	}
	if _, err := week.Column("rare"); err == nil || !strings.Contains(err.Error(), "it has sporadic, periodic, bursty") {
		t.Errorf("got %v", err)
	}
	ramp, err := OpenTrace("osvt-ramp")
	if err != nil {
		t.Fatal(err)
	}
	c, err := ramp.Column("mobilenet")
	if err != nil || ramp.Step != 0 || len(c.Counts) != 200 || c.Counts[0] != 4 {
		t.Errorf("%+v", ramp)
	}
	for _, name := range BuiltinTraces() {
		if text, err := data.ReadFile(builtin[name]); err != nil || len(text) > 80<<10 {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
}

func TestRead(t *testing.T) {
	const text = "\ufeff# a comment\r\nminute, first one ,\"b\"\r\n7,1,0\r\n\r\n8,2.5,3\r\n"
	tr, err := readTrace("dir/x.csv", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if tr.Name != "x" || tr.Step != time.Minute || tr.Length() != 2*time.Minute || tr.Columns[0].Name != "first-one" ||
		!slices.Equal(tr.Columns[0].Counts, []float64{1, 2.5}) || !slices.Equal(tr.Columns[1].Counts, []float64{0, 3}) {
		t.Errorf("%+v", tr)
	}
	file := filepath.Join(t.TempDir(), "packed.csv.gz")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write([]byte(text))
	z.Close()
	if err := os.WriteFile(file, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if tr, err = OpenTrace(file); err != nil || tr.Name != "packed" || len(tr.Columns) != 2 {
		t.Errorf("%+v, %v", tr, err)
	}
	if _, err := OpenTrace(filepath.Join(t.TempDir(), "absent")); err == nil || !strings.Contains(err.Error(), "one of azure-7d, osvt-ramp") {
		t.Errorf("got %v", err)
	}
}

func TestReadTimestamps(t *testing.T) {
	for _, text := range []string{
		"TIMESTAMP,Tokens\n2023-11-16 18:15:46.5000000,374\n2023-11-16 18:15:46.75,1\n2023-11-16 18:18:46.5,9\n",
		"time\n2023-11-16T18:15:46.5Z\n2023-11-16T18:15:46.75Z\n2023-11-16T18:18:46.5Z\n",
		"arrived\n1.5\n1.75\n181.5\n",
	} {
		tr, err := readTrace("x.csv", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		c := tr.Columns[0]
		if !slices.Equal(c.Times, []time.Duration{0, 250 * time.Millisecond, 3 * time.Minute}) || !slices.Equal(c.Counts, []float64{2, 0, 0, 1}) || tr.Step != time.Minute {
			t.Errorf("%q: %+v", text, c)
		}
	}
}

func TestWhatIsWrongHasItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "x.csv: the file is empty",
		"# only\n":                     "the file is empty",
		"5\n6\n":                       `line 1: "5" is a number: the first line must name the columns, such as minute,NAME`,
		"a,b\n":                        `line 1: the first column is "a": it must be minute`,
		"minute\n":                     "line 1: there is no column besides the first",
		"minute,,b\n":                  "line 1: a column has no name",
		"minute,b,b\n":                 "line 1: two columns are called b",
		"minute,b\n":                   "there are no lines below the header",
		"time\n":                       "there are no lines below the header",
		"minute,b\n0,1\n0,1\n":         "line 3: 0 follows 0",
		"minute,b\n0,1\n\n3,1\n":       "line 4: 3 follows 0: lines must have no gap",
		"minute,b\n-1,1\n":             `line 2: "-1" is not the number of a line`,
		"minute,b\nx,1\n":              `line 2: "x" is not the number of a line`,
		"minute,b\n0,1,2\n":            "line 2: 3 cells: the header has 2",
		"minute,a,b\n0,1,NaN\n":        `line 2: column b: "NaN" is not a number of requests`,
		"minute,a,b\n0,1,\n":           `line 2: column b: "" is not a number of requests`,
		"minute,a,b\n0,1,-1\n":         `line 2: column b: "-1" is not a number of requests`,
		"minute,a,b\n0,1,+Inf\n":       `line 2: column b: "+Inf" is not a number of requests`,
		"minute,a,b\n0,1,1e13\n":       `column b: "1e13" is not a number of requests: it must be from 0 to 1e+12`,
		"time\nyesterday\n":            `line 2: "yesterday" is not a time`,
		"time\nNaN\n":                  `line 2: "NaN" is not a time`,
		"time\n-1\n":                   `line 2: "-1" is not a time`,
		"time\n5\n4\n":                 "line 3: 4 is before the time of the line above",
		"time\n0\n99999999\n":          "line 3: 99999999 is more than 8784h0m0s after the first request",
		"\x1f\x8bxxxxxxxxxxxxxxxxxxxx": "gzip",
	} {
		if _, err := readTrace("x.csv", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, text := range []string{"minute,a,b\n0,1,2\n1,0,3\n", "time\n0\n5.5\n", "TIMESTAMP,x\n2023-11-16 18:15:46.5,1\n", "step,a\n1,1e3\n", "minute,a\n9223372036854775807,1\n-9223372036854775808,1\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		tr, err := readTrace("f", bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, c := range tr.Columns {
			if len(c.Counts) != len(tr.Columns[0].Counts) || len(c.Counts) == 0 || c.Name == "" {
				t.Fatalf("%+v", c)
			}
			for _, n := range c.Counts {
				if !(n >= 0) || math.IsInf(n, 0) {
					t.Fatalf("a count of %v", n)
				}
			}
			if !slices.IsSorted(c.Times) {
				t.Fatal("times do not ascend")
			}
		}
	})
}
