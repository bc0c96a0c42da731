package pair

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	rows, fallbacks *prometheus.CounterVec
	relayed         prometheus.Histogram
}

func newMetrics() *metrics {
	return &metrics{
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "faas_infer_instance_shadow_rows_total",
			Help: "Rows that a body had computed within the blocks of its shadows, by who computed them (by=\"body\" or by=\"shadow\").",
		}, []string{"by"}),
		fallbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "faas_infer_instance_shadow_fallbacks_total",
			Help: "Jobs that a shadow did not deliver, so the body computed them: late, lost with the connection, or an error.",
		}, []string{"reason"}),
		relayed: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "faas_infer_instance_relay_duration_seconds", Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8),
			Help: "Time of a job that neither its computation nor its wait in the shadow's queue explains.",
		}),
	}
}

// Describe implements prometheus.Collector.
func (b *Body) Describe(ch chan<- *prometheus.Desc) {
	b.metrics.rows.Describe(ch)
	b.metrics.fallbacks.Describe(ch)
	b.metrics.relayed.Describe(ch)
}

// Collect implements prometheus.Collector.
func (b *Body) Collect(ch chan<- prometheus.Metric) {
	b.metrics.rows.Collect(ch)
	b.metrics.fallbacks.Collect(ch)
	b.metrics.relayed.Collect(ch)
}
