package onnxruntime

import (
	"slices"
	"testing"
	"time"
)

// The example of MeasureLoads by hand, and noise: no part takes less than nothing.
func TestDivideLoads(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		whole  time.Duration
		blocks []time.Duration
		want   Loads
	}{
		{8 * ms, []time.Duration{3 * ms, 4 * ms, 5 * ms}, Loads{2 * ms, []time.Duration{ms, 2 * ms, 3 * ms}}},
		{20 * ms, []time.Duration{3 * ms, 4 * ms}, Loads{0, []time.Duration{3 * ms, 4 * ms}}},
		{ms, []time.Duration{3 * ms, 9 * ms}, Loads{ms, []time.Duration{2 * ms, 8 * ms}}},
		{5 * ms, []time.Duration{5 * ms}, Loads{0, []time.Duration{5 * ms}}},
	} {
		if got := divideLoads(test.whole, slices.Clone(test.blocks)); got.Segment != test.want.Segment || !slices.Equal(got.Blocks, test.want.Blocks) {
			t.Errorf("%v in %v: %+v, not %+v", test.blocks, test.whole, got, test.want)
		}
	}
}

func TestMeasureLoads(t *testing.T) {
	p, err := Prepare(zooFile(t, "mnist"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Segments(separate)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.MeasureLoads(t.Context())
	if err != nil || len(l.Blocks) != s.Blocks() {
		t.Fatalf("%+v, %v", l, err)
	}
	all := l.Segment
	for _, b := range l.Blocks {
		all += b
	}
	if all <= 0 || l.Segment < 0 || slices.Min(l.Blocks) < 0 {
		t.Errorf("%+v", l)
	}
}
