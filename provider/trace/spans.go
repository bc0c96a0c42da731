package trace

import (
	"cmp"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// parts are the spans that a trace has besides its own.
type parts struct{ stored, cold, queue, execute, batch bool }

// partsOf returns the spans that a trace has. The first sampled member of a batch has the batch's.
func partsOf(t *frame.Trace) parts {
	x := t.Batch
	alone := x != nil && x.Size == 0
	return parts{
		stored: t.Step == frame.Processed && t.Try <= 1, cold: t.Cold, execute: x != nil,
		queue: !t.Queued.IsZero() && (t.Cold && !t.Up.IsZero() || !t.Cold && !alone),
		batch: x != nil && len(x.Members) > 0 && x.Members[0] == t,
	}
}

// count is the number of spans that appendSpans appends.
func count(t *frame.Trace) int {
	p, n := partsOf(t), 1
	for _, has := range []bool{p.stored, p.cold, p.queue, p.execute, p.batch} {
		if has {
			n++
		}
	}
	return n
}

// Flags of a span: it is sampled; whether its parent is in another process is known; it is.
const (
	flagSampled = 1
	flagKnown   = 1 << 8
	flagRemote  = 1 << 9
)

// appendSpans appends the spans of a trace.
func appendSpans(spans []*tracepb.Span, t *frame.Trace) []*tracepb.Span {
	p, x := partsOf(t), t.Batch
	spans = append(spans, own(t))
	if p.stored {
		s := span(t, "queued", t.Stored, t.Begun)
		s.ParentSpanId, s.Flags = spans[len(spans)-1].ParentSpanId, spans[len(spans)-1].Flags
		spans = append(spans, s)
	}
	up := first(t.Up, t.Sent, t.Ended)
	if p.cold {
		spans = append(spans, span(t, "cold start", t.Queued, up))
	}
	if p.queue {
		from := t.Queued
		if t.Cold {
			from = up
		}
		spans = append(spans, span(t, "queue", from, first(t.Sent, t.Ended)))
	}
	if p.execute {
		s := span(t, "execute", x.Began.Add(x.Waited), x.Ended)
		s.Kind = tracepb.Span_SPAN_KIND_CLIENT
		s.Attributes = append(s.Attributes, text("faas.instance", x.Instance), number("faas_infer.revision", int64(x.Revision)))
		if x.Variant != "" {
			s.Attributes = append(s.Attributes, text("faas_infer.variant", x.Variant))
		}
		if x.Engine > 0 {
			s.Attributes = append(s.Attributes, seconds("faas_infer.engine_seconds", x.Engine))
		}
		if len(x.Members) > 0 {
			id := batchID(x)
			s.Links = []*tracepb.Span_Link{{TraceId: x.Members[0].TraceID[:], SpanId: id[:], Flags: flagSampled | flagKnown}}
		}
		spans = append(spans, s)
	}
	if p.batch {
		spans = append(spans, batch(t))
	}
	return spans
}

// batch is the span of a batch whose first sampled member is t. It links to all of them.
func batch(t *frame.Trace) *tracepb.Span {
	x := t.Batch
	s, id := span(t, "batch", x.Began, x.Ended), batchID(x)
	s.SpanId = id[:]
	s.Attributes = append(s.Attributes, number("faas_infer.batch_size", int64(x.Size)), text("faas.instance", x.Instance))
	for _, m := range x.Members {
		s.Links = append(s.Links, &tracepb.Span_Link{TraceId: m.TraceID[:], SpanId: m.SpanID[:], TraceState: valid(m.State), Flags: flagSampled | flagKnown})
	}
	return s
}

// batchID identifies a batch's span: the complement of its first member's, so that the spans of the other members can
// link to it before it is made.
func batchID(x *frame.Execution) [8]byte {
	id := x.Members[0].SpanID
	for i := range id {
		id[i] = ^id[i]
	}
	return id
}

// own is the span of the whole trace.
func own(t *frame.Trace) *tracepb.Span {
	s := span(t, "", t.Begun, t.Ended)
	s.SpanId, s.ParentSpanId = t.SpanID[:], nil
	if t.ParentID != [8]byte{} {
		s.ParentSpanId = t.ParentID[:]
		if t.Step != frame.CalledBack {
			s.Flags |= flagRemote
		}
	}
	route, least := "", 500
	switch t.Step {
	case frame.Served:
		route, s.Kind = "/function/"+t.Function, tracepb.Span_SPAN_KIND_SERVER
		s.Name = t.Method + " " + route
	case frame.Published:
		route, s.Kind, s.Name = "/async-function/"+t.Function, tracepb.Span_SPAN_KIND_PRODUCER, "publish "+t.Function
	case frame.Processed:
		s.Kind, s.Name, least = tracepb.Span_SPAN_KIND_CONSUMER, "process "+t.Function, 400
		s.Attributes = append(s.Attributes, text("faas.trigger", "pubsub"), text("messaging.system", "nats"), number("faas_infer.try", int64(t.Try)))
	case frame.CalledBack:
		s.Kind, s.Name, least = tracepb.Span_SPAN_KIND_CLIENT, "callback "+t.Function, 400
	case frame.Handed:
		s.Kind, s.Name = tracepb.Span_SPAN_KIND_SERVER, "dispatch "+t.Function
	}
	s.Attributes = append(s.Attributes, text("http.request.method", t.Method))
	s.Name = valid(s.Name)
	if route != "" {
		s.Attributes = append(s.Attributes, text("http.route", route))
	}
	if t.Status != 0 {
		s.Attributes = append(s.Attributes, number("http.response.status_code", int64(t.Status)))
	}
	if !t.Queued.IsZero() {
		s.Attributes = append(s.Attributes, truth("faas.coldstart", t.Cold), truth("faas_infer.late", t.Late))
	}
	if t.Status == 0 || t.Status >= least {
		s.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}
	}
	return s
}

// span returns a part of a trace.
func span(t *frame.Trace, name string, from, to time.Time) *tracepb.Span {
	id := newSpan()
	if to.Before(from) {
		to = from
	}
	return &tracepb.Span{
		TraceId: t.TraceID[:], SpanId: id[:], ParentSpanId: t.SpanID[:], TraceState: valid(t.State), Flags: flagSampled | flagKnown,
		Name: name, Kind: tracepb.Span_SPAN_KIND_INTERNAL, StartTimeUnixNano: uint64(from.UnixNano()), EndTimeUnixNano: uint64(to.UnixNano()),
		Attributes: []*commonpb.KeyValue{text("faas_infer.function", t.Function)},
	}
}

// valid makes a text of bytes that clients sent one that a message may have.
func valid(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// first returns the first time that is not zero.
func first(times ...time.Time) time.Time { return cmp.Or(times...) }

func number(key string, value int64) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: value}}}
}

func seconds(key string, value time.Duration) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: value.Seconds()}}}
}

func truth(key string, value bool) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: value}}}
}
