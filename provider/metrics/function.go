package metrics

import (
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Reason is the reason why a request was answered without being executed.
type Reason string

// The reasons, one for each kind of answer that comes from the dispatcher itself.
const (
	// Late: the deadline could not be met any more.
	Late Reason = "late"
	// QueueFull: too many requests waited already.
	QueueFull Reason = "queue_full"
	// NoInstance: no instance was available.
	NoInstance Reason = "no_instance"
	// InstanceLost: the instance ended and a retry was not possible.
	InstanceLost Reason = "instance_lost"
	// Canceled: the client hung up.
	Canceled Reason = "canceled"
	// Closed: the function was deleted or the provider shuts down.
	Closed Reason = "closed"
)

// Reasons lists all reasons.
func Reasons() []Reason {
	return []Reason{Late, QueueFull, NoInstance, InstanceLost, Canceled, Closed}
}

// FunctionMetrics records the metrics of one function. Its methods are safe for
// concurrent use. Those for requests and batches neither allocate nor lock, except for a
// function's first one.
type FunctionMetrics struct {
	name    string
	metrics *Metrics
	// started counts the requests taken. Those that are not among codes are in flight.
	started atomic.Uint64
	// codes maps a status code to its count. A new code makes a new map, so counting
	// needs no lock.
	codes   atomic.Pointer[map[int]*atomic.Uint64]
	addCode sync.Mutex
	// The histograms of requests appear with the first request: a function that gets none
	// costs Prometheus nothing for them.
	total, queue, exec, batch late
	cold                      prometheus.Observer
	asked, misses             prometheus.Counter
	drops                     map[Reason]prometheus.Counter
	// Callers counts by who has sent the requests.
	Callers *CallerMetrics
	// Answers counts requests that may get an answer to an equal one, and answers in parts.
	Answers *AnswerMetrics

	// mu guards removed, relay and gauges, and that a removed function makes no series.
	mu      sync.Mutex
	removed bool
	// relay has the relay times of the function's shadows.
	relay Durations
	// gauges has the function's gauges, so that its removal need not look for them.
	gauges map[owned]struct{}
}

// owned is one of a function's gauges. by is the config or the variant, "" if the gauge is by
// function only. state is that of a variant.
type owned struct {
	of        *prometheus.GaugeVec
	by, state string
}

func newFunction(m *Metrics, name string) *FunctionMetrics {
	f := &FunctionMetrics{
		name: name, metrics: m,
		total: late{of: m.total}, queue: late{of: m.queue}, exec: late{of: m.exec}, batch: late{of: m.batch},
		cold: m.cold.WithLabelValues(name), asked: m.asked.WithLabelValues(name), misses: m.misses.WithLabelValues(name),
		Callers: &CallerMetrics{name: name, passed: m.passed, refused: m.refused},
		Answers: &AnswerMetrics{name: name, of: m.kept, first: m.firstPart, parts: m.parts},
		drops:   map[Reason]prometheus.Counter{}, gauges: map[owned]struct{}{},
	}
	f.codes.Store(&map[int]*atomic.Uint64{})
	for _, r := range Reasons() {
		f.drops[r] = m.drops.WithLabelValues(name, string(r))
	}
	return f
}

// late is a histogram of a function that appears with its first value.
type late struct {
	of  *prometheus.HistogramVec
	has atomic.Pointer[prometheus.Observer]
}

// observe records a value in one of the function's histograms. Only the first value of each
// takes a lock. The trace becomes an exemplar unless it is nil.
func (f *FunctionMetrics) observe(l *late, value float64, t *frame.Trace) {
	if o := l.has.Load(); o != nil {
		record(*o, value, t)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.removed {
		return
	}
	o := l.of.WithLabelValues(f.name)
	l.has.Store(&o)
	record(o, value, t)
}

func record(o prometheus.Observer, value float64, t *frame.Trace) {
	if t != nil {
		o.(prometheus.ExemplarObserver).ObserveWithExemplar(value, prometheus.Labels{"trace_id": t.ID()})
		return
	}
	o.Observe(value)
}

// Name returns the function's full name, "name.namespace".
func (f *FunctionMetrics) Name() string { return f.name }

// Begin counts a request in flight until ObserveRequest.
func (f *FunctionMetrics) Begin() { f.started.Add(1) }

// ObserveRequest counts a request that was answered with an HTTP status code (499: the
// client hung up). total is the time from its arrival to its answer. Call it once for
// each Begin.
func (f *FunctionMetrics) ObserveRequest(code int, total time.Duration) {
	f.ObserveSampled(code, total, nil)
}

// ObserveSampled is ObserveRequest for a request with a trace, which becomes an exemplar; nil for none.
func (f *FunctionMetrics) ObserveSampled(code int, total time.Duration, t *frame.Trace) {
	f.count(code).Add(1)
	f.observe(&f.total, total.Seconds(), t)
}

func (f *FunctionMetrics) count(code int) *atomic.Uint64 {
	if n, ok := (*f.codes.Load())[code]; ok {
		return n
	}
	f.addCode.Lock()
	defer f.addCode.Unlock()
	codes := maps.Clone(*f.codes.Load())
	n, ok := codes[code]
	if !ok {
		n = new(atomic.Uint64)
		codes[code] = n
		f.codes.Store(&codes)
	}
	return n
}

// Answered returns the number of requests answered since the provider started.
func (f *FunctionMetrics) Answered() uint64 {
	var sum uint64
	for _, n := range *f.codes.Load() {
		sum += n.Load()
	}
	return sum
}

// inFlight returns the number of requests taken and not yet answered. It reads the answers first, so it is
// never negative.
func (f *FunctionMetrics) inFlight() uint64 {
	answered := f.Answered()
	return f.started.Load() - answered
}

// ObserveQueue records how long one request waited for its batch. t is its trace, nil if it is not sampled.
func (f *FunctionMetrics) ObserveQueue(d time.Duration, t *frame.Trace) {
	f.observe(&f.queue, d.Seconds(), t)
}

// ObserveBatch records one batch: its size and its time on the instance. t is the trace of one of its requests, nil
// if none is sampled.
func (f *FunctionMetrics) ObserveBatch(size int, exec time.Duration, t *frame.Trace) {
	f.observe(&f.batch, float64(size), nil)
	f.observe(&f.exec, exec.Seconds(), t)
}

// ObserveCold records one instance's time from start to ready (t_cold, INFless
// §3.1).
func (f *FunctionMetrics) ObserveCold(d time.Duration) { f.cold.Observe(d.Seconds()) }

// ObserveObjective counts the answer to a request of a function with an objective. late says that
// it came after the objective. A request is missed, too, if it was refused (429, 503) or has failed
// (5xx). One that the client has to change (4xx), or that it broke off in time (499), does not count.
func (f *FunctionMetrics) ObserveObjective(code int, late bool) {
	failed := code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	if !failed && code >= http.StatusBadRequest && (code != web.StatusHungUp || !late) {
		return
	}
	f.asked.Inc()
	if failed || late {
		f.misses.Inc()
	}
}

// SetObjective records a function's latency objective and the part of its requests, from 0 to 1, that must be
// answered within it; a latency of 0 removes both.
func (f *FunctionMetrics) SetObjective(latency time.Duration, target float64) {
	if latency == 0 {
		f.unset(owned{of: f.metrics.objective})
		f.unset(owned{of: f.metrics.target})
		return
	}
	f.set(owned{of: f.metrics.objective}, latency.Seconds())
	f.set(owned{of: f.metrics.target}, target)
}

// AddDrop counts a request that was answered without being executed. A reason
// that is not one of Reasons is not counted.
func (f *FunctionMetrics) AddDrop(r Reason) {
	if c, ok := f.drops[r]; ok {
		c.Inc()
	}
}

// SetInstances records the number of ready instances with a config, in the form of
// cluster.Config.String; 0 removes the config.
func (f *FunctionMetrics) SetInstances(config string, n int) {
	if n == 0 {
		f.unset(owned{of: f.metrics.instances, by: config})
		return
	}
	f.set(owned{of: f.metrics.instances, by: config}, float64(n))
}

// SetVariantInstances records the number of ready instances of a variant in a state; 0 removes
// the state.
func (f *FunctionMetrics) SetVariantInstances(variant, state string, n int) {
	g := owned{f.metrics.variants, variant, state}
	if n == 0 {
		f.unset(g)
		return
	}
	f.set(g, float64(n))
}

// SetParked records the number of parked instances: loaded, with their CPU and GPU share
// given back.
func (f *FunctionMetrics) SetParked(n int) { f.set(owned{of: f.metrics.parked}, float64(n)) }

// SetExecRatio records measured over predicted time for instances with a config, in the
// form of cluster.Config.String; 0 removes the config.
func (f *FunctionMetrics) SetExecRatio(config string, ratio float64) {
	if ratio == 0 {
		f.unset(owned{of: f.metrics.ratio, by: config})
		return
	}
	f.set(owned{of: f.metrics.ratio, by: config}, ratio)
}

// SetLevel records the planned over the measured load.
func (f *FunctionMetrics) SetLevel(level float64) { f.set(owned{of: f.metrics.level}, level) }

// SetProvisional records whether the function runs with a sketch of its model's times.
func (f *FunctionMetrics) SetProvisional(provisional bool) {
	f.set(owned{of: f.metrics.provisional}, oneIf(provisional))
}

// SetUnbatched records whether a model of the function takes one request an execution.
func (f *FunctionMetrics) SetUnbatched(unbatched bool) {
	f.set(owned{of: f.metrics.unbatched}, oneIf(unbatched))
}

// oneIf is the value of a gauge for a condition.
func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}

// SetAllocated records the resources that the function's instances hold together.
func (f *FunctionMetrics) SetAllocated(r cluster.Resources) {
	f.set(owned{of: f.metrics.cpu}, cores(r))
	f.set(owned{of: f.metrics.memory}, float64(r.Memory))
	f.set(owned{of: f.metrics.gpu}, gpus(r))
}

// SetUsed records the CPU and memory that the function's instances use together.
func (f *FunctionMetrics) SetUsed(r cluster.Resources) {
	f.set(owned{of: f.metrics.cpuUsed}, cores(r))
	f.set(owned{of: f.metrics.used}, float64(r.Memory))
}

// HideInstances removes what gauges say of the function's instances, which it has not any more: it shares those of
// others. The counters and the objective, which its users see, stay.
func (f *FunctionMetrics) HideInstances() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for g := range f.gauges {
		if g.of != f.metrics.objective && g.of != f.metrics.target {
			delete(f.gauges, g)
			g.of.DeleteLabelValues(g.labels(f.name)...)
		}
	}
	f.metrics.shadows.removeFrom(f.name)
}

// set writes a gauge, unless the function was removed. A controller that still stops its
// instances must not bring the function's labels back.
func (f *FunctionMetrics) set(g owned, value float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.removed {
		return
	}
	f.gauges[g] = struct{}{}
	g.of.WithLabelValues(g.labels(f.name)...).Set(value)
}

// unset removes a gauge. A function that was removed has none: one of that name is a later one's.
func (f *FunctionMetrics) unset(g owned) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.removed {
		return
	}
	delete(f.gauges, g)
	g.of.DeleteLabelValues(g.labels(f.name)...)
}

// labels returns the values of the gauge's labels.
func (g owned) labels(function string) []string {
	switch {
	case g.by == "":
		return []string{function}
	case g.state == "":
		return []string{function, g.by}
	}
	return []string{function, g.by, g.state}
}

// remove removes all of the function's series, and keeps it from making others.
func (f *FunctionMetrics) remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removed = true
	m := f.metrics
	for _, h := range []*prometheus.HistogramVec{m.total, m.queue, m.exec, m.cold, m.batch} {
		h.DeleteLabelValues(f.name)
	}
	m.asked.DeleteLabelValues(f.name)
	m.misses.DeleteLabelValues(f.name)
	m.rollouts.DeletePartialMatch(prometheus.Labels{"function": f.name})
	m.shadows.removeFrom(f.name)
	f.Callers.remove()
	f.Answers.remove()
	for reason := range f.drops {
		m.drops.DeleteLabelValues(f.name, string(reason))
	}
	for g := range f.gauges {
		g.of.DeleteLabelValues(g.labels(f.name)...)
	}
}
