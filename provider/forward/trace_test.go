package forward

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// The trace of a streamed request and of one from the queue has its wait and its execution.
func TestTrace(t *testing.T) {
	r := newRig(t, Options{})
	cold, warm, queued := &frame.Trace{}, &frame.Trace{}, &frame.Trace{}
	stream := func(of *frame.Trace) {
		q := httptest.NewRequestWithContext(frame.WithTrace(t.Context(), of), "GET", "/", nil)
		if code := r.Forward(httptest.NewRecorder(), q, "/", 0, nil); code != 200 {
			t.Errorf("status %d", code)
		}
	}
	in := start(t, "a", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })
	time.AfterFunc(10*time.Millisecond, func() { r.up(in) })
	stream(cold)
	stream(warm)
	q := post("x")
	q.Trace = queued
	if _, err := r.Invoke(t.Context(), q); err != nil {
		t.Error(err)
	}
	r.Forget(in.id)
	late := &frame.Trace{}
	q.Trace = late
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := r.Invoke(ctx, q); err == nil || !late.Cold || late.Queued.IsZero() || !late.Sent.IsZero() || late.Batch != nil {
		t.Errorf("%v: %+v", err, late)
	}
	for _, of := range []*frame.Trace{cold, warm, queued} {
		x := of.Batch
		if of.Cold != (of == cold) || x == nil || x.Instance != "a" || x.Revision != 1 || x.Size != 0 || x.Began != of.Sent || x.Ended.Before(x.Began) || of.Sent.Before(of.Queued) || of.Queued.IsZero() {
			t.Errorf("%+v, execution %+v", of, x)
		}
	}
}
