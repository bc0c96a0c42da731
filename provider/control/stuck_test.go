package control

import (
	"strings"
	"testing"
	"time"
)

// An instance that cannot be killed, as one in uninterruptible sleep, keeps its room, but no start
// waits for it: the next one takes other room. Until there is some, the description says why.
func TestStartDoesNotWaitForWhatCannotBeStopped(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.widen(250)
		r.measured("f", "m")
		r.answered("f", "m")
		time.Sleep(5 * time.Second) // f is idle now.
		r.measured("g", "m")
		r.backend.Mu.Lock()
		r.backend.StopFails = 1 << 30
		r.backend.Mu.Unlock()
		if _, err := r.invoke("g", "x"); err == nil || !strings.Contains(err.Error(), "cannot be stopped") {
			t.Errorf("g's first request: %v", err)
		}
		if why := r.describe("g").Problem; !strings.Contains(why, "cannot be stopped") {
			t.Errorf("g's problem is %q", why)
		}
		r.backend.widen(4000)
		time.Sleep(time.Minute) // Some starts were tried meanwhile, with pauses between them.
		for range 10 {
			if _, err := r.invoke("g", "x"); err != nil {
				t.Errorf("with room enough: %v", err)
			}
		}
		if d := r.describe("g"); d.Ready == 0 || d.Problem != "" {
			t.Errorf("g has %d instances and the problem %q", d.Ready, d.Problem)
		}
		r.backend.Mu.Lock()
		r.backend.StopFails = 0
		r.backend.Mu.Unlock()
		time.Sleep(6 * time.Minute)
	})
}
