package async

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/faas-infer/faas-infer/provider/async/retry"
)

// Depth is the number of requests in the streams. Queued includes those that are being
// executed. BestEffort are the best-effort requests that wait, Dead the dead letters.
type Depth struct{ Queued, BestEffort, Dead uint64 }

// Metrics holds the queue's metrics. It is safe for concurrent use.
type Metrics struct {
	accepted             *prometheus.CounterVec
	dead, callbacks      *prometheus.CounterVec
	retries, redelivered prometheus.Counter
	cancelled            prometheus.Counter
	queued, best         *prometheus.Desc
	letters              *prometheus.Desc
	inFlight             *prometheus.Desc
	depth                func() (Depth, error)
	inHand               func() (executing, posting int)
}

// NewMetrics returns the metrics. Each collection calls depth and inHand.
func NewMetrics(depth func() (Depth, error), inHand func() (executing, posting int)) *Metrics {
	name := func(s string) string { return prometheus.BuildFQName("faas_infer", "async", s) }
	counter := func(s, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name(s), Help: help}, labels)
	}
	m := &Metrics{
		depth: depth, inHand: inHand,
		accepted:    counter("accepted_total", "Requests stored in the queue.", "function"),
		dead:        counter("dead_total", "Requests given up, by reason.", "reason"),
		callbacks:   counter("callbacks_total", "Results posted to callback URLs, by the class of the answer's status; none stands for no answer.", "class"),
		retries:     prometheus.NewCounter(prometheus.CounterOpts{Name: name("retries_total"), Help: "Executions followed by another try."}),
		cancelled:   prometheus.NewCounter(prometheus.CounterOpts{Name: name("cancelled_total"), Help: "Requests cancelled by their clients."}),
		redelivered: prometheus.NewCounter(prometheus.CounterOpts{Name: name("redelivered_total"), Help: "Messages delivered again."}),
		queued:      prometheus.NewDesc(name("queued"), "Requests in the queue, including those that are being executed.", nil, nil),
		best:        prometheus.NewDesc(name("best_effort"), "Best-effort requests in the queue that wait for room.", nil, nil),
		letters:     prometheus.NewDesc(name("dead"), "Requests among the dead letters.", nil, nil),
		inFlight:    prometheus.NewDesc(name("in_flight"), "Requests taken out of the queue and not yet finished, by state.", []string{"state"}, nil),
	}
	for _, reason := range retry.Reasons {
		m.dead.WithLabelValues(reason)
	}
	for _, class := range classes {
		m.callbacks.WithLabelValues(class)
	}
	return m
}

// classes are the classes of status codes, "none" for no answer.
var classes = []string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

// Accepted counts a request of a function.
func (m *Metrics) Accepted(function string) { m.accepted.WithLabelValues(function).Inc() }

// Retried counts an execution that another try follows.
func (m *Metrics) Retried() { m.retries.Inc() }

// Redelivered counts a message that was delivered before.
func (m *Metrics) Redelivered() { m.redelivered.Inc() }

// Cancelled counts a request that its client has cancelled.
func (m *Metrics) Cancelled() { m.cancelled.Inc() }

// Dead counts a request that was given up for one of retry's reasons.
func (m *Metrics) Dead(reason string) { m.dead.WithLabelValues(reason).Inc() }

// Called counts a callback by the status of its answer, 0 for no answer.
func (m *Metrics) Called(status int) {
	class := status / 100
	if class < 1 || class >= len(classes) {
		class = 0
	}
	m.callbacks.WithLabelValues(classes[class]).Inc()
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m, m.accepted, m.dead, m.callbacks, m.retries, m.redelivered, m.cancelled}
}

// Register registers the metrics with r. It does nothing if r is nil.
func (m *Metrics) Register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	var err error
	for _, c := range m.all() {
		err = errors.Join(err, r.Register(c))
	}
	return err
}

// Unregister removes the metrics from r. It does nothing if r is nil.
func (m *Metrics) Unregister(r prometheus.Registerer) {
	if r == nil {
		return
	}
	for _, c := range m.all() {
		r.Unregister(c)
	}
}

// Describe is part of prometheus.Collector. It describes the gauges.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.queued
	ch <- m.best
	ch <- m.letters
	ch <- m.inFlight
}

// Collect is part of prometheus.Collector. It collects the gauges.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if d, err := m.depth(); err == nil {
		gauge(m.queued, float64(d.Queued))
		gauge(m.best, float64(d.BestEffort))
		gauge(m.letters, float64(d.Dead))
	}
	executing, posting := m.inHand()
	gauge(m.inFlight, float64(executing), "executing")
	gauge(m.inFlight, float64(posting), "callback")
}
