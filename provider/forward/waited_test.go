package forward

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/web"
)

// What a request waited for its function is part of what it may wait for an instance.
func TestColdWaitCountsFromTheArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const coldWait, waited = 10 * time.Second, 4 * time.Second
		f := New(Options{ColdWait: coldWait, Recorder: &record{}})
		for name, ask := range map[string]func() int{
			"streamed": func() int {
				w := httptest.NewRecorder()
				return f.Forward(w, httptest.NewRequest("GET", "/", nil), "/", waited, nil)
			},
			"in memory": func() int {
				_, err := f.Invoke(t.Context(), &frame.Request{Method: "GET", Path: "/", Waited: waited})
				return web.StatusOf(err)
			},
		} {
			began := time.Now()
			if code := ask(); code != http.StatusServiceUnavailable || time.Since(began) != coldWait-waited {
				t.Errorf("%s: %d after %v, want 503 after %v", name, code, time.Since(began), coldWait-waited)
			}
		}
	})
}
