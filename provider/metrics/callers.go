package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/faas-infer/faas-infer/provider/access"
)

// maxKeyNames is the maximum number of names of keys that the metrics of a function tell apart. The
// others count as otherKey.
const (
	maxKeyNames = 100
	otherKey    = "other"
)

// CallerMetrics count the requests to a function that says who may call it. A counter appears with
// its first request. It is safe for concurrent use.
type CallerMetrics struct {
	name            string
	passed, refused *prometheus.CounterVec

	// counters has a prometheus.Counter by label's value; only a new one takes the lock.
	byKey, byReason sync.Map
	mu              sync.Mutex
	keys            int
	removed         bool
}

// Pass counts a request of the holder of a key with a name, "" for none.
func (c *CallerMetrics) Pass(key string) {
	if known, ok := c.byKey.Load(key); ok {
		known.(prometheus.Counter).Inc()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed {
		return
	}
	if c.keys++; c.keys > maxKeyNames {
		key = otherKey
	}
	counter := c.passed.WithLabelValues(c.name, key)
	c.byKey.Store(key, counter)
	counter.Inc()
}

// Refuse counts a request that was refused because of its caller.
func (c *CallerMetrics) Refuse(reason access.Reason) {
	if known, ok := c.byReason.Load(reason); ok {
		known.(prometheus.Counter).Inc()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed {
		return
	}
	counter := c.refused.WithLabelValues(c.name, string(reason))
	c.byReason.Store(reason, counter)
	counter.Inc()
}

// remove removes the counters.
func (c *CallerMetrics) remove() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed = true
	for _, v := range []*prometheus.CounterVec{c.passed, c.refused} {
		v.DeletePartialMatch(prometheus.Labels{"function": c.name})
	}
}
