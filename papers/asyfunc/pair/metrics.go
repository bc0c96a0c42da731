package pair

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Counts are what a body has counted since its start.
type Counts struct {
	// Rows are those that shadows computed.
	Rows float64 `json:"rows"`
	// Fallbacks are the jobs that a shadow did not deliver, by reason: late, lost, error.
	Fallbacks map[string]float64 `json:"fallbacks"`
	Relayed   Durations          `json:"relayed"`
}

// Durations is a histogram in seconds.
type Durations struct {
	Count   uint64   `json:"count"`
	Sum     float64  `json:"sum_s"`
	Buckets []Bucket `json:"buckets"`
}

// Bucket counts the durations up to a bound in seconds, those of smaller bounds included.
type Bucket struct {
	Bound float64 `json:"bound_s"`
	Count uint64  `json:"count"`
}

// fallbackReasons are the reasons why a body computes a shadow's rows.
var fallbackReasons = []string{lateReason, lostReason, errorReason}

const lateReason, lostReason, errorReason = "late", "lost", "error"

// counts reads what was counted.
func (m *metrics) counts() Counts {
	c := Counts{Rows: valueOf(m.rows.WithLabelValues("shadow")).GetCounter().GetValue(), Fallbacks: map[string]float64{}}
	for _, reason := range fallbackReasons {
		c.Fallbacks[reason] = valueOf(m.fallbacks.WithLabelValues(reason)).GetCounter().GetValue()
	}
	h := valueOf(m.relayed).GetHistogram()
	c.Relayed = Durations{Count: h.GetSampleCount(), Sum: h.GetSampleSum(), Buckets: []Bucket{}}
	for _, b := range h.GetBucket() {
		c.Relayed.Buckets = append(c.Relayed.Buckets, Bucket{b.GetUpperBound(), b.GetCumulativeCount()})
	}
	return c
}

func valueOf(m prometheus.Metric) *dto.Metric {
	var out dto.Metric
	_ = m.Write(&out) // Counters and histograms have no error.
	return &out
}

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
