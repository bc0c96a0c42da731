package latency

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// names are the functions of turns, in order.
func names(turns []*turn) (all []string) {
	for _, t := range turns {
		all = append(all, t.function)
	}
	return all
}

// The smallest model goes first, but none waits for ever, and work that is long holds up no others.
func TestLineDecides(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l := &line{doing: "being measured", lanes: 1, spare: 1}
	ask := func(function string, bytes int64, at time.Time) {
		l.waiting = append(l.waiting, &turn{function: function, bytes: bytes, asked: at})
	}
	leave := func(function string) {
		l.running = slices.DeleteFunc(l.running, func(t *turn) bool { return t.function == function })
	}
	step := func(after time.Duration, start, end string) {
		t.Helper()
		started, ended := l.decide(now.Add(after))
		if got := strings.Join(names(started), " "); got != start {
			t.Errorf("after %v: %q start, want %q", after, got, start)
		}
		if got := strings.Join(names(ended), " "); got != end {
			t.Errorf("after %v: %q end, want %q", after, got, end)
		}
	}
	ask("endless", 1, now)
	step(0, "endless", "")
	ask("second", 2, now)
	ask("large", 1000, now)
	step(overtime-1, "", "")
	if at := l.next(now.Add(overtime - 1)); !at.Equal(now.Add(overtime)) {
		t.Errorf("the next look is at %v", at)
	}
	step(overtime, "second", "")
	step(2*overtime, "", "second") // Another is long already, and a third waits.
	leave("second")
	l.waiting = append(l.waiting, &turn{function: "second", bytes: 2, asked: now, long: true})
	step(2*overtime, "large", "")
	step(3*overtime, "", "") // It is long, too, but nobody waits who is not.
	if at := l.next(now.Add(3 * overtime)); !at.IsZero() {
		t.Errorf("there is no room, and the next look is at %v", at)
	}
	leave("endless")
	step(3*overtime, "", "") // The large one has its place.
	leave("large")
	step(3*overtime, "second", "")
	ask("old", 1000, now.Add(3*overtime))
	ask("small", 1, now.Add(3*overtime+2*patience))
	step(3*overtime+2*patience, "old", "")
}

// However much asks, no more goes on at once than the lanes and the spare places, and everything gets its
// turn.
func TestLineIsBounded(t *testing.T) {
	for _, l := range []*line{{lanes: 1, spare: 1}, {lanes: 4, spare: 8}} {
		now, done := time.Now(), 0
		for i := range 200 {
			l.waiting = append(l.waiting, &turn{function: fmt.Sprint(i), bytes: int64(i * 7919 % 200), asked: now})
		}
		for range 1000 {
			if done == 200 {
				break
			}
			_, ended := l.decide(now)
			if len(l.running) > l.lanes+l.spare {
				t.Fatalf("%d at once", len(l.running))
			}
			for _, e := range ended {
				l.running = slices.DeleteFunc(l.running, func(t *turn) bool { return t == e })
				e.long = true
				l.waiting = append(l.waiting, e)
			}
			if len(l.running) > 0 {
				done++
				l.running = l.running[1:]
			}
			now = now.Add(overtime / 2)
		}
		if done != 200 {
			t.Errorf("%d of 200 were done", done)
		}
	}
}

// Work that never ends keeps no other from its turn, however much of it there is. Those that wait are told
// behind what.
func TestEndlessWorkHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{doing: "being measured", lanes: 1, spare: 1}
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		ended := make(chan error)
		const endless = 3
		for i := range endless {
			go func() {
				ended <- l.do(ctx, fmt.Sprintf("endless %d", i), 1, func(ctx context.Context) error {
					<-ctx.Done()
					return ctx.Err()
				})
			}()
			time.Sleep(time.Millisecond)
		}
		if got, want := l.state("endless 0"), "the model is being measured since "+clock(began); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		for range 10 {
			wait := time.Now()
			err := l.do(ctx, "good", 2, func(context.Context) error {
				time.Sleep(time.Second)
				return nil
			})
			if took := time.Since(wait); err != nil || took > endless*overtime+time.Second {
				t.Errorf("another model: %v after %v", err, took)
			}
		}
		if got := l.state("endless 2"); !strings.HasPrefix(got, "the model waits, behind that of endless 0, which is being measured since "+clock(began)) {
			t.Errorf("it says %q", got)
		}
		gone, left := context.WithCancel(t.Context())
		left()
		if err := l.do(gone, "gone", 0, func(context.Context) error { return nil }); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("a deployment that has gone: %v", err)
		}
		cancel()
		for range endless {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("it ends with %v", err)
			}
		}
		if len(l.waiting)+len(l.running) != 0 {
			t.Errorf("%q wait, and %q run", names(l.waiting), names(l.running))
		}
	})
}
