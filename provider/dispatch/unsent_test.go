package dispatch

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A batch whose instance exits before the batch's leader runs was certainly never sent. It goes to
// another instance, whatever hedge says, and keeps its one retry.
func TestNeverSentIsNotExecuted(t *testing.T) {
	for _, once := range []bool{false, true} {
		a, b := newEcho(t, nil), newEcho(t, nil)
		d, _ := newDispatcher(t, "one-to-one", Options{SLO: patience, Once: once})
		d.Up(instance("a", 1), "unix", a.address)
		c := &call{ctx: t.Context(), request: request("x"), arrived: time.Now(), signal: make(chan signal, 1)}
		batches, err := d.admit(c)
		if err != nil || len(batches) != 1 {
			t.Fatal(err, batches)
		}
		d.Forget("a") // Its process has exited, and the event came first.
		d.Up(instance("b", 1), "unix", b.address)
		got, err := d.finish(c, d.flight(batches[0]).lead(c))
		if err != nil || got.Status != 200 || c.retried || a.arrived.Load() != 0 {
			t.Errorf("once %v: %v, %v; retried: %v; %d batches at the first", once, got, err, c.retried, a.arrived.Load())
		}
	}
}

// Nor does an instance execute a batch that it has not read to its end.
func TestHalfSentIsNotExecuted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Second, Once: true})
		a := r.start("a")
		a.stop()
		done := make(chan error, 1)
		go func() {
			_, err := r.Invoke(t.Context(), request(strings.Repeat("x", 1<<20)))
			done <- err
		}()
		synctest.Wait()
		b := r.start("b")
		if err := <-done; err != nil || b.batches.Load() != 1 {
			t.Errorf("%v; the other instance executed %d batches", err, b.batches.Load())
		}
		a.goOn()
		time.Sleep(time.Second) // Its server closes the connections.
	})
}
