package async

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/retry"
)

// A queue that drains takes nothing more, keeps what the provider refuses because it shuts
// down, whatever try it is, and stores what is still in at Accept.
func TestDrain(t *testing.T) {
	dir, begun, release := t.TempDir(), make(chan struct{}), make(chan struct{})
	once := &deployed{by: map[string]map[string]string{"echo.openfaas-fn": {retry.Attempts: "1"}}}
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) {
		close(begun)
		<-release
		return nil, statusError(503)
	}, func(o *Options) { o.Dir, o.Functions = dir, once })
	g := gateway(t, "nats://"+r.Address(), 5*time.Second)
	r.enqueue(t, "echo", "in hand")
	<-begun
	drained := r.Drain(t.Context())
	if err := g.Publish("faas-request", request("echo", "gateway")); err == nil || !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("a gateway is told %v", err)
	}
	r.enqueue(t, "echo", "still in")
	select {
	case <-drained:
		t.Error("it is drained, and one request is executed")
	default:
	}
	close(release)
	<-drained
	r.letters(t, 0)
	r.stop()
	var done counts
	start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		done.add(string(r.Body))
		return respond(200, ""), nil
	}, func(o *Options) { o.Dir, o.Functions = dir, once })
	until(t, "both are executed", func() bool { return done.different() == 2 })
}

// Requests that do not end are given back when the time to drain is over.
func TestDrainEnds(t *testing.T) {
	begun := make(chan struct{})
	r := start(t, func(ctx context.Context, _ string, _ *frame.Request) (*frame.Response, error) {
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	}, nil)
	r.enqueue(t, "echo", "x")
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	drained := r.Drain(ctx)
	cancel()
	<-drained
	s, err := r.Status(t.Context())
	if err != nil || s.Queued+uint64(s.InFlight) != 1 || s.Dead != 0 {
		t.Errorf("%+v %v", s, err)
	}
}
