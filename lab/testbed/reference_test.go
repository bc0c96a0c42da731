package testbed

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
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
			if ms := c.Time.Milliseconds; ms > 1000 || c.Time.Interpolated {
				t.Errorf("%s: %+v", model, c)
			}
			if got, ok := r.Latency(model, c.Batch, c.Millicores, c.GPU); !ok || got != c.Time {
				t.Errorf("%s: %v, %v at what was measured as %+v", model, got, ok, c)
			}
		}
	}
	if n != 378 {
		t.Errorf("%d configs", n)
	}
	for _, c := range []struct {
		model                  string
		batch, millicores, gpu int
		ms                     float64
		interpolated           bool
	}{
		{"mobilenet", 4, 2000, 10, 133.38, false},
		{"mobilenet", 3, 2000, 10, (103.78 + 133.38) / 2, true},
		{"mobilenet", 4, 3000, 10, (133.38 + 122.28) / 2, true},
		{"mobilenet", 4, 2000, 15, (133.38 + 132.03) / 2, true},
		{"mobilenet", 4, 2500, 12, 0.8*(0.75*133.38+0.25*122.28) + 0.2*(0.75*132.03+0.25*118.63), true},
		{"ssd", 16, 16000, 0, 574.39, false},
		{"ssd", 12, 12000, 0, ((398.66+721.73)/2 + (326.00+574.39)/2) / 2, true},
		{"mobilenet", 32, 8000, 10, 0, false},
		{"mobilenet", 4, 2000, 5, 0, false},
		{"mobilenet", 4, 2000, 60, 0, false},
		{"mobilenet", 4, 1000, 10, 0, false},
		{"mobilenet", 0, 2000, 10, 0, false},
		{"mobilenet", 4, 0, 10, 0, false},
		{"mobilenet", 4, 2000, -1, 0, false},
		{"bert", 1, 2000, 0, 0, false},
		{"catdog", 8, 2000, 10, 0, false}, // never filled: 18.6 s
	} {
		got, ok := r.Latency(c.model, c.batch, c.millicores, c.gpu)
		if ok != (c.ms > 0) || math.Abs(got.Milliseconds-c.ms) > 1e-9 || got.Interpolated != c.interpolated {
			t.Errorf("%+v: got %+v, %v", c, got, ok)
		}
	}
	if got := (TestbedTime{Milliseconds: 1.5}).ForSimulation(); got != 1500*time.Microsecond {
		t.Errorf("got %v", got)
	}
}

// Interpolated times lie between measured ones.
func TestInterpolationStaysWithin(t *testing.T) {
	r := INFlessTestbed()
	for _, model := range r.Models() {
		low, high := math.Inf(1), 0.0
		for _, c := range r.Configs(model) {
			low, high = min(low, c.Time.Milliseconds), max(high, c.Time.Milliseconds)
		}
		for batch := 1; batch <= 33; batch += 2 {
			for millicores := 1500; millicores <= 17000; millicores += 1250 {
				for _, gpu := range []int{0, 7, 10, 25, 50, 51} {
					got, ok := r.Latency(model, batch, millicores, gpu)
					if ok && (got.Milliseconds < low-1e-9 || got.Milliseconds > high+1e-9 || gpu == 7 || gpu == 51) {
						t.Errorf("%s ⟨%d, %d, %d⟩: %+v, measured are %v to %v", model, batch, millicores, gpu, got, low, high)
					}
				}
			}
		}
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
	if _, err := parseOperators([]byte("model,device,op,calls,total_us\nm,cpu,Add,0,5\n")); err == nil || !strings.Contains(err.Error(), `calls is "0"`) {
		t.Errorf("got %v", err)
	}
	if _, err := parseOperators([]byte("model,device,op,calls,total_us\nm,cpu,Add,1,-5\n")); err == nil || !strings.Contains(err.Error(), `total_us is "-5"`) {
		t.Errorf("got %v", err)
	}
}

// INFless §3.3, Observation #6 and Fig. 7: functions share operators, and a small
// subset of these takes most of the time. The shares are those of the published
// figures: in ResNet-50 the convolutions take 87 %, not the paper's 95.
func TestFewOperatorsDominate(t *testing.T) {
	lstm, resnet := Operators("lstm-2365", "cpu"), Operators("resnet-50", "cpu")
	if got := part(lstm, "FusedMM", "MatMul"); math.Abs(got-0.76) > 0.005 {
		t.Errorf("LSTM: the products take %.3f", got)
	}
	for _, name := range []string{"ConcatV2", "Mul"} {
		if got := part(lstm, name); got > 0.05 {
			t.Errorf("LSTM: %s takes %.3f", name, got)
		}
	}
	if got := part(resnet, "Conv2D"); math.Abs(got-0.87) > 0.005 {
		t.Errorf("ResNet-50: the convolutions take %.3f", got)
	}
	calls := map[string]int{}
	for _, o := range lstm {
		calls[o.Operator] = o.Calls
	}
	if calls["MatMul"] != 81 || calls["Sum"] != 1 {
		t.Errorf("LSTM: MatMul is called %d times, Sum %d", calls["MatMul"], calls["Sum"])
	}
	// A fifth of the operators takes four fifths of the time, or nearly.
	for _, ops := range [][]OperatorTime{lstm, resnet, Operators("lstm-2365", "gpu")} {
		var names []string
		for _, o := range ops[:(len(ops)+4)/5] {
			names = append(names, o.Operator)
		}
		if got := part(ops, names...); got < 0.79 {
			t.Errorf("%q take %.3f", names, got)
		}
	}
	if got := Operators("bert", "cpu"); got != nil {
		t.Errorf("got %v", got)
	}
	lstm[0].Calls = -1
	if reflect.DeepEqual(lstm, Operators("lstm-2365", "cpu")) {
		t.Error("the figures can be changed")
	}
}

// part returns the part of the time that the named operators take.
func part(ops []OperatorTime, names ...string) float64 {
	var of, all float64
	for _, o := range ops {
		all += o.Microseconds
		if slices.Contains(names, o.Operator) {
			of += o.Microseconds
		}
	}
	return of / all
}
