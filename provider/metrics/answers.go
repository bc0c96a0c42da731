package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// AnswerMetrics count the requests to a function that keeps answers. The counters appear with the first request. It is
// safe for concurrent use.
type AnswerMetrics struct {
	name string
	of   *prometheus.CounterVec

	mu        sync.Mutex
	hit, miss prometheus.Counter
	removed   bool
}

// Count counts a request that got a kept answer, or one that did not.
func (a *AnswerMetrics) Count(hit bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.removed {
		return
	}
	if a.hit == nil {
		a.hit, a.miss = a.of.WithLabelValues(a.name, "hit"), a.of.WithLabelValues(a.name, "miss")
	}
	if hit {
		a.hit.Inc()
	} else {
		a.miss.Inc()
	}
}

// remove removes the counters.
func (a *AnswerMetrics) remove() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.removed = true
	a.of.DeletePartialMatch(prometheus.Labels{"function": a.name})
}
