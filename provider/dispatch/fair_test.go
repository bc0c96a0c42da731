package dispatch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// A function that floods a shared dispatcher alone has its whole queue. As soon as a neighbour has a request, the flood
// keeps only its part, and the neighbour is answered.
func TestAFloodYieldsToItsNeighbour(t *testing.T) {
	gate := make(chan struct{})
	e := newEcho(t, gate)
	d, _ := newDispatcher(t, "shared", Options{SLO: patience})
	in := instance("i", 4)
	in.Exec = times(4, time.Minute) // 4 requests a minute: a flood.
	d.Up(in, "unix", e.address)
	flood, neighbour := &frame.Owner{Name: "flood"}, &frame.Owner{Name: "neighbour"}
	var all sync.WaitGroup
	errs := make(chan error, 100)
	send := func(o *frame.Owner) {
		all.Go(func() {
			_, err := d.Invoke(context.Background(), &frame.Request{Method: "POST", Path: "/", Body: []byte("x"), Owner: o})
			errs <- err
		})
	}
	until := func(what string, done func() bool) {
		t.Helper()
		for began := time.Now(); !done(); time.Sleep(time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("not within a minute: %s (flood %d, neighbour %d)", what, flood.Waiting.Load(), neighbour.Waiting.Load())
			}
		}
	}
	const sent = 60
	for range sent {
		send(flood)
	}
	until("the flood waits", func() bool { return d.arrivals.Load() == sent && e.arrived.Load() > 0 && flood.Waiting.Load() > 40 })
	if n := len(errs); n > 0 {
		t.Fatalf("%d requests of the flood were refused while nobody else waited: %v", n, <-errs)
	}
	send(neighbour)
	send(neighbour)
	// 4 a minute for half of ten minutes and two functions are 10.
	until("the flood yields", func() bool { return neighbour.Waiting.Load() == 2 && flood.Waiting.Load() == 10 })
	before := len(errs)
	send(flood)
	until("one more is refused", func() bool { return len(errs) > before })
	close(gate)
	all.Wait()
	close(errs)
	refused := 0
	for err := range errs {
		if err != nil && !errors.Is(err, ErrQueueFull) {
			t.Errorf("an answer is %v", err)
		}
		if err != nil {
			refused++
		}
	}
	if refused != before+1 {
		t.Errorf("%d requests were refused, want %d", refused, before+1)
	}
	if w, p := flood.Waiting.Load(), neighbour.Waiting.Load(); w != 0 || p != 0 {
		t.Errorf("%d and %d requests still wait", w, p)
	}
}

// Requests without an owner, as those of a function that shares with nobody, are never refused for others.
func TestOneFunctionYieldsToNobody(t *testing.T) {
	e := newEcho(t, nil)
	d, _ := newDispatcher(t, "shared", Options{SLO: patience})
	d.Up(instance("i", 4), "unix", e.address)
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if _, err := d.Invoke(context.Background(), &frame.Request{Method: "POST", Path: "/", Body: []byte("x")}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
