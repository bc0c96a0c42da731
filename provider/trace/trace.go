// Package trace samples requests, makes spans of what the provider noted about them in [frame.Trace], and exports
// these and the provider's metrics to an OpenTelemetry collector (OTLP over HTTP). The request path only asks
// [Tracer.Begin] and hands finished traces to [Tracer.End], which queues them; everything else happens in goroutines
// of this package. It measures no times itself. Begin reading at [New].
//
// It uses OpenTelemetry's messages without its SDK. Each instance is a process of this program: the SDK's exporters
// import gRPC, which would add 9 MB to the program.
package trace

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// Options configure a Tracer.
type Options struct {
	// Endpoint is the URL of the collector, without v1/traces. It goes before the environment's; with none,
	// nothing is traced or exported.
	Endpoint string
	// Sample is the share of requests to sample among those whose callers say nothing. It goes before the
	// environment's unless it is negative.
	Sample float64
	// Getenv reads the standard variables, such as OTEL_SERVICE_NAME.
	Getenv func(name string) string
	// Version is that of the program.
	Version string
	// Registry gets the exporter's own metrics, and has all that are exported.
	Registry interface {
		prometheus.Registerer
		prometheus.Gatherer
	}
	Logger zerolog.Logger
}

// Tracer samples requests and exports their spans. Its methods are safe for concurrent use.
type Tracer struct {
	settings
	queue chan *frame.Trace
	// wake has a value when the queue is half full.
	wake chan struct{}
	// exported, full, failed and rejected count spans.
	exported, full, failed, rejected prometheus.Counter
	log                              zerolog.Logger
	// open ends when Close begins, alive when its time is over.
	open, alive context.Context
	close, kill context.CancelFunc
	running     sync.WaitGroup
}

// New starts a tracer. It returns nil if the options and the environment name no collector. An error names the
// variable or flag that is wrong.
func New(o Options) (*Tracer, error) {
	s, err := parse(o)
	if err != nil || s.traces == nil && s.metrics == nil {
		return nil, err
	}
	return start(s, o), nil
}

func start(s settings, o Options) *Tracer {
	t := &Tracer{settings: s, queue: make(chan *frame.Trace, s.queueSize), wake: make(chan struct{}, 1), log: o.Logger}
	t.open, t.close = context.WithCancel(context.Background())
	t.alive, t.kill = context.WithCancel(context.Background())
	t.register(o.Registry)
	if s.traces != nil {
		t.running.Go(t.exportSpans)
	}
	if s.metrics != nil {
		t.running.Go(func() { t.exportMetrics(o.Registry) })
	}
	return t
}

// Traces reports whether spans are exported, and not metrics only.
func (t *Tracer) Traces() bool { return t.traces != nil }

// Close exports what is queued and ends the tracer, within ctx. It counts what it could not export.
func (t *Tracer) Close(ctx context.Context) {
	defer context.AfterFunc(ctx, t.kill)()
	t.close()
	t.running.Wait()
	t.kill()
	for _, s := range []*sender{t.traces, t.metrics} {
		if s != nil {
			s.client.CloseIdleConnections()
		}
	}
}

// Begin returns the trace of a request with this header that came at a time, nil if it is not sampled. It makes the
// request's span the parent of what gets the header.
func (t *Tracer) Begin(h http.Header, at time.Time) *frame.Trace {
	parent, known := parseParent(h[frame.ParentHeader])
	if known && t.parentBased && !parent.sampled {
		return nil
	}
	id, span := parent.trace, newSpan()
	if !known {
		binary.BigEndian.PutUint64(id[:], newNumber())
		binary.BigEndian.PutUint64(id[8:], newNumber())
		delete(h, frame.StateHeader) // It belongs to no parent.
	}
	if sampled := known && t.parentBased || t.takes(id); !sampled {
		if h != nil { // What follows must not sample it either.
			h[frame.ParentHeader] = []string{frame.TraceParent(id, span, false)}
		}
		return nil
	}
	of := &frame.Trace{TraceID: id, SpanID: span, ParentID: parent.span, Begun: at}
	if state := strings.Join(h[frame.StateHeader], ","); len(state) <= maxState {
		of.State = state
	}
	if header := of.Header(); h != nil {
		h[frame.ParentHeader] = header
	}
	return of
}

// maxState is the longest tracestate in bytes that spans show. Any is passed on.
const maxState = 512

// Child returns a trace for a part of another one that begins at a time.
func (t *Tracer) Child(of *frame.Trace, at time.Time) *frame.Trace {
	child := &frame.Trace{TraceID: of.TraceID, SpanID: newSpan(), ParentID: of.SpanID, State: of.State, Begun: at}
	child.Header()
	return child
}

// End takes a trace that is over now. If too many wait for their export, its spans are dropped and counted.
func (t *Tracer) End(of *frame.Trace) {
	of.Ended = time.Now()
	select {
	case t.queue <- of:
	default:
		t.full.Add(float64(count(of)))
		return
	}
	if len(t.queue) == cap(t.queue)/2 {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// takes reports whether a request without a parent is sampled, by its trace's identifier, as OpenTelemetry's SDKs
// decide it.
func (s *settings) takes(id [16]byte) bool { return binary.BigEndian.Uint64(id[8:])>>1 < s.bound }

func newNumber() uint64 { return cmp.Or(rand.Uint64(), 1) }

func newSpan() (span [8]byte) {
	binary.BigEndian.PutUint64(span[:], newNumber())
	return span
}

// parent is a value of [frame.ParentHeader].
type parent struct {
	trace   [16]byte
	span    [8]byte
	sampled bool
}

// parseParent reads the values of [frame.ParentHeader], of which there must be one. A later version may have more
// fields at its end.
func parseParent(values []string) (p parent, ok bool) {
	if len(values) != 1 {
		return p, false
	}
	v := values[0]
	if len(v) < 55 || v[2] != '-' || v[35] != '-' || v[52] != '-' || len(v) > 55 && (v[:2] == "00" || v[55] != '-') ||
		strings.ContainsFunc(v[:55], func(r rune) bool { return r >= 'A' && r <= 'F' }) {
		return p, false
	}
	var version, flags [1]byte
	for _, field := range []struct {
		into []byte
		text string
	}{{version[:], v[:2]}, {p.trace[:], v[3:35]}, {p.span[:], v[36:52]}, {flags[:], v[53:55]}} {
		if _, err := hex.Decode(field.into, []byte(field.text)); err != nil {
			return parent{}, false
		}
	}
	if version[0] == 0xff || p.trace == [16]byte{} || p.span == [8]byte{} {
		return parent{}, false
	}
	p.sampled = flags[0]&1 == 1
	return p, true
}
