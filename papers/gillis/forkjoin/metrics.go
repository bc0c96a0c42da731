package forkjoin

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics say where a request's time goes, round by round. A plan has few rounds.
type metrics struct {
	rounds *prometheus.HistogramVec
	// parts are the times of the master's own part and of the slowest worker.
	parts *prometheus.SummaryVec
}

func newMetrics() *metrics {
	return &metrics{
		rounds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "faas_infer_instance_round_seconds", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
			Help: "Time of a round of a cut model, from the first tensor sent to the last one joined, by the round's number.",
		}, []string{"round"}),
		parts: prometheus.NewSummaryVec(prometheus.SummaryOpts{
			Name: "faas_infer_instance_part_seconds",
			Help: "Time within a round that the master's own part takes (by=\"master\", its wait for other batches included), and that the slowest worker takes to answer (by=\"workers\").",
		}, []string{"round", "by"}),
	}
}

// part counts the time of a round's own part or of its slowest worker.
func (m *metrics) part(round int, by string, took time.Duration) {
	m.parts.WithLabelValues(strconv.Itoa(round+1), by).Observe(took.Seconds())
}

// Describe implements prometheus.Collector.
func (e *Engine) Describe(ch chan<- *prometheus.Desc) {
	e.metrics.rounds.Describe(ch)
	e.metrics.parts.Describe(ch)
}

// Collect implements prometheus.Collector.
func (e *Engine) Collect(ch chan<- prometheus.Metric) {
	e.metrics.rounds.Collect(ch)
	e.metrics.parts.Collect(ch)
}
