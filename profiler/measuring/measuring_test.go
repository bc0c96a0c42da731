package measuring

import (
	"math"
	"testing"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine loads ONNX Runtime, or says how to get it.
func engine(t *testing.T) {
	t.Helper()
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Abs(want) {
		t.Errorf("%s is %v, not %v", what, got, want)
	}
}

func TestPace(t *testing.T) {
	quietly := taken{wall: []float64{100, 102, 104, 106, 500}, cpu: []float64{100, 100, 100, 100, 100}, pace: 1}
	loudly := taken{wall: []float64{140, 140, 140}, cpu: []float64{140, 140, 140}, pace: 1.4}

	both := summarise([]taken{loudly, quietly}, 3)
	if both.Noisy || both.Runs != 8 {
		t.Errorf("with five quiet samples of eight: %+v", both)
	}
	near(t, "the typical time", both.Typical, 102)
	near(t, "the median as taken", both.Median, 106)
	near(t, "the 95th percentile, the others with it", both.P95, 500)
	near(t, "the processor time", both.CPU, 100)
	near(t, "the pace", both.Pace, 1.2)

	only := summarise([]taken{loudly}, 3)
	if !only.Noisy {
		t.Error("without a quiet sample it is noisy")
	}
	near(t, "1.4 times as long at 1.4 times the pace", only.Typical, 100)
}

func TestCalls(t *testing.T) {
	c := Calls{Base: 3, Tensor: 0.5, Node: 0.2}
	near(t, "one input and one output", c.Of(1, 1), 3)
	near(t, "three inputs and three outputs", c.Of(3, 3), 4)
	near(t, "no input", c.Of(0, 1), 3)
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"2048K": 2 << 20, "105M": 105 << 20, "64": 64, "": 0, "-1K": 0, "1G": 0, "K": 0} {
		if got := bytesIn(text); got != want {
			t.Errorf("%q is %d bytes, not %d", text, got, want)
		}
	}
	c := ReadCaches()
	if c.Own <= 0 || c.Last < c.Own || c.sample() <= 0 {
		t.Errorf("caches %+v", c)
	}
}

func TestCopiesFor(t *testing.T) {
	for _, c := range []struct {
		micros  int
		weights int64
		want    int
	}{
		{10, 0, 8}, {299, 3 << 20, 8}, {299, 4 << 20, 4}, {299, 13 << 20, 1}, {301, 1 << 20, 4},
		{1500, 1 << 20, 2}, {1500, 12 << 20, 2}, {1500, 13 << 20, 1}, {4000, 0, 1},
	} {
		if got := copiesFor(duration(c.micros), c.weights); got != c.want {
			t.Errorf("%d µs and %d MiB: %d copies, not %d", c.micros, c.weights>>20, got, c.want)
		}
	}
}
