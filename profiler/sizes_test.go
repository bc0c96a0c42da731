package profiler_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
)

// texts takes 10 ms for a row of 128 tokens, which are 256 elements, and 18 ms for two.
func texts() *profiler.Profile {
	return &profiler.Profile{
		Model: "m", Engine: "e", Machine: "n",
		Measurements: []profiler.Measurement{
			{Batch: 1, Threads: 1, Median: 10e3, P95: 10e3, CPU: 10e3, Predicted: true},
			{Batch: 2, Threads: 1, Median: 18e3, P95: 18e3, CPU: 18e3, Predicted: true},
		},
		BySize: &profiler.Sizes{Unit: "tokens", Length: 128, Elements: 256, Times: []profiler.SizeTime{
			{Length: 64, Elements: 128, Factors: []float64{0.5, 0.6}},
			{Length: 128, Elements: 256, Factors: []float64{1}},
			{Length: 256, Elements: 512, Factors: []float64{2, 3}},
		}},
	}
}

func TestSized(t *testing.T) {
	p := texts()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		elements int64
		one, two float64 // ms
		what     string
	}{
		{0, 10, 18, "unknown"},
		{256, 10, 18, "the profile's own"},
		{512, 20, 54, "a known one"},
		{384, 15, 32.4, "between two: on the line for one row, and below it for two, whose times grow faster"},
		{8, 5, 10.8, "below the smallest"},
		{1024, 40, 212.4, "above the largest: two rows take 3 + (3−1)·2 = 7 times on the line, and 11.8 on the parabola"},
	} {
		sized := p.Sized(c.elements)
		for i, want := range []float64{c.one, c.two} {
			if got := sized.Measurements[i].Median / 1000; math.Abs(got-want) > 1e-6 {
				t.Errorf("%s: a batch of %d takes %g ms, want %g", c.what, i+1, got, want)
			}
		}
		if err := sized.Validate(); err != nil {
			t.Error(err)
		}
	}
	if p.Measurements[0].Median != 10e3 {
		t.Error("the profile itself has changed")
	}
	for elements, want := range map[int64]int64{1: 128, 128: 128, 129: 256, 512: 512, 513: 1024} {
		if got := p.BySize.Class(elements); got != want {
			t.Errorf("%d elements are of the class %d, want %d", elements, got, want)
		}
	}
}

// Times that are a sum of a constant, a part in proportion to the length and one to its square are met at all lengths, and
// ones that were measured with errors neither fall nor leave the line between two lengths far.
func TestTimesBetweenSizes(t *testing.T) {
	exact := func(n int64) float64 { return 3 + 0.1*float64(n) + 1e-4*float64(n*n) }
	p := texts()
	noisy := texts()
	p.BySize.Times, noisy.BySize.Times = nil, nil
	for i, n := range []int64{16, 32, 64, 128, 256, 512} {
		p.BySize.Times = append(p.BySize.Times, profiler.SizeTime{Length: n, Elements: 2 * n, Factors: []float64{exact(n) / exact(128)}})
		off := 1 + 0.05*float64(i%2*2-1)
		noisy.BySize.Times = append(noisy.BySize.Times, profiler.SizeTime{Length: n, Elements: 2 * n, Factors: []float64{off * exact(n) / exact(128)}})
	}
	before := 0.0
	for n := int64(16); n <= 2048; n++ {
		want := exact(n) / exact(128)
		if got := p.SizeFactor(1, 0, 2*n); math.Abs(got-want) > 1e-9*want {
			t.Fatalf("%d tokens take %v times as long, want %v", n, got, want)
		}
		got := noisy.SizeFactor(1, 0, 2*n)
		if got < before || n <= 512 && math.Abs(got-want) > 0.15*want {
			t.Errorf("by times with errors %d tokens take %v times as long, %v before; without, %v", n, got, before, want)
		}
		before = got
	}
}

func TestReach(t *testing.T) {
	p := texts()
	within := func(limit time.Duration) func(*profiler.Profile) bool {
		return func(p *profiler.Profile) bool {
			exec, ok := p.ExecTime(1, profiler.Share{CPU: 1000})
			return ok && exec <= limit
		}
	}
	// 16.5 ms with the margin of a tenth are 15 ms, 1.5 times those of 128 tokens: 192 tokens.
	for limit, want := range map[time.Duration]int64{time.Millisecond: 0, 16500 * time.Microsecond: 192, time.Second: 256} {
		if got, all := p.Reach(within(limit)); got != want || all != (want == 256) {
			t.Errorf("%v reach %d, all %v; want %d", limit, got, all, want)
		}
	}
}

func TestSizesAreKept(t *testing.T) {
	text, err := json.Marshal(texts())
	if err != nil {
		t.Fatal(err)
	}
	var p profiler.Profile
	if err := json.Unmarshal(text, &p); err != nil || p.BySize == nil || p.BySize.Times[2].Factors[1] != 3 {
		t.Errorf("%+v, %v", p.BySize, err)
	}
	for why, spoil := range map[string]func(*profiler.Sizes){
		"the sizes are empty":            func(s *profiler.Sizes) { s.Times = nil },
		"out of order":                   func(s *profiler.Sizes) { s.Times[2].Elements = 7 },
		"has no times":                   func(s *profiler.Sizes) { s.Times[0].Factors = nil },
		"the size 64 has a factor of -1": func(s *profiler.Sizes) { s.Times[0].Factors[0] = -1 },
	} {
		p := texts()
		if spoil(p.BySize); p.Validate() == nil || !strings.Contains(p.Validate().Error(), why) {
			t.Errorf("%s: %v", why, p.Validate())
		}
	}
	old := strings.Replace(string(text), `"bySize"`, `"other"`, 1)
	var before profiler.Profile
	if err := json.Unmarshal([]byte(old), &before); err != nil || before.Validate() != nil || before.Sized(512) != &before {
		t.Errorf("a profile from before: %v", err)
	}
}
