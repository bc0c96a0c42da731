package trace

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// environ is an environment for tests.
func environ(pairs ...string) func(string) string {
	values := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return values[name] }
}

// sampling returns a tracer that exports nothing.
func sampling(t testing.TB, share float64, pairs ...string) *Tracer {
	t.Helper()
	s, err := parse(Options{Endpoint: "http://127.0.0.1:1", Sample: share, Getenv: environ(pairs...)})
	if err != nil {
		t.Fatal(err)
	}
	return &Tracer{settings: s, queue: make(chan *frame.Trace, s.queueSize), wake: make(chan struct{}, 1)}
}

const (
	sampledParent   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampledParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func TestParents(t *testing.T) {
	for value, want := range map[string]string{
		sampledParent:   "sampled",
		unsampledParent: "not",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03":      "sampled", // With the flag for random identifiers.
		"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":      "sampled",
		"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more": "sampled",
		"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more": "",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more": "",
		"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":      "",
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01":      "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01":      "",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01":      "",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-001":      "",
		"00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01":      "",
		"":                       "",
		"\xff\xfe":               "",
		strings.Repeat("0", 55):  "",
		strings.Repeat("-", 500): "",
	} {
		p, ok := parseParent([]string{value})
		got := map[bool]string{true: "sampled", false: "not"}[p.sampled]
		if !ok {
			got = ""
		}
		if got != want || ok && (hex.EncodeToString(p.trace[:]) != value[3:35] || hex.EncodeToString(p.span[:]) != value[36:52]) {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
	if _, ok := parseParent([]string{sampledParent, sampledParent}); ok {
		t.Error("two parents are one too many")
	}
}

// A caller's decision counts; without one the share decides. All that follows gets the same decision.
func TestSampling(t *testing.T) {
	for _, c := range []struct {
		name    string
		share   float64
		env     []string
		parent  string
		sampled bool
		follows string // "same": the parent's header; "sampled", "not": another span, with that flag.
	}{
		{"all", 1, nil, "", true, "sampled"},
		{"none", 0, nil, "", false, "not"},
		{"a sampled parent", 0, nil, sampledParent, true, "sampled"},
		{"a parent that is not sampled", 1, nil, unsampledParent, false, "same"},
		{"a broken parent", 1, nil, sampledParent[1:], true, "sampled"},
		{"the flag over the environment", 1, []string{"OTEL_TRACES_SAMPLER", "always_off"}, "", true, "sampled"},
		{"the environment", -1, []string{"OTEL_TRACES_SAMPLER", "parentbased_always_on"}, "", true, "sampled"},
		{"a ratio without a number", -1, []string{"OTEL_TRACES_SAMPLER", "traceidratio"}, "", true, "sampled"},
		{"off whatever the parent says", -1, []string{"OTEL_TRACES_SAMPLER", "always_off"}, sampledParent, false, "not"},
		{"on whatever the parent says", -1, []string{"OTEL_TRACES_SAMPLER", "always_on"}, unsampledParent, true, "sampled"},
		{"the environment's share", -1, []string{"OTEL_TRACES_SAMPLER_ARG", "1"}, "", true, "sampled"},
	} {
		h := http.Header{"Traceparent": {c.parent}, "Tracestate": {"a=1", "b=2"}}
		if c.parent == "" {
			delete(h, "Traceparent")
		}
		now := time.Now()
		got := sampling(t, c.share, c.env...).Begin(h, now)
		if (got != nil) != c.sampled {
			t.Errorf("%s: sampled is %v", c.name, got != nil)
			continue
		}
		after := h.Get("traceparent")
		p, ok := parseParent([]string{after})
		switch {
		case c.follows == "same":
			if after != c.parent {
				t.Errorf("%s: the header is %q", c.name, after)
			}
		case !ok || p.sampled != (c.follows == "sampled"):
			t.Errorf("%s: the header is %q", c.name, after)
		case len(c.parent) == 55 && (after[:36] != c.parent[:36] || after[36:52] == c.parent[36:52]):
			t.Errorf("%s: the header is %q, which belongs to no child of %q", c.name, after, c.parent)
		}
		if kept := h.Values("tracestate"); (len(kept) == 2) != (len(c.parent) == 55) {
			t.Errorf("%s: tracestate is %q", c.name, kept)
		}
		if got != nil && (got.Begun != now || got.ID() != after[3:35] || hex.EncodeToString(got.SpanID[:]) != after[36:52] || (got.State == "a=1,b=2") != (len(c.parent) == 55)) {
			t.Errorf("%s: %+v for %q", c.name, got, after)
		}
	}
	if sampling(t, 1).Begin(nil, time.Now()) == nil || sampling(t, 0).Begin(nil, time.Now()) != nil {
		t.Error("without headers the share decides, too")
	}
}

// The share is that of the requests, and the same identifiers are sampled everywhere.
func TestShare(t *testing.T) {
	tracer := sampling(t, 0.25)
	id := [16]byte{8: 0x3f, 9: 0xff} // Seven eighths of the way to a quarter of 2^64 would be sampled.
	if !tracer.takes(id) {
		t.Errorf("%x is not sampled", id)
	}
	if id[8] = 0x40; tracer.takes(id) {
		t.Errorf("%x is sampled", id)
	}
	n := 0
	for range 20000 {
		if tracer.Begin(nil, time.Time{}) != nil {
			n++
		}
	}
	if n < 4500 || n > 5500 { // 5000 ± 8 σ.
		t.Errorf("%d of 20000 are sampled, want a quarter", n)
	}
}

func TestSettingsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"no URL", Options{Endpoint: "localhost:4318", Sample: -1}, "--otlp-endpoint: it must be the URL"},
		{"no URL in the environment", Options{Sample: -1, Getenv: environ("OTEL_EXPORTER_OTLP_ENDPOINT", "unix:///x")}, "OTEL_EXPORTER_OTLP_ENDPOINT: it must be the URL"},
		{"share", Options{Endpoint: "http://a", Sample: 1.5}, "--trace-sample is 1.5: it must be a number from 0 to 1"},
		{"share in the environment", Options{Endpoint: "http://a", Sample: -1, Getenv: environ("OTEL_TRACES_SAMPLER_ARG", "NaN")}, "OTEL_TRACES_SAMPLER_ARG is NaN"},
		{"sampler", Options{Endpoint: "http://a", Sample: -1, Getenv: environ("OTEL_TRACES_SAMPLER", "jaeger_remote")}, `OTEL_TRACES_SAMPLER is "jaeger_remote"`},
		{"protocol", Options{Endpoint: "http://a", Sample: -1, Getenv: environ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")}, `the OTLP protocol is "grpc": only http/protobuf`},
		{"headers", Options{Endpoint: "http://a", Sample: -1, Getenv: environ("OTEL_EXPORTER_OTLP_HEADERS", "secret")}, "OTEL_EXPORTER_OTLP_HEADERS: it must be name=value"},
		{"compression", Options{Endpoint: "http://a", Sample: -1, Getenv: environ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd")}, `compression is "zstd"`},
		{"timeout", Options{Endpoint: "http://a", Sample: -1, Getenv: environ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "10s")}, `OTEL_EXPORTER_OTLP_TRACES_TIMEOUT is "10s": it must be a whole number`},
		{"queue", Options{Endpoint: "http://a", Sample: -1, Getenv: environ("OTEL_BSP_MAX_QUEUE_SIZE", "0")}, `OTEL_BSP_MAX_QUEUE_SIZE is "0"`},
		{"certificate", Options{Endpoint: "https://a", Sample: -1, Getenv: environ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/dev/null")}, "OTEL_EXPORTER_OTLP_CERTIFICATE: /dev/null has no certificate"},
		{"client's certificate", Options{Endpoint: "https://a", Sample: -1, Getenv: environ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/dev/null")}, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"},
		{"exporter", Options{Endpoint: "http://a", Sample: -1, Getenv: environ("OTEL_METRICS_EXPORTER", "prometheus")}, `OTEL_METRICS_EXPORTER is "prometheus"`},
		{"attributes", Options{Endpoint: "http://a", Sample: -1, Getenv: environ("OTEL_RESOURCE_ATTRIBUTES", "a")}, `OTEL_RESOURCE_ATTRIBUTES: "a" is no name=value`},
	} {
		if c.o.Getenv == nil {
			c.o.Getenv = environ()
		}
		if _, err := New(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

func TestWithoutACollectorThereIsNone(t *testing.T) {
	for _, getenv := range []func(string) string{
		environ(),
		environ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a", "OTEL_SDK_DISABLED", "true"),
		environ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a", "OTEL_TRACES_EXPORTER", "none", "OTEL_METRICS_EXPORTER", "none"),
	} {
		if tracer, err := New(Options{Sample: -1, Getenv: getenv}); tracer != nil || err != nil {
			t.Errorf("%v, %v", tracer, err)
		}
	}
}

func TestSettingsOfTheEnvironment(t *testing.T) {
	s, err := parse(Options{Sample: -1, Version: "v1", Getenv: environ(
		"OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318/base/", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "https://metrics/as-it-is",
		"OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x, b=2", "OTEL_EXPORTER_OTLP_TIMEOUT", "500", "OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "gzip",
		"OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment.name=a%2Cb", "OTEL_SERVICE_NAME", "mine",
		"OTEL_BSP_SCHEDULE_DELAY", "7", "OTEL_METRIC_EXPORT_INTERVAL", "8", "OTEL_BSP_MAX_QUEUE_SIZE", "9", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10",
	)})
	if err != nil {
		t.Fatal(err)
	}
	if s.traces.to != "http://all:4318/base/v1/traces" || s.metrics.to != "https://metrics/as-it-is" {
		t.Errorf("traces go to %s, metrics to %s", s.traces.to, s.metrics.to)
	}
	if h := s.traces.header; h.Get("Authorization") != "Bearer x" || h.Get("B") != "2" || h.Get("Content-Encoding") != "" || s.metrics.header.Get("Content-Encoding") != "gzip" {
		t.Errorf("headers %q and %q", h, s.metrics.header)
	}
	if s.traces.timeout != 500*time.Millisecond || s.delay != 7*time.Millisecond || s.interval != 8*time.Millisecond || s.queueSize != 9 || s.batchSize != 10 {
		t.Errorf("%+v", s)
	}
	got := map[string]string{}
	for _, a := range s.resource.Attributes {
		got[a.Key] = a.Value.GetStringValue()
	}
	delete(got, "service.instance.id")
	if want := "map[deployment.environment.name:a,b service.name:mine service.version:v1]"; fmt.Sprint(got) != want {
		t.Errorf("resource %v, want %s", got, want)
	}
	s, err = parse(Options{Endpoint: "http://flag", Sample: -1, Getenv: environ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://env/x", "OTEL_METRICS_EXPORTER", "none")})
	if err != nil || s.traces.to != "http://flag/v1/traces" || s.metrics != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

// A sampled request costs little, and one that is not sampled hardly anything.
func BenchmarkSampled(b *testing.B) {
	tracer := sampling(b, 1)
	h := http.Header{"Traceparent": {sampledParent}}
	b.ReportAllocs()
	for b.Loop() {
		h["Traceparent"] = []string{sampledParent}
		tracer.End(tracer.Begin(h, time.Now()))
		<-tracer.queue
	}
}

func BenchmarkUnsampled(b *testing.B) {
	tracer := sampling(b, 0)
	h := http.Header{}
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		delete(h, "Traceparent")
		tracer.Begin(h, now)
	}
}

// options returns options with a registry of their own.
func options(t *testing.T) Options {
	t.Helper()
	return Options{Endpoint: "http://collector", Sample: 1, Getenv: environ(), Registry: prometheus.NewRegistry(), Logger: zerolog.New(zerolog.NewTestWriter(t))}
}

// closeIn closes a tracer within a time and returns how long that took.
func closeIn(tracer *Tracer, within time.Duration) time.Duration {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	tracer.Close(ctx)
	return time.Since(began)
}
