package trace

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/backoff"
)

const (
	namespace = "faas_infer"
	// maxTrying is how long an export is tried again. maxAnswer is the most bytes that are read of an answer.
	maxTrying = 30 * time.Second
	maxAnswer = 64 << 10
)

func (t *Tracer) register(r prometheus.Registerer) {
	t.exported = prometheus.NewCounter(prometheus.CounterOpts{Name: prometheus.BuildFQName(namespace, "", "trace_spans_exported_total"),
		Help: "Spans that the collector has taken."})
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prometheus.BuildFQName(namespace, "", "trace_spans_dropped_total"),
		Help: "Spans that were not exported, by reason: queue_full, failed (the collector was away, or refused them all), rejected (it refused some)."}, []string{"reason"})
	t.full, t.failed, t.rejected = dropped.WithLabelValues("queue_full"), dropped.WithLabelValues("failed"), dropped.WithLabelValues("rejected")
	r.MustRegister(t.exported, dropped)
}

// exportSpans exports what is queued after each delay, and as soon as the queue is half full. A request need not wake
// this goroutine, which would cost it more than the rest of its trace.
func (t *Tracer) exportSpans() {
	tick := time.Tick(t.delay)
	for {
		select {
		case <-tick:
		case <-t.wake:
		case <-t.open.Done():
			t.flush()
			return
		}
		t.flush()
	}
}

// flush exports all that is queued now.
func (t *Tracer) flush() {
	var spans []*tracepb.Span
	for left := len(t.queue); left > 0; left-- {
		if spans = appendSpans(spans, <-t.queue); len(spans) >= t.batchSize || left == 1 {
			t.sendSpans(spans)
			spans = nil
		}
	}
}

func (t *Tracer) sendSpans(spans []*tracepb.Span) {
	scope := &commonpb.InstrumentationScope{Name: "github.com/faas-infer/faas-infer"}
	answer, err := t.send(t.traces, &collectorpb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: t.resource, ScopeSpans: []*tracepb.ScopeSpans{{Scope: scope, Spans: spans}},
	}}})
	if err != nil {
		t.failed.Add(float64(len(spans)))
		return
	}
	var taken collectorpb.ExportTraceServiceResponse
	rejected := 0
	if proto.Unmarshal(answer, &taken) == nil { // The collector has taken them also if its answer cannot be read.
		rejected = min(len(spans), max(0, int(taken.GetPartialSuccess().GetRejectedSpans())))
	}
	t.rejected.Add(float64(rejected))
	t.exported.Add(float64(len(spans) - rejected))
}

// sender sends one signal to the collector. One goroutine uses it.
type sender struct {
	// to is the URL, name that of the collector without a password.
	to, name string
	header   http.Header
	timeout  time.Duration
	client   *http.Client
	// failing: the latest export failed.
	failing bool
}

// send exports a message and logs when that begins to fail, and when it ends to.
func (t *Tracer) send(s *sender, m proto.Message) (answer []byte, err error) {
	body, err := proto.Marshal(m)
	if err == nil {
		answer, err = t.deliver(s, body)
	}
	switch {
	case err != nil && !s.failing:
		t.log.Warn().Err(err).Str("collector", s.name).Msg("cannot export to the OpenTelemetry collector; spans that it misses are dropped and counted")
	case err == nil && s.failing:
		t.log.Info().Str("collector", s.name).Msg("the OpenTelemetry collector takes exports again")
	}
	s.failing = err != nil
	return answer, err
}

// deliver posts a body, again while that may help, until Close.
func (t *Tracer) deliver(s *sender, body []byte) ([]byte, error) {
	began := time.Now()
	for n := 1; ; n++ {
		answer, err := s.post(t.alive, body)
		var final *refusedError
		if err == nil || errors.As(err, &final) && final.after < 0 {
			return answer, err
		}
		pause := backoff.Pause(n, time.Second, 8*time.Second)
		if final != nil {
			pause = max(pause, final.after)
		}
		if time.Since(began)+pause > maxTrying || !backoff.Wait(t.open, pause) {
			return nil, err
		}
	}
}

// refusedError is an answer with another status than 2xx. after is the time that the collector asks for before the
// next try, negative if there shall be none.
type refusedError struct {
	status string
	after  time.Duration
}

// Error implements error.
func (e *refusedError) Error() string { return "the collector answers " + e.status }

// post makes one try.
func (s *sender) post(ctx context.Context, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if s.header.Get("Content-Encoding") == "gzip" {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(body); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		body = packed.Bytes()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.to, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = s.header
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch code := response.StatusCode; {
	case code >= 200 && code <= 299:
		if err != nil {
			err = fmt.Errorf("read the collector's answer: %w", err)
		}
		return answer, err
	case code == http.StatusTooManyRequests || code >= http.StatusBadGateway && code <= http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // Absent or a date: the usual pause.
		return nil, &refusedError{response.Status, time.Duration(max(0, seconds)) * time.Second}
	}
	return nil, &refusedError{response.Status, -1}
}
