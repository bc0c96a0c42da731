package forward

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// single is a program with max_inflight=1: it refuses further requests as the watchdog does. Each
// request is answered when gate gives something.
type single struct {
	inside  atomic.Int64
	refused atomic.Int64
	gate    chan struct{}
}

func (s *single) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.inside.Add(-1)
	if s.inside.Add(1) > 1 {
		s.refused.Add(1)
		w.Header().Set(refusedHeader, "watchdog")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	<-s.gate
}

// Requests that wait for a first instance, and are more than it takes at once, wait on: for the
// instances that start after it, and for answers.
func TestColdBurstWaitsForFurtherInstances(t *testing.T) {
	r := newRig(t, Options{ColdWait: time.Hour})
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() { r.answers(200, "") })
	}
	waitFor(t, func() bool { return r.Stats().Waiting == 8 })
	s := &single{gate: make(chan struct{})}
	r.up(start(t, "a", s.ServeHTTP))
	waitFor(t, func() bool { return s.inside.Load() == 1 && r.Stats().Waiting == 7 })
	var others []*single
	for i := range 3 {
		o := &single{gate: make(chan struct{})}
		others = append(others, o)
		r.up(start(t, fmt.Sprint("b", i), o.ServeHTTP))
		waitFor(t, func() bool { return o.inside.Load() == 1 && r.Stats().Waiting == 6-i })
	}
	for _, o := range append(others, s) {
		close(o.gate)
	}
	wait.Wait()
	r.settled()
}

// Such a request gets 429 when its wait is over, and waits no more if its client leaves.
func TestColdBurstEnds(t *testing.T) {
	r := newRig(t, Options{})
	r.Up("a", "unix", "nowhere", 1)
	c := &call{forwarder: r.Forwarder, ctx: t.Context(), cold: true, freed: r.freed, deadline: time.Now().Add(time.Millisecond)}
	if p, err := r.acquireFreed(c); p != nil || err != nil || r.Stats().Waiting != 0 {
		t.Errorf("at its deadline it got %v, %v", p, err)
	}
	if _, err := c.refusal(); !errors.Is(err, ErrBusy) {
		t.Errorf("its answer is %v", err)
	}
	ctx, leave := context.WithCancel(t.Context())
	c.ctx, c.freed, c.deadline = ctx, r.freed, time.Now().Add(time.Hour)
	time.AfterFunc(time.Millisecond, leave)
	if p, err := r.acquireFreed(c); p != nil || !errors.Is(err, context.Canceled) || r.Stats().Waiting != 0 {
		t.Errorf("after its client has left it got %v, %v", p, err)
	}
}
