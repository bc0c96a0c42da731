package capacity

import (
	"testing"
	"time"
)

// The rate of one instance hardly falls as the load grows, and it rises with the time
// available.
func TestPooled(t *testing.T) {
	o := Production()
	last := 0.0
	for rps := 1.0; rps < 1e5; rps *= 1.3 {
		up, ok := o.pooled(4, 60*ms, 50*ms, 200*ms, rps, 0.01)
		if !ok || up < last*(1-0.2) || up > 80 {
			t.Errorf("%v/s: %v, %v after %v", rps, up, ok, last)
		}
		if tight, ok := o.pooled(4, 60*ms, 50*ms, 150*ms, rps, 0.01); ok && tight > up*(1+1e-9) {
			t.Errorf("%v/s: %v within 150 ms, %v within 200 ms", rps, tight, up)
		}
		last = up
	}
	if last < 0.98*80 {
		t.Errorf("of a large load it serves %v, want nearly 80", last)
	}
	// A batch of 4 in 150 ms: alone, a request might wait for 150 ms more; at
	// 1000/s, for no longer than 4 ms.
	if _, ok := o.pooled(4, 150*ms, 150*ms, 200*ms, 10, 0.01); ok {
		t.Error("t_exec = 150 ms within 200 ms at 10/s")
	}
	if _, ok := o.pooled(4, 150*ms, 150*ms, 200*ms, 1000, 0.01); !ok {
		t.Error("t_exec = 150 ms does not do within 200 ms at 1000/s")
	}
	if up, ok := o.pooled(8, time.Second, 0, 0, 3, 0.01); !ok || up != 8 {
		t.Errorf("without an SLO: %v, %v", up, ok)
	}
}
