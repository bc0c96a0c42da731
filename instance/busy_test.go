package instance

import (
	"net/http"
	"strings"
	"testing"
)

// A server says that it is alive while its engine is busy: the kubelet must not kill it.
func TestAliveWhileBusy(t *testing.T) {
	d := &doubler{maxBatch: 1, width: 1, gate: make(chan struct{})}
	s := newTestServer(t, d)
	answered := make(chan int, 1)
	go func() {
		answered <- do(t, s, http.MethodPost, "/", "", strings.NewReader(`{"instances":[[1]]}`)).StatusCode
	}()
	waitFor(t, func() bool { return len(s.turn) == 1 })
	if r := do(t, s, http.MethodGet, "/_/health", "", nil); r.StatusCode != http.StatusOK {
		t.Errorf("while the engine runs it answers %d", r.StatusCode)
	}
	d.gate <- struct{}{}
	if code := <-answered; code != http.StatusOK {
		t.Errorf("the request gets %d", code)
	}
}
