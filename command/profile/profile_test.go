package profile

import (
	"context"
	"errors"
	"testing"

	"github.com/faas-infer/faas-infer/profiler"
)

// closing is a runner that says how often it was closed.
type closing struct{ closed int }

func (c *closing) Run(context.Context, int) error { return nil }
func (c *closing) Close() error                   { c.closed++; return nil }

// What a measurement has to itself is noted before its engine is closed, and the largest stays.
func TestOwnMemoryIsNoted(t *testing.T) {
	var own int64
	for _, before := range []int64{0, 1 << 50} {
		own = before
		inner := &closing{}
		r, err := noted(func(int) (profiler.Runner, error) { return inner, nil }, &own)(1)
		if err != nil || own != before {
			t.Fatalf("%d bytes before it ran, %v", own, err)
		}
		if err := r.Close(); err != nil || inner.closed != 1 || own < max(before, 1<<20) {
			t.Errorf("%d bytes, closed %d times, %v", own, inner.closed, err)
		}
	}
	broken := errors.New("broken")
	if r, err := noted(func(int) (profiler.Runner, error) { return nil, broken }, &own)(1); r != nil || err != broken {
		t.Errorf("%v, %v", r, err)
	}
}
