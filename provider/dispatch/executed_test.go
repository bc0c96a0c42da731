package dispatch

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/instance/frame"
)

func invoke(t *testing.T, d *Dispatcher, n int) {
	t.Helper()
	for i := range n {
		if _, err := d.Invoke(t.Context(), request(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExecutedBatchesAreKept(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience})
	e := newEcho(t, nil)
	d.Up(instance("a", 4), "unix", e.address)
	invoke(t, d, warmUp+2)
	if got := d.Executed(nil); len(got) != 0 {
		t.Errorf("an instance that reports no times has executed %v", got)
	}
	e.exec.Store(1500)
	invoke(t, d, warmUp)
	if got := d.Executed(nil); len(got) != 0 {
		t.Errorf("the first batches count: %v", got)
	}
	invoke(t, d, 2)
	want := Executed{Instance: "a", Size: 1, Exec: 1500 * time.Microsecond, Elements: 12}
	got := d.Executed(nil)
	if len(got) != 2 || got[0] != want || got[1] != want {
		t.Errorf("executed %v, want twice %v", got, want)
	}
	if again := d.Executed(got[:0]); len(again) != 0 {
		t.Errorf("twice the same: %v", again)
	}
	e.status.Store(400)
	invoke(t, d, 3)
	if got := d.Executed(nil); len(got) != 0 {
		t.Errorf("a batch with an error counts: %v", got)
	}
}

// Samples that nobody reads take a bounded amount of memory.
func TestExecutedBatchesAreBounded(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience})
	e := newEcho(t, nil)
	e.exec.Store(1000)
	d.Up(instance("a", 1), "unix", e.address)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 100 {
				if _, err := d.Invoke(t.Context(), request("x")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
	if got := d.Executed(nil); len(got) == 0 || len(got) > maxExecuted {
		t.Errorf("%d batches are kept", len(got))
	}
}

func TestWhatAnExchangeTells(t *testing.T) {
	answers := func(n int, status int) []frame.Response {
		out := make([]frame.Response, n)
		for i := range out {
			out[i].Status = 200
		}
		if n > 0 {
			out[n-1].Status = status
		}
		return out
	}
	ms := func(n int) taken {
		return taken{time: time.Duration(n) * time.Millisecond, beside: time.Duration(n) * time.Microsecond, reported: true, elements: 7}
	}
	for _, c := range []struct {
		name    string
		calls   int
		answers []frame.Response
		took    taken
		want    Executed
	}{
		{"one batch", 3, answers(3, 200), ms(6), Executed{"a", 3, 6 * time.Millisecond, 6 * time.Microsecond, 7, 0}},
		{"three batches", 12, answers(12, 200), ms(6), Executed{"a", 4, 2 * time.Millisecond, 2 * time.Microsecond, 7, 0}},
		{"three batches and a half", 14, answers(14, 200), ms(6), Executed{}},
		{"a part of a batch", 4, answers(2, 200), ms(6), Executed{}},
		{"an error", 3, answers(3, 500), ms(6), Executed{}},
		{"no report", 3, answers(3, 200), taken{time: time.Millisecond}, Executed{}},
	} {
		b := &batch{instance: "a", limit: 4, calls: make([]*call, c.calls)}
		if got := b.executed(c.answers, c.took); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// When a known instance's times grow, requests that would now be late are answered at
// once.
func TestTimesOfAKnownInstanceChange(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience})
	e := newEcho(t, nil)
	in := instance("a", 1)
	d.Up(in, "unix", e.address)
	invoke(t, d, 1)
	in.Exec = times(1, 2*patience)
	d.Up(in, "unix", e.address)
	if _, err := d.Invoke(t.Context(), request("x")); !errors.Is(err, ErrLate) {
		t.Errorf("error %v", err)
	}
	in.Exec = times(1, time.Millisecond)
	d.Up(in, "unix", e.address)
	invoke(t, d, 1)
}
