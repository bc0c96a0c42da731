package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Service is a function's number of instances, for [Gateway].
type Service struct {
	// Function is the full name, "name.namespace".
	Function string
	// Replicas is the number of instances planned, Ready that of the ready ones, and Min the
	// number that is kept even without load.
	Replicas, Ready, Min uint64
}

// Gateway is a prometheus.Collector of the metrics that OpenFaaS documents for its gateway, for
// dashboards and alerts that ask for these names. It counts nothing itself: its values are those of
// Metrics.
type Gateway struct {
	metrics  *Metrics
	services func() []Service
}

var (
	total    = gatewayDesc(invocations, "Requests answered, by function and HTTP status code.", labelCode)
	started  = gatewayDesc("gateway_function_invocation_started", "Requests taken.")
	seconds  = gatewayDesc("gateway_functions_seconds", "Time from a request's arrival to its answer.")
	replicas = gatewayDesc("gateway_service_count", "Instances planned.")
	ready    = gatewayDesc("gateway_service_ready_count", "Ready instances.")
	minimum  = gatewayDesc("gateway_service_min", "Instances that are kept even without load.")
)

func gatewayDesc(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{labelFunction}, more...), nil)
}

// NewGateway returns the gateway's metrics. services lists the deployed functions.
func NewGateway(m *Metrics, services func() []Service) *Gateway { return &Gateway{m, services} }

// Describe is part of prometheus.Collector.
func (g *Gateway) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{total, started, seconds, replicas, ready, minimum} {
		ch <- d
	}
}

// Collect is part of prometheus.Collector.
func (g *Gateway) Collect(ch chan<- prometheus.Metric) {
	for _, i := range g.metrics.Invocations() {
		ch <- prometheus.MustNewConstMetric(total, prometheus.CounterValue, float64(i.Count), i.Function, strconv.Itoa(i.Code))
	}
	for _, f := range g.metrics.all() {
		ch <- prometheus.MustNewConstMetric(started, prometheus.CounterValue, float64(f.started.Load()), f.name)
		if h := f.total.read(); h != nil {
			buckets := make(map[float64]uint64, len(h.GetBucket()))
			for _, b := range h.GetBucket() {
				buckets[b.GetUpperBound()] = b.GetCumulativeCount()
			}
			ch <- prometheus.MustNewConstHistogram(seconds, h.GetSampleCount(), h.GetSampleSum(), buckets, f.name)
		}
	}
	for _, s := range g.services() {
		for desc, n := range map[*prometheus.Desc]uint64{replicas: s.Replicas, ready: s.Ready, minimum: s.Min} {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), s.Function)
		}
	}
}

// read returns the histogram's values, nil if it has none yet.
func (l *late) read() *dto.Histogram {
	o := l.has.Load()
	if o == nil {
		return nil
	}
	m, ok := (*o).(prometheus.Metric)
	if !ok {
		return nil
	}
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		return nil
	}
	return out.GetHistogram()
}
