package onnxruntime

import (
	"slices"
	"testing"
	"time"
)

// The example of MeasureLoads by hand; noise: no part takes less than nothing; and neighbours that take
// long, which do not count.
func TestDivideLoads(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		blocks []time.Duration
		joined map[int]time.Duration
		want   Loads
	}{
		{[]time.Duration{3 * ms, 4 * ms}, map[int]time.Duration{0: 5 * ms}, Loads{2 * ms, []time.Duration{ms, 2 * ms}}},
		{[]time.Duration{3 * ms, 4 * ms}, map[int]time.Duration{0: 9 * ms}, Loads{0, []time.Duration{3 * ms, 4 * ms}}},
		{[]time.Duration{3 * ms, 9 * ms}, map[int]time.Duration{0: ms}, Loads{3 * ms, []time.Duration{0, 6 * ms}}},
		{[]time.Duration{3 * ms, 4 * ms, 5 * ms, 400 * ms}, map[int]time.Duration{0: 5 * ms, 1: 6 * ms, 2: 480 * ms}, Loads{2 * ms, []time.Duration{ms, 2 * ms, 3 * ms, 398 * ms}}},
		{[]time.Duration{5 * ms}, nil, Loads{0, []time.Duration{5 * ms}}},
	} {
		got := Loads{Blocks: slices.Clone(test.blocks)}
		if got.divide(test.joined); got.Segment != test.want.Segment || !slices.Equal(got.Blocks, test.want.Blocks) {
			t.Errorf("%v and %v: %+v, not %+v", test.blocks, test.joined, got, test.want)
		}
	}
	var many []time.Duration
	for i := range 20 {
		many = append(many, time.Duration(20-i)*ms)
	}
	if got := soonest(many); len(got) != neighbours || got[0] != 18 {
		t.Errorf("the soonest are %v", got)
	}
	if got := soonest(many[:1]); got != nil {
		t.Errorf("one block has the neighbours %v", got)
	}
}

func TestMeasureLoads(t *testing.T) {
	p, err := Prepare(zooFile(t, "mnist"), t.TempDir(), PrepareOptions{})
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
