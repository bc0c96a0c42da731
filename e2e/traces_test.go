package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// exported is what an OpenTelemetry collector has passed on.
type exported struct {
	mu      sync.Mutex
	spans   []span
	metrics map[string]bool
}

type span struct {
	TraceID      string `json:"traceId"`
	SpanID       string `json:"spanId"`
	ParentSpanID string `json:"parentSpanId"`
	Name         string
	Links        []struct {
		SpanID string `json:"spanId"`
	}
	service string
}

// ServeHTTP takes OTLP in JSON.
func (e *exported) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ResourceSpans []struct {
			Resource   struct{ Attributes []attribute }
			ScopeSpans []struct{ Spans []span }
		}
		ResourceMetrics []struct {
			ScopeMetrics []struct{ Metrics []struct{ Name string } }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, of := range m.ResourceSpans {
		for _, s := range of.ScopeSpans[0].Spans {
			for _, a := range of.Resource.Attributes {
				if a.Key == "service.name" {
					s.service = a.Value.StringValue
				}
			}
			e.spans = append(e.spans, s)
		}
	}
	for _, of := range m.ResourceMetrics {
		for _, metric := range of.ScopeMetrics[0].Metrics {
			e.metrics[metric.Name] = true
		}
	}
}

type attribute struct {
	Key   string
	Value struct{ StringValue string }
}

// of returns the spans of a trace by the first word of their names.
func (e *exported) of(trace string) map[string]span {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[string]span{}
	for _, s := range e.spans {
		if name, _, _ := strings.Cut(s.Name, " "); s.TraceID == trace {
			all[name] = s
		}
	}
	return all
}

// collector starts OpenTelemetry's collector, which passes on all that it gets, until the test ends. It returns its
// URL and its process.
func (p *place) collector(t *testing.T, to string) (string, *os.Process) {
	t.Helper()
	binary, err := script("collector.sh")
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	c := exec.Command(binary, "--config", fmt.Sprintf(`yaml:
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {otlp_http: {endpoint: %q, encoding: json, compression: none}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    traces: {receivers: [otlp], exporters: [otlp_http]}
    metrics: {receivers: [otlp], exporters: [otlp_http]}
`, address, to))
	var log strings.Builder
	c.Stdout, c.Stderr = &log, &log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.network.start(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // Killed.
		if t.Failed() {
			t.Logf("the collector's log ends with\n%s", log.String()[max(0, log.Len()-4000):])
		}
	})
	url := "http://" + address
	await(t, patience, "the collector", func() bool {
		_, err := try(p.network.client(t), http.MethodGet, url, nil)
		return err == nil
	})
	return url, c.Process
}

// The spans of requests, with those of programs and of the queue, and the metrics reach a real collector. One that
// hangs neither slows requests nor the provider's end.
func TestTraces(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.identity(t)
	got := &exported{metrics: map[string]bool{}}
	sink := httptest.NewServer(got)
	defer sink.Close()
	url, collector := p.collector(t, sink.URL)
	p.extra = []string{"OTEL_SERVICE_NAME=traced", "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_BSP_MAX_QUEUE_SIZE=16", "OTEL_METRIC_EXPORT_INTERVAL=200"}
	d := p.provider(t, suite.binary, "--otlp-endpoint", url, "--trace-sample", "1")
	d.deploy(t, function("identity", "identity:latest", "20s"))
	d.deploy(t, ordinary("environment", "env"))
	r, c := p.newReceiver(t), client(t)
	const span = "b7ad6b7169203331"
	parent := func(n int) (trace, header string) {
		trace = fmt.Sprintf("0af7651916cd43dd8448eb211c8031%02d", n)
		return trace, "00-" + trace + "-" + span + "-01"
	}

	model, header := parent(1)
	body, length := identityBody(1)
	if a := do(t, c, http.MethodPost, d.function("identity"), body, "Inference-Header-Content-Length", fmt.Sprint(length), "traceparent", header); a.status != 200 {
		t.Fatal(a)
	}
	program, header := parent(2)
	seen := variables(do(t, c, http.MethodPost, d.function("environment"), nil, "traceparent", header, "tracestate", "a=b").body)
	queued, header := parent(3)
	if a := do(t, c, http.MethodPost, d.url+"/async-function/environment", nil, "traceparent", header, "X-Callback-Url", r.URL, "X-Call-Id", "id"); a.status != 202 {
		t.Fatal(a)
	}
	d.await(t, patience, "all spans and metrics", func() bool {
		got.mu.Lock()
		metrics := got.metrics["faas_infer_request_duration_seconds"] && got.metrics["faas_infer_trace_spans_exported_total"]
		got.mu.Unlock()
		_, called := got.of(queued)["callback"]
		return metrics && called && len(got.of(model)) >= 4 && len(got.of(program)) >= 2
	})
	children := func(trace, of, parent string, names ...string) {
		t.Helper()
		all := got.of(trace)
		if all[of].ParentSpanID != parent || all[of].service != "traced" {
			t.Errorf("%s: %+v", of, all[of])
		}
		for _, name := range names {
			if s, ok := all[name]; !ok || s.ParentSpanID != all[of].SpanID {
				t.Errorf("%s of %s: %+v in %+v", name, of, s, all)
			}
		}
	}
	children(model, "POST", span, "cold", "queue", "execute", "batch")
	spans := got.of(model)
	if b, x := spans["batch"], spans["execute"]; len(b.Links) != 1 || b.Links[0].SpanID != spans["POST"].SpanID || len(x.Links) != 1 || x.Links[0].SpanID != b.SpanID {
		t.Errorf("links of the batch %+v and the execution %+v", b, x)
	}
	children(program, "POST", span, "execute")
	if want := "00-" + program + "-" + got.of(program)["POST"].SpanID + "-01"; seen["Http_Traceparent"] != want || seen["Http_Tracestate"] != "a=b" {
		t.Errorf("the program saw %q and %q, want %q", seen["Http_Traceparent"], seen["Http_Tracestate"], want)
	}
	spans = got.of(queued)
	children(queued, "publish", span, "process", "queued")
	children(queued, "process", spans["publish"].SpanID, "execute", "callback")
	called, _ := r.of("id")
	if h, want := called.header.Get("traceparent"), "00-"+queued+"-"+spans["callback"].SpanID+"-01"; h != want || !strings.Contains(called.body, "Http_Traceparent=00-"+queued+"-"+spans["process"].SpanID+"-01\n") {
		t.Errorf("the callback has %q, want %q, and the program saw %s", h, want, called.body)
	}

	if err := collector.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if err := invokeIdentity(c, d.function("identity"), i); err != nil {
			t.Fatalf("while the collector hangs: %v", err)
		}
	}
	dropped := 0.0
	for _, m := range d.metrics(t)["faas_infer_trace_spans_dropped_total"].GetMetric() {
		dropped += m.GetCounter().GetValue()
	}
	if dropped == 0 {
		t.Error("no span counts as dropped")
	}
	d.stop(t)
}
