package trace

import (
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metricscollectorpb "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	metricspb "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// collector is a collector in memory. answer, if not nil, answers instead of it.
type collector struct {
	mu      sync.Mutex
	posts   int
	spans   []*tracepb.Span
	metrics []*metricspb.Metric
	heads   []http.Header
	answer  func(r *http.Request, post int) (*http.Response, error)
}

// RoundTrip implements http.RoundTripper.
func (c *collector) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.posts++
	post, answer := c.posts, c.answer
	c.mu.Unlock()
	if answer != nil {
		if response, err := answer(r, post); response != nil || err != nil {
			return response, err
		}
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w.Result(), nil
}

func (c *collector) tries() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.posts
}

// ServeHTTP implements http.Handler.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heads = append(c.heads, r.Header.Clone())
	body, err := io.ReadAll(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, gzipErr := gzip.NewReader(bytes.NewReader(body))
		if gzipErr != nil {
			http.Error(w, gzipErr.Error(), http.StatusBadRequest)
			return
		}
		body, err = io.ReadAll(unpacked)
	}
	if r.URL.Path == "/v1/metrics" {
		var m metricscollectorpb.ExportMetricsServiceRequest
		err = errors.Join(err, proto.Unmarshal(body, &m))
		for _, of := range m.ResourceMetrics {
			c.metrics = append(c.metrics, of.ScopeMetrics[0].Metrics...)
		}
	} else {
		var m collectorpb.ExportTraceServiceRequest
		err = errors.Join(err, proto.Unmarshal(body, &m))
		for _, of := range m.ResourceSpans {
			c.spans = append(c.spans, of.ScopeSpans[0].Spans...)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// tracerTo returns a tracer that exports spans to a collector in memory, and the function that closes it.
func tracerTo(t *testing.T, c *collector, pairs ...string) *Tracer {
	t.Helper()
	o := options(t)
	o.Getenv = environ(append(pairs, "OTEL_METRICS_EXPORTER", "none")...)
	s, err := parse(o)
	if err != nil {
		t.Fatal(err)
	}
	s.traces.client = &http.Client{Transport: c}
	return start(s, o)
}

func (t *Tracer) counted(reason string) int {
	counter := map[string]prometheus.Counter{"": t.exported, "queue_full": t.full, "failed": t.failed, "rejected": t.rejected}[reason]
	return int(testutil.ToFloat64(counter))
}

// Spans are exported after a while, as soon as the queue is half full, and at the end.
func TestWhenSpansAreExported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{}
		tracer := tracerTo(t, c, "OTEL_BSP_MAX_QUEUE_SIZE", "8", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "3")
		end := func(n int) {
			for range n {
				tracer.End(tracer.Begin(nil, time.Now()))
			}
		}
		exported := func(want, posts int) {
			t.Helper()
			synctest.Wait()
			if c.mu.Lock(); len(c.spans) != want || c.posts != posts {
				t.Errorf("%d spans in %d posts, want %d in %d", len(c.spans), c.posts, want, posts)
			}
			c.mu.Unlock()
		}
		end(2)
		exported(0, 0)
		time.Sleep(5 * time.Second)
		exported(2, 1)
		end(4)
		exported(6, 3)
		end(1)
		if took := closeIn(tracer, 2*time.Second); took != 0 {
			t.Errorf("closing took %v", took)
		}
		exported(7, 4)
		if n := tracer.counted(""); n != 7 {
			t.Errorf("%d count as exported", n)
		}
		end(100) // What comes later disturbs nobody.
	})
}

// A collector that hangs slows nothing: spans beyond the queue are dropped and counted, and so are those in hand at
// the end, which comes in time.
func TestACollectorThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{answer: func(r *http.Request, _ int) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}}
		tracer := tracerTo(t, c, "OTEL_BSP_MAX_QUEUE_SIZE", "8")
		began := time.Now()
		for range 1000 {
			tracer.End(tracer.Begin(nil, time.Now()))
			synctest.Wait()
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the requests took %v", took)
		}
		if full := tracer.counted("queue_full"); full != 1000-4-8 {
			t.Errorf("%d spans are dropped; 4 are in hand and 8 wait", full)
		}
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if n := c.tries(); n != 3 { // A try takes 10 s, and there is a pause after it.
			t.Errorf("%d tries", n)
		}
		if took := closeIn(tracer, 2*time.Second); took > 2*time.Second {
			t.Errorf("closing took %v", took)
		}
		if full, failed, exported := tracer.counted("queue_full"), tracer.counted("failed"), tracer.counted(""); full+failed != 1000 || failed != 12 || exported != 0 {
			t.Errorf("%d + %d spans are dropped, %d exported", full, failed, exported)
		}
	})
}

// A collector that is away is asked again for a while. The same holds for the answers of one that has too much to do.
// Others are final.
func TestACollectorThatIsAway(t *testing.T) {
	refusing := func(code int, header ...string) func(*http.Request, int) (*http.Response, error) {
		return func(_ *http.Request, post int) (*http.Response, error) {
			if post > 2 {
				return nil, nil
			}
			w := httptest.NewRecorder()
			if len(header) > 0 {
				w.Header().Set("Retry-After", header[0])
			}
			w.WriteHeader(code)
			return w.Result(), nil
		}
	}
	gone := errors.New("connection refused")
	for _, c := range []struct {
		name             string
		answer           func(*http.Request, int) (*http.Response, error)
		posts            int
		failed, exported int
		after            time.Duration
	}{
		{"away for a moment", func(_ *http.Request, post int) (*http.Response, error) {
			if post > 2 {
				return nil, nil
			}
			return nil, gone
		}, 3, 0, 1, 3 * time.Second},
		{"away", func(*http.Request, int) (*http.Response, error) { return nil, gone }, 6, 1, 0, 31 * time.Second},
		{"busy", refusing(503), 3, 0, 1, 3 * time.Second},
		{"busy for longer", refusing(429, "7"), 3, 0, 1, 14 * time.Second},
		{"busy for very long", refusing(429, "86400"), 1, 1, 0, time.Second},
		{"no such route", refusing(404), 1, 1, 0, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := &collector{answer: c.answer}
				tracer := tracerTo(t, to)
				tracer.End(tracer.Begin(nil, time.Now()))
				time.Sleep(5*time.Second + c.after)
				synctest.Wait()
				if failed, exported := tracer.counted("failed"), tracer.counted(""); failed != c.failed || exported != c.exported || to.tries() != c.posts {
					t.Errorf("%d failed, %d exported after %d tries, want %d, %d after %d", failed, exported, to.tries(), c.failed, c.exported, c.posts)
				}
				closeIn(tracer, time.Second)
			})
		})
	}
}

// Spans that a collector says that it has refused count as dropped.
func TestSpansThatAreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer, err := proto.Marshal(&collectorpb.ExportTraceServiceResponse{PartialSuccess: &collectorpb.ExportTracePartialSuccess{RejectedSpans: 2}})
		if err != nil {
			t.Fatal(err)
		}
		tracer := tracerTo(t, &collector{answer: func(*http.Request, int) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(bytes.NewReader(answer))}, nil
		}})
		for range 5 {
			tracer.End(tracer.Begin(nil, time.Now()))
		}
		closeIn(tracer, time.Second)
		if rejected, exported := tracer.counted("rejected"), tracer.counted(""); rejected != 2 || exported != 3 {
			t.Errorf("%d rejected, %d exported", rejected, exported)
		}
	})
}

// An export goes over TLS to a collector whose authority the environment names, packed and with headers.
func TestExportOverTLS(t *testing.T) {
	c := &collector{}
	server := httptest.NewTLSServer(c)
	defer server.Close()
	authority := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	o := options(t)
	o.Endpoint, o.Getenv = "", environ("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL, "OTEL_EXPORTER_OTLP_CERTIFICATE", authority,
		"OTEL_EXPORTER_OTLP_COMPRESSION", "gzip", "OTEL_EXPORTER_OTLP_HEADERS", "api-key=k")
	tracer, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	tracer.End(tracer.Begin(nil, time.Now()))
	closeIn(tracer, time.Minute)
	if len(c.spans) != 1 || len(c.metrics) == 0 || len(c.heads) != 2 || c.heads[0].Get("Api-Key") != "k" || c.heads[0].Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("%d spans, %d metrics, headers %v", len(c.spans), len(c.metrics), c.heads)
	}
	if n := tracer.counted(""); n != 1 {
		t.Errorf("%d spans count as exported", n)
	}
}

// Metrics keep their values, with the exemplars of histograms.
func TestMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "c_total", Help: "Counts."}, []string{"function"})
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "g"})
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h_seconds", Buckets: []float64{1, 2, 4}})
	summary := prometheus.NewSummary(prometheus.SummaryOpts{Name: "s", Objectives: map[float64]float64{0.5: 0.1}})
	r.MustRegister(counter, gauge, histogram, summary)
	counter.WithLabelValues("f").Add(3)
	gauge.Set(-1.5)
	const id = "0af7651916cd43dd8448eb211c80319c"
	for _, v := range []float64{0.5, 3, 3, 9} {
		histogram.(prometheus.ExemplarObserver).ObserveWithExemplar(v, prometheus.Labels{"trace_id": id})
	}
	summary.Observe(7)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	began, now := time.Unix(1, 0), time.Unix(2, 0)
	all := map[string]*metricspb.Metric{}
	for _, m := range metricsOf(families, began, now) {
		all[m.Name] = m
	}
	sum := all["c_total"].GetSum()
	if p := sum.DataPoints[0]; !sum.IsMonotonic || p.GetAsDouble() != 3 || p.Attributes[0].Key != "function" || p.Attributes[0].Value.GetStringValue() != "f" ||
		p.StartTimeUnixNano != 1e9 || p.TimeUnixNano != 2e9 || all["c_total"].Description != "Counts." {
		t.Errorf("counter %v", sum)
	}
	if p := all["g"].GetGauge().DataPoints[0]; p.GetAsDouble() != -1.5 {
		t.Errorf("gauge %v", p)
	}
	h := all["h_seconds"].GetHistogram().DataPoints[0]
	if h.Count != 4 || h.GetSum() != 15.5 || !slices.Equal(h.ExplicitBounds, []float64{1, 2, 4}) || !slices.Equal(h.BucketCounts, []uint64{1, 0, 2, 1}) {
		t.Errorf("histogram %v", h)
	}
	if e := h.Exemplars; len(e) != 3 || len(e[0].TraceId) != 16 || e[2].GetAsDouble() != 9 {
		t.Errorf("exemplars %v", e)
	}
	if p := all["s"].GetSummary().DataPoints[0]; p.Count != 1 || p.Sum != 7 || p.QuantileValues[0].Value != 7 {
		t.Errorf("summary %v", p)
	}
}

var _ http.RoundTripper = (*collector)(nil)

// traceAt returns a trace of a request in the middle of its trace, with its times in ms after a beginning.
func traceAt(step frame.Step) *frame.Trace {
	return &frame.Trace{TraceID: [16]byte{1}, SpanID: [8]byte{2}, ParentID: [8]byte{3}, Step: step, Function: "f.ns", Method: "POST", Status: 200, Begun: at(0), Ended: at(100)}
}

func at(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
