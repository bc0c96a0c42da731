package provider

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
)

func TestShutdownWaitsForWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := invoker(t, func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
			<-release
			return echo(ctx, req)
		}, nil)
		answered := make(chan int)
		go func() { answered <- r.do("POST", "/function/mnist", "x").Code }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 requests") {
			t.Errorf("Shutdown with one in flight: %v", err)
		}
		w := r.do("POST", "/function/mnist", "x")
		wantSentence(t, w, 503, "shutting down")
		if w.Header().Get("Retry-After") != "1" {
			t.Error("no Retry-After")
		}
		wantSentence(t, r.do("GET", "/healthz", ""), 503)
		wantSentence(t, r.do("POST", "/system/functions", deployment(nil)), 503)
		done := make(chan error)
		go func() { done <- r.Shutdown(context.Background()) }()
		close(release)
		if code := <-answered; code != 200 {
			t.Errorf("what was in flight got %d", code)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := r.Shutdown(context.Background()); err != nil {
			t.Errorf("a second Shutdown: %v", err)
		}
	})
}

func TestClientThatHangsUp(t *testing.T) {
	began := make(chan struct{})
	r := invoker(t, func(ctx context.Context, _ *frame.Request) (*frame.Response, error) {
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	}, nil)
	server := httptest.NewServer(r.Handler())
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", server.URL+"/function/mnist", strings.NewReader("x"))
	go func() { <-began; cancel() }()
	if _, err := server.Client().Do(req); !errors.Is(err, context.Canceled) {
		t.Errorf("client: %v", err)
	}
	if err := r.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	server.Close()
	if text := r.do("GET", "/metrics", "").Body.String(); !strings.Contains(text, `faas_infer_requests_total{code="499",function="mnist.openfaas-fn"} 1`) {
		t.Error("not counted as hung up")
	}
}
