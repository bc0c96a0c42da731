package trace

import (
	"encoding/hex"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
)

// exportMetrics exports all metrics after each interval, and at the end.
func (t *Tracer) exportMetrics(from prometheus.Gatherer) {
	began := time.Now()
	tick := time.Tick(t.interval)
	for open := true; open; {
		select {
		case <-tick:
		case <-t.open.Done():
			open = false
		}
		families, err := from.Gather()
		if err != nil {
			t.log.Debug().Err(err).Msg("some metrics cannot be read for their export")
		}
		// send logs the error; the next export has the same metrics.
		_, _ = t.send(t.metrics, &collectorpb.ExportMetricsServiceRequest{ResourceMetrics: []*metricspb.ResourceMetrics{{
			Resource:     t.resource,
			ScopeMetrics: []*metricspb.ScopeMetrics{{Scope: &commonpb.InstrumentationScope{Name: "github.com/faas-infer/faas-infer"}, Metrics: metricsOf(families, began, time.Now())}},
		}}})
	}
}

// metricsOf converts Prometheus' metrics, as their exposition formats do.
func metricsOf(families []*dto.MetricFamily, began, now time.Time) []*metricspb.Metric {
	all := make([]*metricspb.Metric, 0, len(families))
	for _, f := range families {
		m := &metricspb.Metric{Name: f.GetName(), Description: f.GetHelp()}
		c := conversion{uint64(began.UnixNano()), uint64(now.UnixNano())}
		switch f.GetType() {
		case dto.MetricType_COUNTER:
			m.Data = &metricspb.Metric_Sum{Sum: &metricspb.Sum{
				DataPoints:             c.numbers(f.GetMetric(), func(m *dto.Metric) float64 { return m.GetCounter().GetValue() }),
				AggregationTemporality: metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE, IsMonotonic: true,
			}}
		case dto.MetricType_HISTOGRAM:
			h := &metricspb.Histogram{AggregationTemporality: metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE}
			for _, of := range f.GetMetric() {
				h.DataPoints = append(h.DataPoints, c.histogram(of))
			}
			m.Data = &metricspb.Metric_Histogram{Histogram: h}
		case dto.MetricType_SUMMARY:
			s := &metricspb.Summary{}
			for _, of := range f.GetMetric() {
				s.DataPoints = append(s.DataPoints, c.summary(of))
			}
			m.Data = &metricspb.Metric_Summary{Summary: s}
		default:
			m.Data = &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{DataPoints: c.numbers(f.GetMetric(), func(m *dto.Metric) float64 {
				return m.GetGauge().GetValue() + m.GetUntyped().GetValue()
			})}}
		}
		all = append(all, m)
	}
	return all
}

// conversion has the times of data points in ns since 1970: when they began to count, and now.
type conversion struct{ began, now uint64 }

func (c conversion) numbers(of []*dto.Metric, value func(*dto.Metric) float64) (points []*metricspb.NumberDataPoint) {
	for _, m := range of {
		points = append(points, &metricspb.NumberDataPoint{
			Attributes: labels(m.GetLabel()), StartTimeUnixNano: c.began, TimeUnixNano: c.now, Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: value(m)},
		})
	}
	return points
}

// histogram converts the counts of all values up to a bound into those between two bounds.
func (c conversion) histogram(m *dto.Metric) *metricspb.HistogramDataPoint {
	h := m.GetHistogram()
	sum := h.GetSampleSum()
	p := &metricspb.HistogramDataPoint{
		Attributes: labels(m.GetLabel()), StartTimeUnixNano: c.began, TimeUnixNano: c.now, Count: h.GetSampleCount(), Sum: &sum,
	}
	below := uint64(0)
	for _, b := range h.GetBucket() {
		if e := b.GetExemplar(); e != nil {
			p.Exemplars = append(p.Exemplars, exemplar(e))
		}
		if math.IsInf(b.GetUpperBound(), 1) {
			continue
		}
		p.ExplicitBounds = append(p.ExplicitBounds, b.GetUpperBound())
		p.BucketCounts = append(p.BucketCounts, b.GetCumulativeCount()-below)
		below = b.GetCumulativeCount()
	}
	p.BucketCounts = append(p.BucketCounts, h.GetSampleCount()-below)
	return p
}

func exemplar(e *dto.Exemplar) *metricspb.Exemplar {
	out := &metricspb.Exemplar{TimeUnixNano: uint64(e.GetTimestamp().AsTime().UnixNano()), Value: &metricspb.Exemplar_AsDouble{AsDouble: e.GetValue()}}
	for _, l := range e.GetLabel() {
		if id, err := hex.DecodeString(l.GetValue()); err == nil && l.GetName() == "trace_id" {
			out.TraceId = id
		}
	}
	return out
}

func (c conversion) summary(m *dto.Metric) *metricspb.SummaryDataPoint {
	s := m.GetSummary()
	p := &metricspb.SummaryDataPoint{
		Attributes: labels(m.GetLabel()), StartTimeUnixNano: c.began, TimeUnixNano: c.now, Count: s.GetSampleCount(), Sum: s.GetSampleSum(),
	}
	for _, q := range s.GetQuantile() {
		p.QuantileValues = append(p.QuantileValues, &metricspb.SummaryDataPoint_ValueAtQuantile{Quantile: q.GetQuantile(), Value: q.GetValue()})
	}
	return p
}

func labels(of []*dto.LabelPair) (out []*commonpb.KeyValue) {
	for _, l := range of {
		out = append(out, text(l.GetName(), l.GetValue()))
	}
	return out
}
