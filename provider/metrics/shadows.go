package metrics

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"
)

// ShadowCounts are what bodies with shadows (AsyFunc) have counted since some time.
type ShadowCounts struct {
	// Rows are those that shadows computed.
	Rows float64
	// Fallbacks are the jobs that a shadow did not deliver, so its body computed them, by one of
	// [FallbackReasons].
	Fallbacks map[string]float64
	// Relay has the times that tensors were on the way.
	Relay Durations
}

// Durations is a histogram in seconds. Buckets are cumulative by upper bound.
type Durations struct {
	Count   uint64
	Sum     float64
	Buckets map[float64]uint64
}

// FallbackReasons lists the reasons: the shadow was late, was lost with its connection, or answered
// with an error.
func FallbackReasons() []string { return []string{"late", "lost", "error"} }

// shadowVectors are the metrics of functions with shadows.
type shadowVectors struct {
	instances, weights *prometheus.GaugeVec
	rows, fallbacks    *prometheus.CounterVec
	relay              *prometheus.Desc
}

func newShadowVectors() shadowVectors {
	function := []string{"function"}
	return shadowVectors{
		instances: gauge("shadow_instances", "Ready shadows, which hold a part of a model and compute rows of their bodies' batches.", function),
		weights:   gauge("mapped_weights_bytes", "Weights that the bodies and shadows of a function map; those of a model count once for each node.", function),
		rows:      counter("shadow_rows_total", "Rows that shadows computed for their bodies.", function),
		fallbacks: counter("shadow_fallbacks_total", "Jobs that a shadow did not deliver, so its body computed them, by reason.", []string{"function", "reason"}),
		relay: prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "relay_duration_seconds"),
			"Time of a shadow's job that neither its computation nor its wait there explains.", function, nil),
	}
}

func (s *shadowVectors) all() []prometheus.Collector {
	return []prometheus.Collector{s.instances, s.weights, s.rows, s.fallbacks}
}

// SetShadows records a function's ready shadows, and the bytes of weights that they and their bodies
// map. With shown false it has none, and no series.
func (f *FunctionMetrics) SetShadows(shown bool, instances int, weights int64) {
	of := &f.metrics.shadows
	if !shown {
		f.unset(owned{of: of.instances})
		f.unset(owned{of: of.weights})
		return
	}
	f.set(owned{of: of.instances}, float64(instances))
	f.set(owned{of: of.weights}, float64(weights))
}

// AddShadowCounts adds what a body counted from one report to the next. A body that counts less than
// before has started again.
func (f *FunctionMetrics) AddShadowCounts(now, before ShadowCounts) {
	if now.Rows < before.Rows || now.Relay.Count < before.Relay.Count {
		before = ShadowCounts{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.removed {
		return
	}
	of := &f.metrics.shadows
	of.rows.WithLabelValues(f.name).Add(now.Rows - before.Rows)
	for _, reason := range FallbackReasons() {
		of.fallbacks.WithLabelValues(f.name, reason).Add(max(0, now.Fallbacks[reason]-before.Fallbacks[reason]))
	}
	f.relay.Count += now.Relay.Count - before.Relay.Count
	f.relay.Sum += max(0, now.Relay.Sum-before.Relay.Sum)
	buckets := maps.Clone(f.relay.Buckets) // What was collected keeps its own.
	if buckets == nil {
		buckets = map[float64]uint64{}
	}
	for bound, n := range now.Relay.Buckets {
		buckets[bound] += n - min(n, before.Relay.Buckets[bound])
	}
	f.relay.Buckets = buckets
}

// relayed is the histogram of a function's relay times.
func (f *FunctionMetrics) relayed() Durations {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.relay
}

// removeFrom removes a function's counters.
func (s *shadowVectors) removeFrom(name string) {
	s.rows.DeleteLabelValues(name)
	for _, reason := range FallbackReasons() {
		s.fallbacks.DeleteLabelValues(name, reason)
	}
}
