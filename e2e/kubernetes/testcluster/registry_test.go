package testcluster_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// A registry that hangs answers no request, and those that wait when it is resumed.
func TestRegistryHangs(t *testing.T) {
	r, err := testcluster.StartRegistry(t.TempDir(), "127.0.0.1", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	sent := make(chan struct{}, 3)
	ask := func(ctx context.Context) error {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent <- struct{}{} }})
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Host()+"/v2/", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	}
	resume := r.Hang()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := ask(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it answers: %v", err)
	}
	<-sent
	waiting := make(chan error, 1)
	go func() { waiting <- ask(t.Context()) }()
	<-sent
	resume()
	if err := errors.Join(<-waiting, ask(t.Context())); err != nil {
		t.Error(err)
	}
}
