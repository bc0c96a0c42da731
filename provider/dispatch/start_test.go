package dispatch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A request that comes while the first instance is busy with those that waited for it waits, too.
// Once nothing starts any more, it is refused as soon as it cannot be in time: after they are
// answered, or at once if no more instances start although they do not carry the load.
func TestLoadThatBeginsBeforeTheFirstInstance(t *testing.T) {
	const slo, exec, coldWait = 400 * time.Millisecond, 300 * time.Millisecond, 5 * time.Second
	for name, c := range map[string]struct {
		steady, short, answered bool
		after                   time.Duration
		want                    error
	}{
		"instances start": {want: nil},
		"nothing starts":  {steady: true, want: nil},
		"nothing starts, and the first are answered": {steady: true, answered: true, want: ErrLate},
		"nothing starts, but too few serve":          {steady: true, short: true, want: ErrLate},
		"the start takes too long":                   {after: coldWait, want: ErrLate},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Options{SLO: slo, ColdWait: coldWait})
				// The instance executes one, and has another one ahead.
				before := []chan error{r.send(), r.send()}
				synctest.Wait()
				a := r.serve("a")
				a.echo.gate = make(chan struct{})
				in := instance("a", 1)
				in.Exec = times(1, exec)
				r.Up(in, "fake", "a")
				synctest.Wait()
				if c.answered {
					a.echo.gate <- struct{}{}
					a.echo.gate <- struct{}{}
					for _, done := range before {
						if err := <-done; err != nil {
							t.Fatal(err)
						}
					}
				}
				if c.steady {
					Starts(r.Dispatcher, false, c.short)
				}
				time.Sleep(c.after)
				if c.answered {
					before = []chan error{r.send(), r.send()}
					synctest.Wait()
				}
				late := r.send()
				time.Sleep(slo)
				close(a.echo.gate)
				if err := <-late; !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				for _, done := range before {
					<-done
				}
				if s := r.Stats(); c.want == nil && s.Refused+s.Late+s.InTime > 0 {
					t.Errorf("the wait counts against the capacity: %+v", s)
				}
			})
		})
	}
}

// The start ends although requests wait: those that came when nothing started any more.
func TestStartEndsUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slo, exec = 400 * time.Millisecond, 300 * time.Millisecond
		r := newRig(t, Options{SLO: slo, ColdWait: time.Minute})
		first := r.send()
		synctest.Wait()
		a := r.serve("a")
		a.echo.gate = make(chan struct{})
		in := instance("a", 1)
		in.Exec = times(1, exec)
		r.Up(in, "fake", "a")
		synctest.Wait()
		during := r.send()
		synctest.Wait()
		Starts(r.Dispatcher, false, false)
		after := r.send()
		synctest.Wait()
		for _, done := range []chan error{first, during} {
			a.echo.gate <- struct{}{}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		Starts(r.Dispatcher, false, false)
		if r.Stats().Starting {
			t.Error("a request that came later prolongs the start")
		}
		close(a.echo.gate)
		if err := <-after; err != nil {
			t.Error(err)
		}
	})
}

// Requests that wait, and those that come, are not refused where an instance stops before its successor
// has its room, until nothing starts any more.
func TestInstancesThatStopBeforeTheirSuccessorsStart(t *testing.T) {
	const slo, exec, coldWait, n = 400 * time.Millisecond, 150 * time.Millisecond, 5 * time.Second, 3
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: slo, ColdWait: coldWait})
		a, b := r.serve("a"), r.serve("b")
		for id, e := range map[string]*process{"a": a, "b": b} {
			e.echo.gate = make(chan struct{})
			in := instance(id, 1)
			in.Exec = times(1, exec)
			r.Up(in, "fake", id)
		}
		var before []chan error
		for range 2 * n {
			before = append(before, r.send())
			synctest.Wait()
		}
		Await(r.Dispatcher)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_ = r.Drain(gone, "b")
		for range n {
			before = append(before, r.send())
			synctest.Wait()
		}
		close(b.echo.gate)
		for range len(before) - 1 {
			time.Sleep(exec)
			select {
			case a.echo.gate <- struct{}{}:
			default:
			}
		}
		close(a.echo.gate)
		for i, done := range before {
			if err := <-done; err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		}
		Starts(r.Dispatcher, false, false)
		if s := r.Stats(); s.Starting || s.Refused > 0 {
			t.Errorf("at the end: %+v", s)
		}
	})
}
