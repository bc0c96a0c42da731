package kubernetes

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestAsk(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/_/ready" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(status)
	}))
	address := server.Listener.Addr().String()
	p := newProber(nil)
	if !p.Ask(t.Context(), address, "/_/ready") {
		t.Error("it answers")
	}
	status = http.StatusServiceUnavailable
	if p.Ask(t.Context(), address, "/_/ready") {
		t.Error("it is not ready")
	}
	server.Close()
	if p.Ask(t.Context(), address, "/_/ready") {
		t.Error("it is gone")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	dialed := false
	p = newProber(func(context.Context, string, string) (net.Conn, error) { dialed = true; return nil, net.ErrClosed })
	if p.Ask(ended, address, "/_/ready") || p.Ask(t.Context(), "1.2.3.4:8080", "/_/ready") || !dialed {
		t.Errorf("dialed %v", dialed)
	}
}
