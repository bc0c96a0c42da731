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

// The smallest model goes first, but none waits for ever, and work that takes long holds up the
// others no longer.
func TestLineDecides(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l := &line{doing: "being measured", lanes: 1, spare: 1}
	ask := func(function string, bytes int64, at time.Time) *turn {
		x := &turn{function: function, bytes: bytes, asked: at, admitted: make(chan struct{})}
		l.waiting = append(l.waiting, x)
		return x
	}
	step := func(after time.Duration, want ...string) {
		t.Helper()
		if got := names(l.admit(now.Add(after))); !slices.Equal(got, want) {
			t.Errorf("after %v: %q start, want %q", after, got, want)
		}
	}
	ask("endless", 1, now)
	step(0, "endless")
	ask("large", 1000, now)
	ask("small", 10, now)
	step(overtime - 1)
	if at := l.next(now.Add(overtime - 1)); !at.Equal(now.Add(overtime)) {
		t.Errorf("the next look is at %v", at)
	}
	step(overtime, "small")
	step(2 * overtime) // Both are overtime, and only one is spare.
	if at := l.next(now.Add(2 * overtime)); !at.IsZero() {
		t.Errorf("there is no room, and the next look is at %v", at)
	}
	ask("smaller", 5, now.Add(2*patience)) // The large one has waited too long by then.
	l.running = l.running[:1]
	step(2*patience, "large")
	step(2*patience + overtime - 1)
	l.running = l.running[:1]
	step(2*patience+overtime, "smaller")
}

// However much asks, no more goes on at once than the lanes and the spare ones, and everything gets
// its turn.
func TestLineIsBounded(t *testing.T) {
	for _, l := range []*line{{lanes: 1, spare: 1}, {lanes: 4, spare: 8}} {
		now, done := time.Now(), 0
		for i := range 200 {
			l.waiting = append(l.waiting, &turn{function: fmt.Sprint(i), bytes: int64(i * 7919 % 200), asked: now, admitted: make(chan struct{})})
		}
		for rounds := 0; done < 200 && rounds < 1000; rounds++ {
			l.admit(now)
			if len(l.running) > l.lanes+l.spare {
				t.Fatalf("%d at once", len(l.running))
			}
			done += len(l.running[:1])
			l.running = l.running[1:]
			now = now.Add(overtime / 2)
		}
		if done != 200 {
			t.Errorf("%d of 200 were done", done)
		}
	}
}

// Work that never ends keeps no other from its turn, and those that wait are told behind what.
func TestEndlessWorkHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{doing: "being measured", lanes: 1, spare: 1}
		end, err := l.enter(t.Context(), "endless", 1)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, name := range []string{"first", "second"} {
			go func() {
				leave, err := l.enter(t.Context(), name, 2)
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Second)
				leave()
			}()
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if got, want := l.state("endless"), "the model is being measured since "+clock(began); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		waits := l.state("first") + l.state("second")
		if strings.Count(waits, "the model waits, behind that of endless, which is being measured since "+clock(began)) != 2 || !strings.Contains(waits, "waiting before it: 1 more") {
			t.Errorf("those that wait say %q", waits)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.enter(gone, "third", 3); !errors.Is(err, context.Canceled) {
			t.Errorf("a deployment that has gone: %v", err)
		}
		time.Sleep(overtime + 3*time.Second)
		if len(l.waiting) != 0 || len(l.running) != 1 || l.state("second") != "" {
			t.Errorf("%q wait, and %q run", names(l.waiting), names(l.running))
		}
		end()
	})
}
