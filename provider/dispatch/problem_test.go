package dispatch

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/web"
)

func TestProblemIsTold(t *testing.T) {
	d, r := newDispatcher(t, batching.SharedName, Options{SLO: 10 * time.Millisecond, ColdWait: 50 * time.Millisecond})
	d.SetProblem("no node has room", false)
	var refusal *web.Error
	began := time.Now()
	_, err := d.Invoke(t.Context(), request("x"))
	if !errors.As(err, &refusal) || refusal.HTTPStatus() != 503 || !strings.HasSuffix(err.Error(), "in time: no node has room") {
		t.Errorf("error %v", err)
	}
	if waited := time.Since(began); waited < 50*time.Millisecond {
		t.Errorf("told after %v, although an instance might have come", waited)
	}
	d.SetProblem("", false)
	if _, err := d.Invoke(t.Context(), request("x")); !errors.Is(err, ErrCold) {
		t.Errorf("error %v after the problem was taken back", err)
	}
	if n := r.drops.Load(); n != 2 {
		t.Errorf("%d drops", n)
	}
}

func TestHopelessRequestsAreRefused(t *testing.T) {
	var woken bool
	d, r := newDispatcher(t, batching.SharedName, Options{SLO: patience, ColdWait: patience, OnCold: func() { woken = true }})
	held := make(chan error, 1)
	go func() {
		_, err := d.Invoke(t.Context(), request("x"))
		held <- err
	}()
	waitFor(t, func() bool { return d.Stats().Waiting == 1 })
	d.SetProblem("the model cannot be read", true)
	const want = "the function cannot be served: the model cannot be read"
	if err := <-held; err == nil || err.Error() != want {
		t.Errorf("the one that waited got %v", err)
	}
	woken = false
	if _, err := d.Invoke(t.Context(), request("x")); err == nil || err.Error() != want {
		t.Errorf("the next got %v", err)
	}
	if woken || r.drops.Load() != 2 {
		t.Errorf("a refused request woke somebody (%v), or is not counted: %d drops", woken, r.drops.Load())
	}
	// A ready instance serves, whatever the problem is.
	e := newEcho(t, nil)
	d.Up(instance("a", 1), "unix", e.address)
	if _, err := d.Invoke(t.Context(), request("x")); err != nil {
		t.Error(err)
	}
}

func TestExchangesMayTakeTwentyTimesTheirPrediction(t *testing.T) {
	d := New(Options{SLO: time.Second})
	slow := batching.Instance{Exec: []time.Duration{time.Second, 2 * time.Second}}
	for _, c := range []struct {
		in   batching.Instance
		want time.Duration
	}{{instance("quick", 4), 10 * time.Second}, {slow, 40 * time.Second}, {batching.Instance{}, 10 * time.Second}} {
		if got := d.timeout(c.in); got != c.want {
			t.Errorf("%v: %v, want %v", c.in.Exec, got, c.want)
		}
	}
}

// Instances exit while the function is removed; the race detector checks this.
func TestCloseWhileInstancesGo(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: time.Second})
	e := newEcho(t, nil)
	ids := make([]cluster.InstanceID, 200)
	for i := range ids {
		ids[i] = cluster.InstanceID(fmt.Sprint("a", i))
		d.Up(instance(string(ids[i]), 1), "unix", e.address)
	}
	var gone sync.WaitGroup
	gone.Go(func() {
		for _, id := range ids {
			d.Forget(id)
		}
	})
	d.Close()
	gone.Wait()
	if n := len(d.Stats().Instances); n != 0 {
		t.Errorf("%d instances are left", n)
	}
}
