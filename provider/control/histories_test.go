package control

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/coldstart"
)

// timed calls a function a dozen times, every two minutes, in a rig with the cold-start
// policy LSTH.
func timed(r *rig, store *fakeHistories) {
	r.options.Cold, r.options.Histories = coldstart.NewLSTH(coldstart.DefaultGamma), store
	r.open()
	r.run()
	r.measured("f", "model")
	for range 12 {
		r.answered("f", "model")
		time.Sleep(2 * time.Minute)
	}
}

// windows returns the windows of the controller's cold-start policy.
func (r *rig) windows(name string) coldstart.Windows {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.options.Cold.Windows(time.Now(), full(name))
}

// Histories of idle times outlive the provider, whether it is stopped or killed.
func TestIdleTimesSurviveARestart(t *testing.T) {
	for _, killed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, store := newRig(t), &fakeHistories{kept: map[string][]byte{}}
			timed(r, store)
			learned, unknown := r.windows("f"), coldstart.NewLSTH(coldstart.DefaultGamma).Windows(time.Now(), "f")
			if learned.KeepAlive == unknown.KeepAlive {
				t.Fatalf("nothing was learned: %v", learned)
			}
			if _, writes := store.written(); writes < 2 || writes > 5 {
				t.Errorf("it was written %d times in 24 minutes", writes)
			}
			if killed {
				r.end()
			} else {
				r.close()
			}
			r.options.Cold = coldstart.NewLSTH(coldstart.DefaultGamma)
			r.open()
			r.run()
			r.measured("f", "model")
			if got := r.windows("f"); got.KeepAlive != learned.KeepAlive && !killed || got.KeepAlive == unknown.KeepAlive {
				t.Errorf("after the restart: %v, before %v, of one that is unknown %v", got, learned, unknown)
			}
			r.close()
		})
	}
}

// A removed function's history is deleted. A history of another policy is ignored.
func TestIdleTimesOfARemovedFunctionAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := newRig(t), &fakeHistories{kept: map[string][]byte{full("f"): []byte("of another policy")}}
		timed(r, store)
		if n, _ := store.written(); n != 1 {
			t.Errorf("%d functions are kept", n)
		}
		if err := r.Remove(t.Context(), full("f")); err != nil {
			t.Fatal(err)
		}
		if got := r.windows("f"); got.KeepAlive != coldstart.NewLSTH(coldstart.DefaultGamma).Windows(time.Now(), "").KeepAlive {
			t.Errorf("a removed function has %v", got)
		}
		r.close()
		if n, _ := store.written(); n != 0 {
			t.Errorf("%d functions are kept after the removal", n)
		}
	})
}
