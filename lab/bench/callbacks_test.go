package bench

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/faas-infer/faas-infer/command/load"
)

// Each message counts once, however often it is called back. Calls of other messages do not
// count.
func TestCallbacks(t *testing.T) {
	c := &callbacks{seen: make([]atomic.Int32, 3)}
	for _, call := range []struct{ id, status string }{{"0", "200"}, {"2", "500"}, {"0", "200"}, {"3", "200"}, {"-1", "200"}, {"x", "200"}} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("X-Call-Id", call.id)
		r.Header.Set("X-Function-Status", call.status)
		c.ServeHTTP(httptest.NewRecorder(), r)
	}
	if c.unique.Load() != 2 || c.total.Load() != 3 || c.failed.Load() != 1 || c.stalled() {
		t.Errorf("%d messages by %d calls, %d failed", c.unique.Load(), c.total.Load(), c.failed.Load())
	}
}

// A target is loaded for whole seconds until enough requests are accepted. A refused
// request ends the load.
func TestAcceptedPerSecond(t *testing.T) {
	var refuse atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if refuse.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(s.Close)
	target := load.Target{URL: s.URL, Body: load.Cycle([]byte("x"))}
	rates, err := acceptedPerSecond(t.Context(), target, func(accepted, seconds int) bool { return accepted < 10 && seconds < 3 })
	if err != nil || len(rates) != 1 || !(rates[0] > 0) {
		t.Errorf("%v, %v", rates, err)
	}
	refuse.Store(true)
	if _, err := acceptedPerSecond(t.Context(), target, func(int, int) bool { return true }); err == nil {
		t.Error("what is refused is counted as accepted")
	}
}
