package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// AnswerMetrics count the requests to a function that keeps answers, and its answers in parts. The counters appear with
// the first request. It is safe for concurrent use.
type AnswerMetrics struct {
	name      string
	of, parts *prometheus.CounterVec
	first     *prometheus.HistogramVec

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

// ObserveParts records an answer that came in count parts, the first of them so long after the request.
func (a *AnswerMetrics) ObserveParts(count int, first time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.removed {
		a.parts.WithLabelValues(a.name).Add(float64(count))
		a.first.WithLabelValues(a.name).Observe(first.Seconds())
	}
}

// remove removes the counters.
func (a *AnswerMetrics) remove() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.removed = true
	a.of.DeletePartialMatch(prometheus.Labels{"function": a.name})
	a.parts.DeleteLabelValues(a.name)
	a.first.DeleteLabelValues(a.name)
}
