package async

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/trace"
)

// ending is a tracer that hands over the traces that end.
type ending struct {
	*trace.Tracer
	ended chan *frame.Trace
}

func (e ending) End(t *frame.Trace) { e.ended <- t }

// The trace of a request goes on when it is executed later, at each try, and to its callback.
func TestTraceThroughTheQueue(t *testing.T) {
	tracer, err := trace.New(trace.Options{Endpoint: "http://127.0.0.1:1", Sample: 0, Getenv: func(string) string { return "" }, Registry: prometheus.NewRegistry(), Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		tracer.Close(over)
	}()
	e := ending{tracer, make(chan *frame.Trace, 4)}
	called := make(chan string, 1)
	url := recorder(t, func(_ http.ResponseWriter, r *http.Request) { called <- r.Header.Get("traceparent") })
	seen := make(chan *frame.Request, 4)
	r := start(t, func(ctx context.Context, name string, q *frame.Request) (*frame.Response, error) {
		if seen <- q; len(seen) == 1 {
			return nil, statusError(503)
		}
		return echo(ctx, name, q)
	}, func(o *Options) { o.Tracer = e })
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if w := r.do("POST", "/async-function/echo", "x", "traceparent", parent, "X-Callback-Url", url); w.Code != 202 {
		t.Fatal(w.Body)
	}
	first, second, callback := <-e.ended, <-e.ended, <-e.ended
	for i, of := range []*frame.Trace{first, second} {
		q := <-seen
		status := []int{503, 201}[i]
		if q.Trace != of || of.Step != frame.Processed || of.ID() != parent[3:35] || frame.TraceParent(of.TraceID, of.ParentID, true) != parent || q.Header.Get("traceparent") != of.Header()[0] ||
			of.Try != i+1 || of.Status != status || of.Function != "echo.openfaas-fn" || of.Stored.IsZero() || time.Since(of.Stored) > time.Hour {
			t.Errorf("try %d: %+v", i+1, of)
		}
	}
	if got := <-called; callback.Step != frame.CalledBack || callback.ID() != parent[3:35] || callback.ParentID != second.SpanID || callback.Status != 200 || got != callback.Header()[0] {
		t.Errorf("callback %+v with %q", callback, got)
	}
	if w := r.do("POST", "/async-function/echo", "x"); w.Code != 202 {
		t.Fatal(w.Body)
	}
	if q := <-seen; q.Trace != nil {
		t.Error("a request without a parent is sampled, although the share is 0")
	}
}
