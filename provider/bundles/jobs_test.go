package bundles

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// takes returns work that takes a while and counts what runs at the same time.
type takes struct {
	began, ended, running, most int
	err                         error
}

func (w *takes) work(ctx context.Context) error {
	w.began++
	w.running++
	w.most = max(w.most, w.running)
	defer func() { w.running-- }()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(10 * time.Minute):
		w.ended++
		return w.err
	}
}

// A caller that leaves does not end a run that another one waits for, and the last one does.
func TestJobsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, w := &Jobs{}, &takes{err: errors.New("made")}
		ctx, leave := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- m.Run(ctx, "a", "key", w.work) }()
		time.Sleep(5 * time.Minute)
		go func() { second <- m.Run(t.Context(), "a", "key", w.work) }()
		synctest.Wait()
		leave()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the one that left: %v", err)
		}
		began := time.Now()
		if err := <-second; !errors.Is(err, w.err) || time.Since(began) != 5*time.Minute || w.began != 1 {
			t.Errorf("the other one: %v after %v, %d runs", err, time.Since(began), w.began)
		}
		ctx, leave = context.WithTimeout(t.Context(), time.Minute)
		defer leave()
		if err := m.Run(ctx, "a", "key", w.work); !errors.Is(err, context.DeadlineExceeded) || w.running != 0 || len(m.running) != 0 {
			t.Errorf("the last one: %v, %d still run", err, w.running)
		}
		if err := m.Run(t.Context(), "a", "key", w.work); !errors.Is(err, w.err) {
			t.Errorf("anew: %v", err)
		}
	})
}

// A caller that wants something else of a directory ends the run there. Callers of that one hear of
// it. Runs for several directories take turns.
func TestJobsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, w := &Jobs{}, &takes{}
		results := map[string]chan error{}
		for _, x := range []struct{ dir, key string }{{"a", "old"}, {"b", "other"}, {"a", "new"}} {
			results[x.key] = make(chan error, 1)
			go func() { results[x.key] <- m.Run(t.Context(), x.dir, x.key, w.work) }()
			synctest.Wait()
		}
		if err := <-results["old"]; !errors.Is(err, ErrOvertaken) {
			t.Errorf("overtaken: %v", err)
		}
		if err := errors.Join(<-results["other"], <-results["new"]); err != nil || w.most != 1 || w.ended != 2 {
			t.Errorf("%v; %d ended, up to %d at once", err, w.ended, w.most)
		}
		dropped := make(chan error, 1)
		go func() { dropped <- m.Run(t.Context(), "a", "new", w.work) }()
		synctest.Wait()
		m.Drop("a")
		m.Drop("none")
		if err := <-dropped; !errors.Is(err, ErrOvertaken) {
			t.Errorf("dropped: %v", err)
		}
	})
}
