package latency_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/shadow"
)

// A search for a model's blocks delays no function's times.
func TestProfilesDoNotWaitForLayers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newRig(false), function(time.Second, 8)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.Blocks = func(ctx context.Context, _ string) (*shadow.Model, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		done := make(chan error, 1)
		go func() {
			_, err := r.Layers(ctx, f, "divided")
			done <- err
		}()
		synctest.Wait()
		within, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, _, err := r.Profile(within, f, "m", false); err != nil {
			t.Errorf("the other model was not measured: %v", err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the search ended with %v", err)
		}
	})
}

// The finder remembers why a model cannot be divided, until it can.
func TestUndivided(t *testing.T) {
	r, f := newRig(false), function(time.Second, 8)
	var fails error
	r.Blocks = func(context.Context, string) (*shadow.Model, error) {
		return &shadow.Model{Name: "m", Rows: []int{1}, Threads: []int{1}, Blocks: []shadow.Block{{Ms: [][]float64{{1}}}}}, fails
	}
	for _, c := range []struct {
		fails error
		why   string
	}{
		{errors.New("it was killed"), ""},
		{&shadow.UndividedError{Why: "no cuts"}, "the model cannot be divided: no cuts"},
		{errors.New("it was killed"), "the model cannot be divided: no cuts"},
		{nil, ""},
	} {
		fails = c.fails
		if _, err := r.Layers(t.Context(), f, "m"); !errors.Is(err, c.fails) {
			t.Errorf("the layers: %v, want %v", err, c.fails)
		}
		if why := r.Undivided(t.Context(), f, "m"); why != c.why || r.Undivided(t.Context(), f, "another") != "" {
			t.Errorf("after %v it cannot be divided because %q, want %q", c.fails, why, c.why)
		}
	}
}

// A restart forgets neither the layers nor why a model cannot be divided. The leader looks again, since the
// model may have been prepared again. Another replica shows what is stored and refuses nothing for it: the reason
// may have passed.
func TestUndividedAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newRig(false), function(time.Second, 8)
		if _, _, err := r.Profile(t.Context(), f, "m", false); err != nil {
			t.Fatal(err)
		}
		var fails error = &shadow.UndividedError{Why: "no cuts"}
		r.Blocks = func(context.Context, string) (*shadow.Model, error) {
			return &shadow.Model{Name: "m", Rows: []int{1}, Threads: []int{1}, Blocks: []shadow.Block{{Ms: [][]float64{{1}}}}}, fails
		}
		if _, err := r.Layers(t.Context(), f, "m"); !errors.Is(err, fails) {
			t.Fatal(err)
		}
		const why = "the model cannot be divided: no cuts"
		after := restarted(r)
		if got := after.Undivided(t.Context(), f, "m"); got != why {
			t.Errorf("after a restart it cannot be divided because %q", got)
		}
		after.leading = false
		if _, err := after.Layers(t.Context(), f, "m"); !errors.Is(err, latency.ErrStored) || errors.As(err, new(*shadow.UndividedError)) || err.Error() != "the leader found: "+why {
			t.Errorf("a replica that follows: %v", err)
		}
		follower := restarted(r)
		if follower.leading = false; follower.Undivided(t.Context(), f, "m") != "" || after.Undivided(t.Context(), f, "m") != "" {
			t.Error("a replica that follows refuses by a stored reason, or by one that it found when it led")
		}
		fails, after.leading = nil, true
		if _, err := after.Layers(t.Context(), f, "m"); err != nil || after.Undivided(t.Context(), f, "m") != "" {
			t.Errorf("the leader does not look again: %v, %q", err, after.Undivided(t.Context(), f, "m"))
		}
		again := restarted(r)
		if m, err := again.Layers(t.Context(), f, "m"); err != nil || m.Name != "m" || again.Undivided(t.Context(), f, "m") != "" {
			t.Errorf("its layers were not stored: %v", err)
		}
	})
}

// A stored reason that has passed, or that cannot be confirmed, is not repeated: an upgrade may divide more
// models.
func TestUndividedOnlyBefore(t *testing.T) {
	for name, now := range map[string]error{"divided now": nil, "unknown now": errors.New("it was killed"), "too slow to look": context.DeadlineExceeded} {
		synctest.Test(t, func(t *testing.T) {
			r, f := newRig(false), function(time.Second, 8)
			if _, _, err := r.Profile(t.Context(), f, "m", false); err != nil {
				t.Fatal(err)
			}
			r.Blocks = func(context.Context, string) (*shadow.Model, error) {
				return nil, &shadow.UndividedError{Why: "no cuts"}
			}
			if _, err := r.Layers(t.Context(), f, "m"); err == nil {
				t.Fatal("divided")
			}
			after := restarted(r)
			after.Blocks = func(ctx context.Context, _ string) (*shadow.Model, error) {
				if errors.Is(now, context.DeadlineExceeded) {
					<-ctx.Done()
				}
				return &shadow.Model{Name: "m", Rows: []int{1}, Threads: []int{1}, Blocks: []shadow.Block{{Ms: [][]float64{{1}}}}}, now
			}
			began := time.Now()
			if why := after.Undivided(t.Context(), f, "m"); why != "" || time.Since(began) > time.Minute {
				t.Errorf("%s: after %v %q", name, time.Since(began), why)
			}
		})
	}
}

// restarted is a finder with r's store that has looked at nothing.
func restarted(r *rig) *rig {
	after := newRig(false)
	after.store.kept, after.Blocks = r.store.kept, r.Blocks
	return after
}
