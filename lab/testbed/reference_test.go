package testbed

import (
	"slices"
	"strings"
	"testing"
)

func TestINFless(t *testing.T) {
	r := INFlessTestbed()
	want := []string{"catdog", "lstm-maxclass-2365", "mobilenet", "resnet-50", "ssd", "textcnn-69"}
	if got := r.Models(); !slices.Equal(got, want) {
		t.Errorf("models %q", got)
	}
	n := 0
	for _, model := range r.Models() {
		for _, c := range r.Configs(model) {
			n++
			// A batch that never filled took seconds.
			if ms := c.Milliseconds; ms > 1000 {
				t.Errorf("%s: %+v", model, c)
			}
		}
	}
	if n != 378 {
		t.Errorf("%d configs", n)
	}
	for _, c := range []struct {
		model  string
		config TestbedConfig
	}{
		{"mobilenet", TestbedConfig{4, 2000, 10, 133.38}},
		{"ssd", TestbedConfig{16, 16000, 0, 574.39}},
	} {
		if !slices.Contains(r.Configs(c.model), c.config) {
			t.Errorf("%s: no %+v", c.model, c.config)
		}
	}
	if got := r.Configs("bert"); got != nil {
		t.Errorf("bert: %+v", got)
	}
}

func TestParseNamesTheLine(t *testing.T) {
	head := strings.Join(columns, ",") + "\n"
	for text, want := range map[string]string{
		"":                                  "must be the header",
		"model,batch\na,1\n":                "wrong number of fields",
		"a,b,c,d,e\n":                       "must be the header",
		head + "m,2,10,1\n":                 "line 2",
		head + "m,0,10,1,5\n":               `cpu_threads is "0"`,
		head + "m,2,101,1,5\n":              `gpu_sm_pct is "101"`,
		head + "m,2,10,x,5\n":               `batch is "x"`,
		head + "m,2,10,1,NaN\n":             `latency_ms is "NaN"`,
		head + ",2,10,1,5\n":                "model is missing",
		head + "m,2,10,1,5\nm,2,10,1,6\n":   "occurs twice",
		head + "m,2,10,1,\"5\nm,2,10,1,6\n": "line",
	} {
		if _, err := ParseTestbed([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
