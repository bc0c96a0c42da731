package metrics

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/faas-infer/faas-infer/provider/access"
)

// Names of keys make a bounded number of series, which go with the function.
func TestCallers(t *testing.T) {
	m := New(prometheus.NewPedanticRegistry())
	c := m.Function("f.n").Callers
	if n := testutil.CollectAndCount(m.passed) + testutil.CollectAndCount(m.refused); n != 0 {
		t.Errorf("a function without callers has %d series", n)
	}
	for round := range 2 {
		for i := range 3 * maxKeyNames {
			c.Pass(fmt.Sprint(i))
		}
		c.Refuse(access.Missing)
		if n := testutil.CollectAndCount(m.passed); n != maxKeyNames+1 {
			t.Errorf("round %d: %d series", round, n)
		}
	}
	if n := testutil.ToFloat64(m.passed.WithLabelValues("f.n", otherKey)); n != 4*maxKeyNames {
		t.Errorf("%v requests of other keys", n)
	}
	if n := testutil.ToFloat64(m.passed.WithLabelValues("f.n", "7")); n != 2 {
		t.Errorf("%v requests of the key 7", n)
	}
	if n := testutil.ToFloat64(m.refused.WithLabelValues("f.n", "missing")); n != 2 {
		t.Errorf("%v refusals", n)
	}
	m.Remove("f.n")
	c.Pass("late")
	c.Refuse(access.Foreign)
	if n := testutil.CollectAndCount(m.passed) + testutil.CollectAndCount(m.refused); n != 0 {
		t.Errorf("%d series are left", n)
	}
}
