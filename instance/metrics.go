package instance

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/protocol"
)

// Startup holds the times of the parts of an instance's start. Metrics report them.
type Startup struct {
	// Began is when the program began to run. The time between the decision to start
	// and Began is the start of the process itself.
	Began time.Time
	// Library is the time to load the engine's library, Load the time to load the
	// model. FirstRun is the time of a first run of one row before the instance was
	// ready, 0 if there was none.
	Library, Load, FirstRun time.Duration
}

// metrics holds a server's metrics, which the instance serves at /metrics.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	retries  prometheus.Counter
	members  prometheus.Histogram
	rows     prometheus.Histogram
	exec     prometheus.Histogram
	firstRun prometheus.Gauge
	// tokens are the tokens of texts that ran, and padding those that only filled rows up.
	tokens, padding prometheus.Counter
	hasRun          sync.Once
	// counted are the counts for Triton's statistics extension.
	counting sync.Mutex
	counted  protocol.Statistics
}

func newMetrics(startup Startup) *metrics {
	powers := prometheus.ExponentialBuckets(1, 2, 11)
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "faas_infer_instance_requests_total",
			Help: "Requests answered, by HTTP status code.",
		}, []string{"code"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "faas_infer_instance_split_batches_total",
			Help: "Batches that failed as a whole and whose requests then ran one by one.",
		}),
		members: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "faas_infer_instance_batch_requests", Buckets: powers,
			Help: "Requests per batch as they arrived.",
		}),
		rows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "faas_infer_instance_batch_rows", Buckets: powers,
			Help: "Rows per run of the engine.",
		}),
		exec: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "faas_infer_instance_exec_seconds", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 17),
			Help: "Time of one run of the engine.",
		}),
	}
	m.tokens = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "faas_infer_instance_tokens_total",
		Help: "Tokens of texts, and of tensors whose rows may be padded, that the engine ran, padding left out.",
	})
	m.padding = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "faas_infer_instance_padding_tokens_total",
		Help: "Tokens that filled rows up to the longest row of their run.",
	})
	m.registry.MustRegister(m.tokens, m.padding, m.requests, m.retries, m.members, m.rows, m.exec, memoryCollector{},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.gauge("began_timestamp", "When the program began to run, in seconds since 1970.", float64(startup.Began.UnixMicro())/1e6)
	m.gauge("library", "Time to load the engine's library.", startup.Library.Seconds())
	m.gauge("load", "Time to load the model.", startup.Load.Seconds())
	m.firstRun = m.gauge("first_run", "Time of the first run, before or after the instance was ready.", startup.FirstRun.Seconds())
	if startup.FirstRun > 0 {
		m.hasRun.Do(func() {})
	}
	return m
}

func (m *metrics) gauge(name, help string, value float64) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "faas_infer_instance_" + name + "_seconds", Help: help})
	g.Set(value)
	m.registry.MustRegister(g)
	return g
}

// run counts one run of the engine.
func (m *metrics) run(rows int, took time.Duration) {
	m.rows.Observe(float64(rows))
	m.exec.Observe(took.Seconds())
	m.hasRun.Do(func() { m.firstRun.Set(took.Seconds()) })
	m.counting.Lock()
	defer m.counting.Unlock()
	if m.counted.Runs == nil {
		m.counted.Runs = map[int]protocol.Duration{}
	}
	m.counted.Runs[rows] = m.counted.Runs[rows].Plus(1, took)
	m.counted.Last = time.Now()
}

// outcome counts members of a batch that were answered together after a time in the server,
// of which they waited for their turn.
func (m *metrics) outcome(members []member, responses []frame.Response, took, waited time.Duration) {
	m.counting.Lock()
	defer m.counting.Unlock()
	s := &m.counted
	for _, of := range members {
		if responses[of.at].Status != http.StatusOK {
			s.Failed = s.Failed.Plus(1, took)
			continue
		}
		s.Requests, s.Waited, s.Rows = s.Requests.Plus(1, took), s.Waited.Plus(1, waited), s.Rows+uint64(of.Rows)
	}
}

// statistics returns a copy of the counts.
func (m *metrics) statistics() protocol.Statistics {
	m.counting.Lock()
	defer m.counting.Unlock()
	s := m.counted
	s.Runs = maps.Clone(s.Runs)
	return s
}

func (m *metrics) request(status int) { m.requests.WithLabelValues(strconv.Itoa(status)).Inc() }

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// memoryCollector reads the process's memory at every scrape.
type memoryCollector struct{}

var memoryDesc = prometheus.NewDesc("faas_infer_instance_memory_bytes",
	"Memory by kind: resident, proportional (shared pages divided among the processes that share them), anonymous (backed by no file).",
	[]string{"kind"}, nil)

// Describe implements prometheus.Collector.
func (memoryCollector) Describe(ch chan<- *prometheus.Desc) { ch <- memoryDesc }

// Collect implements prometheus.Collector.
func (memoryCollector) Collect(ch chan<- prometheus.Metric) {
	m, err := ReadMemory(0)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(memoryDesc, err)
		return
	}
	for kind, value := range map[string]int64{"resident": m.Resident, "proportional": m.Proportional, "anonymous": m.Anonymous} {
		ch <- prometheus.MustNewConstMetric(memoryDesc, prometheus.GaugeValue, float64(value), kind)
	}
}
