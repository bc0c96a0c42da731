package frame

import (
	"context"
	"encoding/hex"
	"time"
)

// Trace is what the spans of a sampled request are made of once it has its answer: who it is, and when it took
// its steps. Each field is written before the request's answer is handed out. A request that is not sampled has
// none. The frame does not have it: an instance gets the headers traceparent and tracestate.
type Trace struct {
	// TraceID and SpanID identify the request's span; ParentID is the caller's, zero if there is none.
	TraceID          [16]byte
	SpanID, ParentID [8]byte
	// State is the caller's tracestate, "" if there is none.
	State string
	// Begun is when the request came.
	Begun time.Time
	// Queued is since when it waits for an instance, zero if it never got so far. Cold: there was none that is
	// ready. Up is when the one came up that answered a cold request, and Sent when the request left the queue;
	// both are zero before.
	Queued, Up, Sent time.Time
	Cold             bool
	// Batch is the execution of the request, nil if it has none.
	Batch *Execution
	// Step is what the provider did with the request, for the function named Function, until Ended. Method is that
	// of HTTP. Status is the HTTP status code of the answer, 0 if there was none. Late: it came after the
	// objective.
	Step             Step
	Function, Method string
	Ended            time.Time
	Status           int
	Late             bool
	// Stored is when the request of a Processed step came into the queue, and Try counts its deliveries from 1.
	Stored time.Time
	Try    int

	// header is the value of the request's traceparent.
	header [1]string
}

// Step is a part of a request's way that has a span of its own.
type Step uint8

// The steps: an answer to a client, storing a request in the queue, executing one from there, telling the result
// to a callback URL, and executing a request for another replica.
const (
	Served Step = iota
	Published
	Processed
	CalledBack
	Handed
)

// Execution is one exchange with an instance, for a batch or a single request.
type Execution struct {
	// Began is when it was sent and Ended when its answer was read.
	Began, Ended time.Time
	// Engine is the time in the engine and Waited the wait behind another batch, by the instance; 0 if it does
	// not say.
	Engine, Waited time.Duration
	// Size is the number of requests, 0 if the instance executes no batches. Members are the sampled ones.
	Size    int
	Members []*Trace
	// Instance, Variant and Revision are those of [Response].
	Instance, Variant string
	Revision          uint64
}

// Headers of a trace (W3C Trace Context), as [http.Header] has them.
const (
	ParentHeader = "Traceparent"
	StateHeader  = "Tracestate"
)

// ID is the trace's identifier in hexadecimal digits.
func (t *Trace) ID() string { return t.Header()[0][3:35] }

// Header is the value of [ParentHeader] under which the request's span is the parent. The slice belongs to t. The
// first call makes it, so it must come before other goroutines have t.
func (t *Trace) Header() []string {
	if t.header[0] == "" {
		t.header[0] = TraceParent(t.TraceID, t.SpanID, true)
	}
	return t.header[:]
}

// TraceParent is a value of [ParentHeader].
func TraceParent(trace [16]byte, span [8]byte, sampled bool) string {
	text := [55]byte{0: '0', 1: '0', 2: '-', 35: '-', 52: '-', 53: '0', 54: '0'}
	hex.Encode(text[3:], trace[:])
	hex.Encode(text[36:], span[:])
	if sampled {
		text[54] = '1'
	}
	return string(text[:])
}

type traceKey struct{}

// WithTrace returns a context for a request that streams and is no [Request].
func WithTrace(ctx context.Context, t *Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceOf returns the trace of [WithTrace], nil if there is none.
func TraceOf(ctx context.Context) *Trace {
	t, _ := ctx.Value(traceKey{}).(*Trace)
	return t
}
