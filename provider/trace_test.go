package provider

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/trace"
	"github.com/faas-infer/faas-infer/provider/web"
)

// ending records the traces that have ended; others of its methods are those of the tracer.
type ending struct {
	*trace.Tracer
	ended []*frame.Trace
}

func (e *ending) End(t *frame.Trace) {
	e.ended = append(e.ended, t)
	e.Tracer.End(t)
}

// tracing returns a tracer for a share of requests, whose collector is away. It exports nothing by itself, so that a
// test counts only what requests do.
func tracing(t testing.TB, share float64) *ending {
	t.Helper()
	environment := map[string]string{"OTEL_BSP_SCHEDULE_DELAY": "3600000", "OTEL_METRICS_EXPORTER": "none"}
	tracer, err := trace.New(trace.Options{Endpoint: "http://127.0.0.1:1", Sample: share, Getenv: func(name string) string { return environment[name] }, Registry: prometheus.NewRegistry(), Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		tracer.Close(over)
	})
	return &ending{Tracer: tracer}
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A sampled request's trace goes to the dispatcher, and the function sees it as its parent.
func TestTracedRequest(t *testing.T) {
	tracer := tracing(t, 0)
	var got *frame.Request
	r := invoker(t, func(_ context.Context, req *frame.Request) (*frame.Response, error) {
		got = req
		if string(req.Body) == "late" {
			return nil, &retryError{status: 503}
		}
		return &frame.Response{Status: 200, Header: http.Header{}, Late: true}, nil
	}, func(o *Options) { o.Tracer = tracer })
	r.do("POST", "/function/mnist", "x", "traceparent", parent, "tracestate", "a=b")
	r.do("PUT", "/function/mnist", "late", "traceparent", parent)
	r.do("POST", "/function/mnist", strings.Repeat("x", 1<<20), "traceparent", parent, "content-length", "1")
	if len(tracer.ended) != 3 || got.Trace == nil {
		t.Fatalf("%d traces have ended", len(tracer.ended))
	}
	first, second := tracer.ended[0], tracer.ended[1]
	if first.ID() != parent[3:35] || first.Function != "mnist.openfaas-fn" || first.Status != 200 || !first.Late || first.Method != "POST" || first.Step != frame.Served ||
		first.State != "a=b" || first.Begun.IsZero() || first.Ended.Before(first.Begun) {
		t.Errorf("trace %+v", first)
	}
	if second.Status != 503 || second.Method != "PUT" {
		t.Errorf("trace %+v", second)
	}
	if h := got.Header.Get("traceparent"); h != got.Trace.Header()[0] || h[:36] != parent[:36] || h == parent {
		t.Errorf("the function gets the parent %q", h)
	}
	for _, path := range []string{"/function/absent", "/function/", "/system/functions"} { // Names of absent functions are not bounded.
		r.do("POST", path, "x", "traceparent", parent)
	}
	r.do("POST", "/function/mnist", "x")
	if len(tracer.ended) != 3 || got.Trace != nil || !strings.HasSuffix(got.Header.Get("traceparent"), "-00") {
		t.Errorf("%d traces have ended; the last request has the header %q", len(tracer.ended), got.Header)
	}
}

// Without a tracer the headers of a trace reach the function as they came.
func TestTraceHeadersPassThrough(t *testing.T) {
	var got *frame.Request
	r := invoker(t, func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
		got = req
		return echo(ctx, req)
	}, nil)
	r.do("POST", "/function/mnist", "x", "traceparent", parent, "tracestate", "a=b")
	if got.Trace != nil || got.Header.Get("traceparent") != parent || got.Header.Get("tracestate") != "a=b" {
		t.Errorf("%+v", got)
	}
}

// forwarderFunc is a forwarder.
type forwarderFunc func(w http.ResponseWriter, r *http.Request) int

func (f forwarderFunc) Invoke(context.Context, *frame.Request) (*frame.Response, error) {
	return nil, nil
}
func (f forwarderFunc) Forward(w http.ResponseWriter, r *http.Request, _ string, _ time.Duration, _ func(int64) error) int {
	return f(w, r)
}

func TestTracedRequestToAProgram(t *testing.T) {
	tracer := tracing(t, 1)
	var got *frame.Trace
	r := newRig(t, func(o *Options) { o.Tracer = tracer })
	r.controller.dispatcher = forwarderFunc(func(_ http.ResponseWriter, q *http.Request) int {
		if got = frame.TraceOf(q.Context()); got != nil && q.Header.Get("traceparent") != got.Header()[0] {
			t.Errorf("the function gets %q", q.Header)
		}
		return 204
	})
	r.deploy(t, nil)
	r.do("GET", "/function/mnist", "")
	if len(tracer.ended) != 1 || tracer.ended[0] != got || got.Status != 204 || got.Method != "GET" {
		t.Errorf("%+v, the forwarder got %+v", tracer.ended, got)
	}
}

// accepting stores requests in memory.
type accepting struct {
	refused error
	header  http.Header
}

func (a *accepting) Accept(w http.ResponseWriter, r *http.Request, _, _ string) error {
	if a.header = r.Header; a.refused == nil {
		w.WriteHeader(http.StatusAccepted)
	}
	return a.refused
}
func (a *accepting) System(http.ResponseWriter, *http.Request) error { return nil }

// A request that is stored has a span of its own, which is the parent of what follows.
func TestTracedRequestToTheQueue(t *testing.T) {
	tracer, queue := tracing(t, 1), &accepting{}
	r := invoker(t, echo, func(o *Options) { o.Tracer = tracer })
	r.UseAsync(queue)
	r.do("POST", "/async-function/mnist.team-a/x", "x")
	stored := queue.header.Get("traceparent")
	queue.refused = web.Refuse(413, "too large")
	r.do("POST", "/async-function/mnist", "x")
	r.do("POST", "/async-function/absent", "x")
	r.do("POST", "/async-function/%FF", "x")
	if len(tracer.ended) != 2 {
		t.Fatalf("%d traces have ended", len(tracer.ended))
	}
	if s := tracer.ended[0]; s.Step != frame.Published || s.Function != "mnist.team-a" || s.Status != 202 || s.Header()[0] != stored {
		t.Errorf("%+v, stored with %q", s, stored)
	}
	if s := tracer.ended[1]; s.Function != "mnist.openfaas-fn" || s.Status != 413 {
		t.Errorf("%+v", s)
	}
}

// /metrics shows a trace of each bucket to clients that know OpenMetrics, and nothing new to others.
func TestExemplars(t *testing.T) {
	r := invoker(t, echo, func(o *Options) { o.Tracer = tracing(t, 0) })
	r.do("POST", "/function/mnist", "x", "traceparent", parent)
	r.do("POST", "/function/mnist", "x")
	want := `# {trace_id="` + parent[3:35] + `"}`
	open := r.do("GET", "/metrics", "", "Accept", "application/openmetrics-text; version=1.0.0").Body.String()
	if !strings.Contains(open, want) || !strings.Contains(open, `faas_infer_request_duration_seconds_count{function="mnist.openfaas-fn"} 2`) {
		t.Errorf("without %s:\n%.2000s", want, open)
	}
	if text := r.do("GET", "/metrics", "").Body.String(); strings.Contains(text, "trace_id") {
		t.Error("the text format has exemplars")
	}
}

// once serves a small request through a rig.
func (r *rig) once(w *discard, header http.Header) {
	body := bytes.NewReader(zeros[:64])
	clear(w.header)
	r.Handler().ServeHTTP(w, &http.Request{Method: "POST", URL: invokePath, Header: header, Host: "127.0.0.1:8081", RemoteAddr: "127.0.0.1:40000",
		Body: io.NopCloser(body), ContentLength: 64})
}

var invokePath = &url.URL{Path: "/function/mnist.openfaas-fn/v2/models/mnist/infer"}

// traces are the states of tracing that cost different things.
var traces = []struct {
	name   string
	share  float64
	header string
}{{"off", -1, ""}, {"not sampled by its caller", 0, strings.TrimSuffix(parent, "1") + "0"}, {"not sampled", 0, ""}, {"sampled", 1, ""}}

func traced(t testing.TB, share float64) *rig {
	return invoker(t, func(context.Context, *frame.Request) (*frame.Response, error) {
		return &frame.Response{Status: 200, Header: http.Header{}}, nil
	}, func(o *Options) {
		if share >= 0 {
			o.Tracer = tracing(t, share).Tracer
		}
	})
}

// A request whose caller does not sample it costs nothing more than without tracing. A sampled one costs a few
// allocations.
func TestAllocationsOfTracing(t *testing.T) {
	got := map[string]float64{}
	for _, c := range traces {
		r, w := traced(t, c.share), &discard{header: http.Header{}}
		got[c.name] = testing.AllocsPerRun(200, func() {
			h := http.Header{"Content-Type": jsonType, "User-Agent": agent}
			if c.header != "" {
				h["Traceparent"] = []string{c.header}
			}
			r.once(w, h)
		})
	}
	// The caller's header is an allocation of this test.
	if off := got["off"]; got["not sampled by its caller"] > off+1 || got["not sampled"] > off+2 || got["sampled"] > off+12 {
		t.Errorf("allocations for each request: %v", got)
	}
}

// BenchmarkTracing measures what tracing adds to a request at the door.
func BenchmarkTracing(b *testing.B) {
	for _, c := range traces {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			r, w := traced(b, c.share), &discard{header: http.Header{}}
			header := []string{c.header}
			b.ReportAllocs()
			for b.Loop() {
				h := http.Header{"Content-Type": jsonType, "User-Agent": agent}
				if c.header != "" {
					h["Traceparent"] = header
				}
				r.once(w, h)
			}
		})
	}
}
