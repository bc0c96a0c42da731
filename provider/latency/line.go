package latency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
)

const (
	// overtime is how long work may hold up other work. Afterwards others start beside it. Measuring may longer, because
	// the functions that wait are sketched by then: the operators of two models of texts, deployed together, were measured
	// beside each other after 10 s, and two threads then were as slow as one.
	overtime          = 10 * time.Second
	measuringOvertime = 30 * time.Second
	// patience is how long a large model lets smaller ones go before it.
	patience = time.Minute
)

// errOvertime ends work that lasts longer than overtime while others wait. It begins again as long work.
var errOvertime = errors.New("others wait")

// line lets work on models take turns, the smallest model first: work that is done at the same
// time disturbs what it measures. Work that lasts longer than overtime is long: it goes on beside the
// others if there is room for it, and otherwise ends and begins again once there is. So models that
// do not end cannot keep new ones from being served for longer than overtime each.
type line struct {
	// doing says what is done, as the rest of a sentence: "being measured".
	doing string
	// lanes is how much work goes on at once, spare how much long work beside that.
	lanes, spare int
	// overtime is how long work may hold up other work, 0 for the usual time.
	overtime time.Duration

	mu               sync.Mutex
	running, waiting []*turn
	// alarm looks again when work becomes long, nil if nothing waits for that.
	alarm *time.Timer
}

// turn is one piece of work.
type turn struct {
	// function is the full name of the function for which it is done.
	function string
	bytes    int64
	long     bool
	// asked and began are when it came and when it was admitted. admitted is closed then.
	asked, began time.Time
	admitted     chan struct{}
	// end ends its work.
	end context.CancelCauseFunc
}

// do does work for a function's model of a size in bytes when it is its turn. The work gets a
// context that ends with ctx. It may be begun again.
func (l *line) do(ctx context.Context, function string, bytes int64, work func(context.Context) error) error {
	for t := (&turn{function: function, bytes: bytes, asked: time.Now()}); ; t.long = true {
		within, end := context.WithCancelCause(ctx)
		t.admitted, t.end = make(chan struct{}), end
		l.enter(t)
		var err error
		select {
		case <-t.admitted:
			err = work(within)
		case <-ctx.Done():
			err = ctx.Err()
		}
		l.leave(t)
		again := err != nil && ctx.Err() == nil && errors.Is(context.Cause(within), errOvertime)
		end(nil)
		if !again {
			return err
		}
	}
}

// find is do for work that finds a profile.
func (l *line) find(ctx context.Context, function string, bytes int64, work func(context.Context) (string, *profiler.Profile, error)) (prepared string, p *profiler.Profile, err error) {
	err = l.do(ctx, function, bytes, func(ctx context.Context) error {
		prepared, p, err = work(ctx)
		return err
	})
	return prepared, p, err
}

func (l *line) enter(t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, t)
	l.advance()
}

// leave takes a turn out of the line, whether it was admitted or not.
func (l *line) leave(t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := func(x *turn) bool { return x == t }
	l.running, l.waiting = slices.DeleteFunc(l.running, own), slices.DeleteFunc(l.waiting, own)
	l.advance()
}

// advance does what is decided for now, and sets the alarm. The lock is held.
func (l *line) advance() {
	now := time.Now()
	started, ended := l.decide(now)
	for _, t := range started {
		close(t.admitted)
	}
	for _, t := range ended {
		t.end(errOvertime)
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

// decide says which turns start at now, and moves them to those that run, and which end because
// others wait.
func (l *line) decide(now time.Time) (started, ended []*turn) {
	for _, t := range l.running {
		switch {
		case t.long || now.Sub(t.began) < cmp.Or(l.overtime, overtime):
		case l.count(true) < l.spare:
			t.long = true
		case slices.ContainsFunc(l.waiting, func(w *turn) bool { return !w.long }):
			ended = append(ended, t) // It leaves once its work has ended.
		}
	}
	for _, long := range []bool{false, true} {
		room := l.lanes
		if long {
			room = l.spare
		}
		for l.count(long) < room {
			waits := slices.DeleteFunc(slices.Clone(l.waiting), func(t *turn) bool { return t.long != long })
			if len(waits) == 0 {
				break
			}
			t := slices.MinFunc(waits, func(a, b *turn) int { return l.order(a, b, now) })
			l.waiting = slices.DeleteFunc(l.waiting, func(x *turn) bool { return x == t })
			t.began = now
			l.running, started = append(l.running, t), append(started, t)
		}
	}
	return started, ended
}

// count is the number of running turns that are long, or that are not.
func (l *line) count(long bool) (n int) {
	for _, t := range l.running {
		if t.long == long {
			n++
		}
	}
	return n
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

// next is when decide may decide something although nothing has ended, the zero time for never.
func (l *line) next(now time.Time) (at time.Time) {
	if len(l.waiting) == 0 {
		return at
	}
	for _, t := range l.running {
		end := t.began.Add(cmp.Or(l.overtime, overtime))
		if !t.long && end.After(now) && (at.IsZero() || end.Before(at)) {
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
	for _, t := range l.running {
		if t.long == l.waiting[i].long {
			first = t
		}
	}
	text := fmt.Sprintf("the model waits, behind that of %s, which is %s since %s", first.function, l.doing, clock(first.began))
	before := 0
	for _, t := range l.waiting {
		if t.long == l.waiting[i].long && t != l.waiting[i] && l.order(t, l.waiting[i], now) < 0 {
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
