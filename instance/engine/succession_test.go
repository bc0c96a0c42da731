package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/instance/engine"
)

// process is the number of a process in a line.
type process int

// starter counts the processes that it starts. It fails with broken if that is not nil.
type starter struct {
	started atomic.Int64
	broken  error
	told    []error
}

func (s *starter) line() *engine.Line[process] {
	return engine.NewLine(func(ctx context.Context) (*process, error) {
		p := process(s.started.Add(1))
		return &p, errors.Join(s.broken, ctx.Err())
	}, func(err error) { s.told = append(s.told, err) })
}

// ended returns an end function that counts its calls.
func ended(of *int) func(*process) error {
	return func(*process) error { *of++; return nil }
}

func TestALineBeginsWithAProcess(t *testing.T) {
	s, ends := &starter{}, 0
	l := s.line()
	if err := l.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.With(func(p *process) {
		if p == nil || *p != 1 || !l.Is(p) {
			t.Errorf("the process is %v", p)
		}
	})
	if err := l.Close(ended(&ends)); err != nil || ends != 1 || l.Life().Err() == nil {
		t.Errorf("closed with %v after %d ends", err, ends)
	}
	if err := l.Close(ended(&ends)); err != nil || ends != 1 {
		t.Errorf("closed again with %v after %d ends", err, ends)
	}
}

func TestALineThatCannotBeginIsClosed(t *testing.T) {
	broken := errors.New("no such program")
	s := &starter{broken: broken}
	l := s.line()
	if err := l.Begin(t.Context()); !errors.Is(err, broken) || l.Life().Err() == nil || len(s.told) != 0 {
		t.Errorf("%v, told %v", err, s.told)
	}
	if err := l.Close(func(*process) error { t.Error("nothing is to be ended"); return nil }); err != nil {
		t.Error(err)
	}
}

// Renew replaces a lost process in the background, only once however often it is called.
// The next batch finds the new process.
func TestRenewing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ends := &starter{}, 0
		l := s.line()
		if err := errors.Join(l.Begin(t.Context()), l.Take(t.Context())); err != nil {
			t.Fatal(err)
		}
		l.Leave()
		l.Renew()
		l.Renew()
		synctest.Wait()
		if n := s.started.Load(); n != 1 {
			t.Errorf("%d processes while the turn is held", n)
		}
		l.Give()
		synctest.Wait()
		l.With(func(p *process) {
			if p == nil || *p != 2 || s.started.Load() != 2 {
				t.Errorf("%v of %d processes", p, s.started.Load())
			}
		})
		if err := l.Close(ended(&ends)); err != nil || ends != 1 {
			t.Errorf("%v after %d ends", err, ends)
		}
	})
}

// Within a second of a failed start Need fails at once. Then it tries again.
func TestAPauseAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &starter{}
		l := s.line()
		if err := errors.Join(l.Begin(t.Context()), l.Take(t.Context())); err != nil {
			t.Fatal(err)
		}
		l.Leave()
		s.broken = errors.New("the disk is full")
		need := func(after time.Duration, starts int64) {
			time.Sleep(after)
			_, err := l.Need(t.Context())
			var lost interface{ Lost() bool }
			if !errors.Is(err, s.broken) || !errors.As(err, &lost) || !lost.Lost() || err.Error() != s.broken.Error() || s.started.Load() != starts {
				t.Errorf("%v after %v: %v of %d processes, want %d", err, after, err, s.started.Load(), starts)
			}
		}
		need(0, 2)
		need(engine.RestartPause-1, 2)
		need(1, 3)
		if len(s.told) != 2 {
			t.Errorf("told %v", s.told)
		}
		s.broken = nil
		time.Sleep(engine.RestartPause)
		p, err := l.Need(t.Context())
		if err != nil || *p != 4 {
			t.Errorf("%v, %v", p, err)
		}
		if again, err := l.Need(t.Context()); err != nil || again != p {
			t.Errorf("%v, %v, and not the same", again, err)
		}
		l.Give()
		if err := l.Close(func(*process) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

// Take returns when its context ends, and a background Renew when the line is closed.
func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &starter{}
		l := s.line()
		if err := errors.Join(l.Begin(t.Context()), l.Take(t.Context())); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.Take(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		l.Leave()
		l.Renew()
		closed := make(chan error)
		go func() { closed <- l.Close(func(*process) error { return errors.New("there is none") }) }()
		synctest.Wait()
		select {
		case err := <-closed:
			t.Errorf("closed with %v while the turn is held", err)
		default:
		}
		l.Give()
		if err := <-closed; err != nil || s.started.Load() != 1 {
			t.Errorf("%v, %d processes", err, s.started.Load())
		}
	})
}

// Many goroutines use, lose and renew processes. Only one has the turn at a time, only one
// process exists at a time, and none is left at the end.
func TestManyTakeTurns(t *testing.T) {
	var alive, using atomic.Int64
	l := engine.NewLine(func(context.Context) (*process, error) {
		if n := alive.Add(1); n != 1 {
			t.Errorf("%d processes at a time", n)
		}
		return new(process), nil
	}, func(err error) { t.Error(err) })
	if err := l.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for i := range 200 {
				if err := l.Take(t.Context()); err != nil {
					t.Error(err)
					return
				}
				if n := using.Add(1); n != 1 {
					t.Errorf("%d have the turn", n)
				}
				p, err := l.Need(t.Context())
				if err != nil || !l.Is(p) {
					t.Errorf("%v, %v", p, err)
				}
				if (n+i)%7 == 0 {
					l.Leave()
					alive.Add(-1)
					l.Renew()
				}
				using.Add(-1)
				l.Give()
			}
		})
	}
	all.Wait()
	err := l.Close(func(*process) error { alive.Add(-1); return nil })
	if err != nil || alive.Load() != 0 {
		t.Errorf("%v, %d are left", err, alive.Load())
	}
}

func TestLimits(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name    string
		timeout time.Duration
		batches []time.Duration
		fresh   bool
		want    time.Duration
	}{
		{"the first batch may compile", 0, nil, false, 30 * s},
		{"the first batch of a model known to be slow", 40 * s, nil, false, 40 * s},
		{"later ones", 0, []time.Duration{25 * time.Millisecond}, false, 8 * s},
		{"later ones where less is allowed", 2 * s, []time.Duration{25 * time.Millisecond}, false, 2 * s},
		{"sixteen times the slowest", 0, []time.Duration{s, 3 * s, 2 * s}, false, 48 * s},
		{"the first batch of the next process", 0, []time.Duration{25 * time.Millisecond}, true, 30 * s},
		{"the slowest is not forgotten with its process", 0, []time.Duration{3 * s}, true, 48 * s},
	} {
		l := engine.Limit{Timeout: c.timeout}
		for _, took := range c.batches {
			l.Answered(took)
		}
		if c.fresh {
			l.Fresh()
		}
		if got := l.Next(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func ExampleLost() {
	err := fmt.Errorf("run a batch: %w", engine.Lost{Why: errors.New("the process was killed")})
	var lost interface{ Lost() bool }
	fmt.Println(errors.As(err, &lost) && lost.Lost(), err)
	// Output: true run a batch: the process was killed
}
