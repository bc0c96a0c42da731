package latency

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// overtime is how long work may hold up other work. Afterwards others start beside it.
	overtime = 10 * time.Second
	// patience is how long a large model lets smaller ones go before it.
	patience = time.Minute
)

// line lets work on models take turns, the smallest model first: work that is done at the same
// time disturbs what it measures. Work that takes longer than overtime holds up the others no
// longer: it goes on beside them, as long as there are no more than spare of its kind. So a model
// that does not end cannot keep new ones from being served. The zero value is not ready.
type line struct {
	// doing says what is done, as the rest of a sentence: "being measured".
	doing string
	// lanes is how many pieces of work go on at once, spare how many more may that are overtime.
	lanes, spare int

	mu               sync.Mutex
	running, waiting []*turn
	// alarm admits the next ones when work becomes overtime, nil if nothing waits for that.
	alarm *time.Timer
}

// turn is one piece of work.
type turn struct {
	// function is the full name of the function for which it is done.
	function string
	bytes    int64
	// asked and began are when it came and when it was admitted.
	asked, began time.Time
	admitted     chan struct{}
}

// enter waits for a turn for a function's model of a size in bytes, unless ctx ends first. The caller
// calls leave at the work's end.
func (l *line) enter(ctx context.Context, function string, bytes int64) (leave func(), err error) {
	t := &turn{function: function, bytes: bytes, asked: time.Now(), admitted: make(chan struct{})}
	l.mu.Lock()
	l.waiting = append(l.waiting, t)
	l.advance()
	l.mu.Unlock()
	select {
	case <-t.admitted:
		return func() { l.leave(t) }, nil
	case <-ctx.Done():
		l.leave(t)
		return nil, ctx.Err()
	}
}

// leave takes a turn out of the line, whether it was admitted or not.
func (l *line) leave(t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := func(x *turn) bool { return x == t }
	l.running, l.waiting = slices.DeleteFunc(l.running, own), slices.DeleteFunc(l.waiting, own)
	l.advance()
}

// advance admits who may start now, and sets the alarm. The lock is held.
func (l *line) advance() {
	now := time.Now()
	for _, t := range l.admit(now) {
		close(t.admitted)
	}
	if l.alarm != nil {
		l.alarm.Stop()
		l.alarm = nil
	}
	if at := l.next(now); !at.IsZero() {
		l.alarm = time.AfterFunc(at.Sub(now), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.advance()
		})
	}
}

// admit moves the turns that may start at now from those that wait to those that run.
func (l *line) admit(now time.Time) (started []*turn) {
	for len(l.waiting) > 0 {
		late := min(l.late(now), l.spare)
		if len(l.running)-late >= l.lanes {
			break
		}
		t := slices.MinFunc(l.waiting, func(a, b *turn) int { return l.order(a, b, now) })
		l.waiting = slices.DeleteFunc(l.waiting, func(x *turn) bool { return x == t })
		t.began = now
		l.running, started = append(l.running, t), append(started, t)
	}
	return started
}

// order is negative if a starts before b: those that have waited for longer than patience in the
// order in which they came, then the smaller model.
func (l *line) order(a, b *turn, now time.Time) int {
	oldA, oldB := now.Sub(a.asked) > patience, now.Sub(b.asked) > patience
	switch {
	case oldA != oldB && oldA:
		return -1
	case oldA != oldB:
		return 1
	case !oldA && a.bytes < b.bytes:
		return -1
	case !oldA && a.bytes > b.bytes:
		return 1
	}
	return a.asked.Compare(b.asked)
}

// late is the number of running turns that are overtime.
func (l *line) late(now time.Time) (n int) {
	for _, t := range l.running {
		if now.Sub(t.began) >= overtime {
			n++
		}
	}
	return n
}

// next is when admit may admit more although nothing has ended, the zero time for never.
func (l *line) next(now time.Time) (at time.Time) {
	if len(l.waiting) == 0 || l.late(now) >= l.spare {
		return at
	}
	for _, t := range l.running {
		end := t.began.Add(overtime)
		if end.After(now) && (at.IsZero() || end.Before(at)) {
			at = end
		}
	}
	return at
}

// state says what a function's model is doing in the line or for what it waits; "" if it is not in it.
func (l *line) state(function string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	own := func(t *turn) bool { return t.function == function }
	if i := slices.IndexFunc(l.running, own); i >= 0 {
		return fmt.Sprintf("the model is %s since %s", l.doing, clock(l.running[i].began))
	}
	i := slices.IndexFunc(l.waiting, own)
	if i < 0 || len(l.running) == 0 {
		return ""
	}
	first := l.running[len(l.running)-1]
	text := fmt.Sprintf("the model waits, behind that of %s, which is %s since %s", first.function, l.doing, clock(first.began))
	before := 0
	for _, t := range l.waiting {
		if t != l.waiting[i] && l.order(t, l.waiting[i], now) < 0 {
			before++
		}
	}
	if before > 0 {
		text += fmt.Sprintf("; waiting before it: %d more", before)
	}
	return text
}

// clock is a time of day for people.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }
