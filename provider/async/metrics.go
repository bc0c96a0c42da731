package async

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/faas-infer/faas-infer/provider/async/broker"
	"github.com/faas-infer/faas-infer/provider/async/retry"
)

// metrics are what the queue measures of itself. Labels are bounded: functions
// by those that are deployed, reasons and classes by constants.
type metrics struct {
	queue                *Queue
	accepted             *prometheus.CounterVec
	dead, callbacks      *prometheus.CounterVec
	retries, redelivered prometheus.Counter
	queued, letters      *prometheus.Desc
	inFlight             *prometheus.Desc

	// depth is asked of the streams at most once a second.
	mu    sync.Mutex
	depth depth
}

// depth is how much lies in the streams.
type depth struct {
	queued, bytes, dead uint64
	at                  time.Time
}

const subsystem = "async"

func newMetrics(q *Queue) *metrics {
	name := func(s string) string { return prometheus.BuildFQName("faas_infer", subsystem, s) }
	counter := func(s, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name(s), Help: help}, labels)
	}
	m := &metrics{
		queue:       q,
		accepted:    counter("accepted_total", "Requests stored in the queue.", "function"),
		dead:        counter("dead_total", "Requests given up, by reason.", "reason"),
		callbacks:   counter("callbacks_total", "Results posted to callback URLs, by the class of the answer's status; none stands for no answer.", "class"),
		retries:     prometheus.NewCounter(prometheus.CounterOpts{Name: name("retries_total"), Help: "Executions after which another try was decided."}),
		redelivered: prometheus.NewCounter(prometheus.CounterOpts{Name: name("redelivered_total"), Help: "Messages handed out that had been handed out before."}),
		queued:      prometheus.NewDesc(name("queued"), "Requests in the queue, those that are being executed included.", nil, nil),
		letters:     prometheus.NewDesc(name("dead"), "Requests among the dead letters.", nil, nil),
		inFlight:    prometheus.NewDesc(name("in_flight"), "Requests taken out of the queue and not yet dealt with, by state.", []string{"state"}, nil),
	}
	for _, reason := range retry.Reasons {
		m.dead.WithLabelValues(reason)
	}
	for _, class := range classes {
		m.callbacks.WithLabelValues(class)
	}
	return m
}

// classes of status codes.
var classes = []string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

// callback counts a callback's answer.
func (m *metrics) callback(status int) {
	if class := status / 100; class >= 1 && class < len(classes) {
		m.callbacks.WithLabelValues(classes[class]).Inc()
		return
	}
	m.callbacks.WithLabelValues(classes[0]).Inc()
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m, m.accepted, m.dead, m.callbacks, m.retries, m.redelivered}
}

func (m *metrics) register(r prometheus.Registerer) error {
	var err error
	for _, c := range m.all() {
		err = errors.Join(err, r.Register(c))
	}
	return err
}

func (m *metrics) unregister(r prometheus.Registerer) {
	if r == nil {
		return
	}
	for _, c := range m.all() {
		r.Unregister(c)
	}
}

// Describe is part of prometheus.Collector: the gauges are asked for.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.queued
	ch <- m.letters
	ch <- m.inFlight
}

// Collect is part of prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if d, err := m.look(); err == nil {
		gauge(m.queued, float64(d.queued))
		gauge(m.letters, float64(d.dead))
	}
	running, held := 0, 0
	for _, s := range m.queue.stats() {
		running, held = running+s.Running, held+s.Held
	}
	gauge(m.inFlight, float64(running), "executing")
	gauge(m.inFlight, float64(held-running), "callback")
}

// look asks the streams how much lies in them.
func (m *metrics) look() (depth, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.depth.at) < time.Second {
		return m.depth, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	js := m.queue.broker.JetStream()
	work, err := state(ctx, js, broker.WorkStream)
	if err != nil {
		return depth{}, err
	}
	letters, err := state(ctx, js, broker.DeadStream)
	if err != nil {
		return depth{}, err
	}
	m.depth = depth{queued: work.Msgs, bytes: work.Bytes, dead: letters.Msgs, at: time.Now()}
	return m.depth, nil
}

func state(ctx context.Context, js jetstream.JetStream, stream string) (jetstream.StreamState, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return jetstream.StreamState{}, err
	}
	return s.CachedInfo().State, nil
}
