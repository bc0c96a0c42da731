package coldstart

import (
	"math"
	"reflect"
	"testing"
	"time"
)

func TestRoundTrip(t *testing.T) {
	w := newWireWriter('x', 3)
	w.Count(300)
	w.Number(-5)
	w.Real(1.5)
	w.Spans([]time.Duration{time.Hour, 1500 * time.Microsecond, -1, math.MaxInt64})
	r := newWireReader('x', 3, *w)
	if n, i, f := r.Count(300), r.Number(), r.Real(2); n != 300 || i != -5 || f != 1.5 {
		t.Errorf("%d, %d, %v", n, i, f)
	}
	want := []time.Duration{time.Hour, time.Millisecond, 0, maxSpan * time.Millisecond}
	if got := r.Spans(4); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if err := r.Done(); err != nil {
		t.Error(err)
	}
}

// The reader refuses a value that is too large or not a number, a state that is too
// short or too long, and one of another policy. It reads nothing after that.
func TestRefuses(t *testing.T) {
	w := newWireWriter('x', 1)
	w.Count(7)
	nan := newWireWriter('x', 1)
	nan.Real(math.NaN())
	for name, r := range map[string]*wireReader{
		"nothing":         newWireReader('x', 1, nil),
		"another policy":  newWireReader('y', 1, *w),
		"another version": newWireReader('x', 2, *w),
		"left over":       newWireReader('x', 1, *w),
		"too large":       func() *wireReader { r := newWireReader('x', 1, *w); r.Count(6); return r }(),
		"short number":    func() *wireReader { r := newWireReader('x', 1, *w); r.Real(9); return r }(),
		"not a number":    func() *wireReader { r := newWireReader('x', 1, *nan); r.Real(9); return r }(),
		"past the end":    func() *wireReader { r := newWireReader('x', 1, *w); r.Count(9); r.Count(9); return r }(),
		"no more, signed": func() *wireReader { r := newWireReader('x', 1, *w); r.Count(9); r.Number(); return r }(),
	} {
		if err := r.Done(); err == nil || !r.Failed() {
			t.Errorf("%s: no error", name)
		}
		if r.Count(9) != 0 || r.Number() != 0 || r.Real(9) != 0 || len(r.Spans(9)) != 0 {
			t.Errorf("%s: something is read after the error", name)
		}
	}
}
