package shadows

import (
	"math"
	"testing"
)

// The example of the docs, and a choice that is 10 % dearer than the cheapest.
func TestRegret(t *testing.T) {
	if got := cost(2, 0.5, 0.25, 10); math.Abs(got-212.5) > 1e-9 {
		t.Errorf("a request costs %v core-ms", got)
	}
	pct, taken, best := regret([]option{{wayTwin, 110}, {wayPair, 100}, {waySynchronous, 120}}, wayTwin)
	if math.Abs(pct-10) > 1e-9 || taken.cost != 110 || best.name != wayPair {
		t.Errorf("%v %% with %v, the cheapest is %v", pct, taken, best)
	}
}
