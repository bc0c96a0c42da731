package provider

import (
	"testing"
	"time"
)

// A kubelet may neither kill a replica that restores its functions or finishes its requests,
// nor send it requests.
func TestProbes(t *testing.T) {
	check := func(t *testing.T, get func(path string) int, ready int) {
		t.Helper()
		for path, want := range map[string]int{"/startupz": 200, "/livez": 200, "/readyz": ready, "/healthz": ready} {
			if got := get(path); got != want {
				t.Errorf("%s answers %d, want %d", path, got, want)
			}
		}
	}
	t.Run("restoring", func(t *testing.T) {
		hangs(t, func(o *Options) { o.Several = true }, func(h *hanging) {
			get := func(path string) int { return h.do("GET", path, "").Code }
			check(t, get, 503)
			time.Sleep(2 * slowRestore)
			check(t, get, 200)
		})
	})
	t.Run("leaving", func(t *testing.T) {
		r := invoker(t, echo, nil)
		if got := r.do("POST", "/function/mnist", "x").Header().Get("Connection"); got != "" {
			t.Errorf("before, connections %s", got)
		}
		r.Leave()
		check(t, func(path string) int { return r.do("GET", path, "").Code }, 503)
		if w := r.do("POST", "/function/mnist", "x"); w.Code != 200 || w.Header().Get("Connection") != "close" {
			t.Errorf("a request gets %d, and its connection %s", w.Code, w.Header().Get("Connection"))
		}
	})
	t.Run("draining", func(t *testing.T) {
		r := invoker(t, echo, nil)
		get := func(path string) int { return r.do("GET", path, "").Code }
		check(t, get, 200)
		if err := r.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		check(t, get, 503)
	})
}
