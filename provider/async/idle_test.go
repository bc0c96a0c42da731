package async

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/queue"
)

// consumers counts the consumers of the queue.
func consumers(t testing.TB, r *rig) int {
	t.Helper()
	s, err := r.broker.JetStream().Stream(t.Context(), queue.WorkStream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Consumers
}

// The consumers of idle functions are deleted, and created again when requests come.
func TestIdleFunctionsCostNothing(t *testing.T) {
	t.Parallel()
	var done counts
	many := &deployed{by: map[string]map[string]string{}}
	for i := range 50 {
		many.by[fmt.Sprintf("f%d.openfaas-fn", i)] = nil
	}
	r := start(t, func(_ context.Context, name string, r *frame.Request) (*frame.Response, error) {
		done.add(name + string(r.Body))
		return respond(200, ""), nil
	}, func(o *Options) { o.Functions = many; o.Idle = 100 * time.Millisecond })
	for round := range 3 {
		for i := range 50 {
			r.enqueue(t, fmt.Sprintf("f%d", i), fmt.Sprint(round))
		}
		until(t, "all are executed", func() bool { return done.different() == 50*(round+1) })
		until(t, "no consumer is left", func() bool { return consumers(t, r) == 0 })
	}
	for body, n := range done.by {
		if n != 1 {
			t.Errorf("%s was executed %d times", body, n)
		}
	}
}

// Requests come in all the time while their worker keeps going idle.
func TestComingAndGoing(t *testing.T) {
	t.Parallel()
	var done counts
	r := start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		done.add(string(r.Body))
		return respond(200, ""), nil
	}, func(o *Options) { o.Idle = time.Millisecond })
	for i := range 200 {
		r.enqueue(t, "echo", fmt.Sprint(i))
		time.Sleep(time.Duration(i%20) * time.Millisecond)
	}
	until(t, "all are executed", func() bool { return done.different() == 200 })
}

// A rare request does not wait for the next scan of the queue. The server tells the sender
// that a message is stored a little before it tells its consumers.
func TestOneNowAndThen(t *testing.T) {
	done := make(chan struct{})
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) {
		done <- struct{}{}
		return respond(200, ""), nil
	}, nil)
	// A worker that is not woken looks only after DefaultPoll. The machine may stall for as long, but
	// not each time.
	const soon = 3 * queue.DefaultPoll / 4
	slowest := 2 * soon
	for try := 0; try < 3 && slowest > soon; try++ {
		slowest = 0
		for i := range 100 {
			began := time.Now()
			r.enqueue(t, "echo", fmt.Sprint(i))
			<-done
			slowest = max(slowest, time.Since(began))
			time.Sleep(5 * time.Millisecond) // The worker has found nothing more by now.
		}
		t.Logf("the slowest waited %v", slowest)
	}
	if slowest > soon {
		t.Errorf("one waited %v", slowest)
	}
}
