// Package metrics holds the provider's metrics for Prometheus, and evaluates the queries
// that the stock gateway sends ([ParseQuery]). The HTTP routes, the dispatchers and the
// controller record through one handle per function ([FunctionMetrics]), which resolves
// its labels once: recording a request takes a few atomic additions and no look-up. It
// measures nothing itself. Begin reading at [New].
//
// The number of label values is bounded: functions by the deployments, codes by HTTP,
// reasons by the constants here, configs by the running instances, and variants by the 64 that
// a deployment may have.
package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/faas-infer/faas-infer/cluster"
)

const namespace = "faas_infer"

// Buckets in seconds, from less than a small model's time to the longest objective.
// Their factor of 2 to 2.5 keeps the error of percentiles small in the range of
// milliseconds. batchBuckets are in requests. Each bucket is a series of each function that
// Prometheus keeps in memory, so there are no more than the dashboard needs.
var (
	requestBuckets = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 60}
	partBuckets    = []float64{.0002, .001, .002, .005, .01, .02, .05, .1, .2, .5, 2, 10}
	coldBuckets    = []float64{.02, .05, .1, .2, .5, 1, 2, 5, 10, 60}
	batchBuckets   = []float64{1, 2, 4, 8, 16, 32, 64, 256}
)

// Metrics holds all metrics. It is safe for concurrent use.
type Metrics struct {
	requests, inFlight                                      *prometheus.Desc
	total, queue, exec, cold, batch, firstPart              *prometheus.HistogramVec
	asked, misses, drops, passed, refused, kept, parts      *prometheus.CounterVec
	objective, target                                       *prometheus.GaugeVec
	instances, parked, ratio, level, provisional, unbatched *prometheus.GaugeVec
	variants, candidates                                    *prometheus.GaugeVec
	rollouts                                                *prometheus.CounterVec
	cpu, memory, gpu, cpuUsed, used                         *prometheus.GaugeVec
	nodeCPU, nodeMemory, nodeGPU, nodes                     *prometheus.GaugeVec
	shadows                                                 shadowVectors

	mu        sync.RWMutex
	functions map[string]*FunctionMetrics
}

// New returns metrics registered with r. It panics if r has them already, which is a bug
// in the program.
func New(r prometheus.Registerer) *Metrics {
	function := []string{"function"}
	m := &Metrics{
		requests: prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "requests_total"),
			"Requests answered, by function and HTTP status code; 499 stands for a client that hung up.", []string{"function", "code"}, nil),
		inFlight: prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "requests_in_flight"),
			"Requests taken and not yet answered.", function, nil),
		total: histogram("request_duration_seconds", "Time from a request's arrival at the provider to its answer.", requestBuckets),
		queue: histogram("queue_duration_seconds", "Time that a request waited for its batch to start.", partBuckets),
		exec:  histogram("exec_duration_seconds", "Time that a batch took on its instance.", partBuckets),
		cold:  histogram("cold_start_duration_seconds", "Time from the decision to start an instance until it is ready.", coldBuckets),
		batch: histogram("batch_size", "Requests in one batch.", batchBuckets),
		asked: counter("slo_requests_total",
			"Requests that count for the function's SLO: all but those that the client has to change.", function),
		misses:    counter("slo_misses_total", "Requests of slo_requests_total that were late, refused or failed.", function),
		objective: gauge("slo_latency_seconds", "The function's latency objective.", function),
		target: gauge("slo_target_ratio",
			"Part of the requests of slo_requests_total that must be answered within the objective.", function),
		drops: counter("drops_total", "Requests answered without being executed, by reason.", []string{"function", "reason"}),
		passed: counter("access_requests_total",
			"Requests whose caller was let in, also those above the rate, by the name of the API key, at most 100 of a function; other for further ones.", []string{"function", "key"}),
		refused: counter("access_refusals_total",
			"Requests refused because of their caller, by reason; they do not count in requests_total.", []string{"function", "reason"}),
		kept: counter("answer_cache_requests_total",
			"Requests of a function that keeps answers, by outcome: hit if a kept answer was given, otherwise miss.",
			[]string{"function", "outcome"}),
		firstPart: histogram("first_part_duration_seconds", "Time from a request's arrival to the first part of an answer in parts.", requestBuckets),
		parts:     counter("parts_total", "Parts of answers that came in parts.", function),
		instances: gauge("instances", "Ready instances, by config: batch, millicores, share of a GPU.", []string{"function", "config"}),
		variants:  gauge("variant_instances", "Ready instances, by variant of the model and its state: active, overloaded, interfered.", []string{"function", "variant", "state"}),
		candidates: gauge("candidate_share_ratio",
			"Part of the requests that a function's candidate gets in a gradual rollout.", function),
		rollouts: counter("rollouts_total",
			"Gradual rollouts that have ended, by outcome: promoted, or why the candidate was removed.",
			[]string{"function", "outcome"}),
		parked: gauge("parked_instances", "Instances that are loaded and have given back their share of CPU and GPU.", function),
		ratio: gauge("exec_over_predicted_ratio",
			"Measured over predicted time of batches, at the percentile that the prediction is corrected for, by config.", []string{"function", "config"}),
		level: gauge("planned_over_measured_load_ratio",
			"Load that instances are planned for over measured load; above 1 after requests missed the objective.", function),
		provisional: gauge("provisional_profile",
			"1 while a new function is served by a sketch of its model's times, otherwise 0.", function),
		unbatched: gauge("unbatched_model",
			"1 while a model of the function takes one request an execution, otherwise 0.", function),
		cpu:     gauge("allocated_cpu_cores", "Processor cores that a function's instances hold.", function),
		memory:  gauge("allocated_memory_bytes", "Memory that a function's instances hold.", function),
		gpu:     gauge("allocated_gpus", "GPUs that a function's instances hold.", function),
		cpuUsed: gauge("used_cpu_cores", "Processor cores that a function's instances keep busy.", function),
		used:    gauge("used_memory_bytes", "Memory that a function's instances use.", function),
		nodeCPU: gauge("node_cpu_cores", "Processor cores of a node: total and free.", []string{"node", "state"}),
		nodeMemory: gauge("node_memory_bytes", "Memory of a node: total and free.",
			[]string{"node", "state"}),
		nodeGPU:   gauge("node_gpus", "GPUs of a node: total and free.", []string{"node", "state"}),
		nodes:     gauge("nodes_wanted", "Nodes that there should be, by kind: cpu, gpu.", []string{"kind"}),
		shadows:   newShadowVectors(),
		functions: map[string]*FunctionMetrics{},
	}
	r.MustRegister(m.shadows.all()...)
	r.MustRegister(m, m.total, m.queue, m.exec, m.cold, m.batch, m.asked, m.misses, m.objective, m.target, m.drops, m.passed, m.refused, m.kept, m.firstPart, m.parts,
		m.instances, m.variants, m.candidates, m.rollouts, m.parked, m.ratio, m.level, m.provisional, m.unbatched, m.cpu, m.memory, m.gpu, m.cpuUsed, m.used, m.nodeCPU, m.nodeMemory, m.nodeGPU, m.nodes)
	return m
}

// NewCertificate returns the metric of when the certificate of the provider's address expires.
func NewCertificate(expires func() time.Time) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prometheus.BuildFQName(namespace, "", "certificate_expiry_timestamp_seconds"),
		Help: "When the provider's own certificate expires, in seconds since 1970; 0 while it has none.",
	}, func() float64 { return float64(max(0, expires().Unix())) })
}

func histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, []string{"function"})
}

func counter(name, help string, labels []string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func gauge(name, help string, labels []string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

// Function returns the handle of a function by its full name "name.namespace". The first
// call creates it. Keep the handle, because the look-up takes a lock.
func (m *Metrics) Function(name string) *FunctionMetrics {
	m.mu.RLock()
	f, ok := m.functions[name]
	m.mu.RUnlock()
	if ok {
		return f
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if f, ok = m.functions[name]; !ok {
		f = newFunction(m, name)
		m.functions[name] = f
	}
	return f
}

// Remove removes a deleted function's metrics. Handles that callers still hold keep
// working, but Prometheus does not see what they record.
func (m *Metrics) Remove(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f, ok := m.functions[name]; ok {
		delete(m.functions, name)
		f.remove()
	}
}

// SetCandidateShare records which part of a function's requests its candidate gets, 0 to 1.
func (m *Metrics) SetCandidateShare(function string, share float64) {
	m.candidates.WithLabelValues(function).Set(share)
}

// HideCandidateShare removes this number when there is no candidate any more.
func (m *Metrics) HideCandidateShare(function string) { m.candidates.DeleteLabelValues(function) }

// CountRolloutEnd counts a gradual rollout that has ended.
func (m *Metrics) CountRolloutEnd(function, outcome string) {
	m.rollouts.WithLabelValues(function, outcome).Inc()
}

// SetNodesWanted records how many nodes of a kind there should be.
func (m *Metrics) SetNodesWanted(kind string, n int) { m.nodes.WithLabelValues(kind).Set(float64(n)) }

// HideNodesWanted removes these numbers, for a replica that does not lead any more.
func (m *Metrics) HideNodesWanted() { m.nodes.Reset() }

// SetNode records a node's total and free resources.
func (m *Metrics) SetNode(n cluster.Node) {
	for state, r := range map[string]cluster.Resources{"total": n.Total, "free": n.Free} {
		m.nodeCPU.WithLabelValues(n.Name, state).Set(cores(r))
		m.nodeMemory.WithLabelValues(n.Name, state).Set(float64(r.Memory))
		m.nodeGPU.WithLabelValues(n.Name, state).Set(gpus(r))
	}
}

// cores and gpus return r in Prometheus's base units.
func cores(r cluster.Resources) float64 { return float64(r.CPU) / 1000 }
func gpus(r cluster.Resources) float64  { return float64(r.GPU) / 100 }

// Invocations is the number of a function's answers with one status code.
type Invocations struct {
	// Function is the full name, "name.namespace".
	Function string
	Code     int
	Count    uint64
}

// Invocations lists the counts since the provider started, sorted by function and code.
func (m *Metrics) Invocations() []Invocations {
	var out []Invocations
	for _, f := range m.all() {
		for code, n := range *f.codes.Load() {
			out = append(out, Invocations{Function: f.name, Code: code, Count: n.Load()})
		}
	}
	slices.SortFunc(out, func(a, b Invocations) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.Code, b.Code))
	})
	return out
}

func (m *Metrics) all() []*FunctionMetrics {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Collect(maps.Values(m.functions))
}

// Describe is part of prometheus.Collector. Metrics collects only those that it
// counts itself.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.requests
	ch <- m.inFlight
	ch <- m.shadows.relay
}

// Collect is part of prometheus.Collector; see Describe.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, i := range m.Invocations() {
		ch <- prometheus.MustNewConstMetric(m.requests, prometheus.CounterValue, float64(i.Count), i.Function, strconv.Itoa(i.Code))
	}
	for _, f := range m.all() {
		ch <- prometheus.MustNewConstMetric(m.inFlight, prometheus.GaugeValue, float64(f.inFlight()), f.name)
		if relay := f.relayed(); relay.Count > 0 {
			ch <- prometheus.MustNewConstHistogram(m.shadows.relay, relay.Count, relay.Sum, relay.Buckets, f.name)
		}
	}
}
