package dispatch

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/spare"
)

// withTexts is a request of n texts that an instance answers.
func withTexts(n int) *frame.Request {
	r := request("x")
	r.Body = sentences(n, 3).Body
	return r
}

// An exchange may take as long as all rows of its requests may, whether the instance is lent for it or not.
func TestExchangesOfManyRowsMayTakeLong(t *testing.T) {
	for name, invoke := range map[string]func(*testing.T, *Dispatcher, *frame.Request) error{
		"ordinary": func(t *testing.T, d *Dispatcher, r *frame.Request) error {
			_, err := d.Invoke(t.Context(), r)
			return err
		},
		"best effort": func(_ *testing.T, d *Dispatcher, r *frame.Request) error { _, err := InvokeSpare(d, r); return err },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Options{SLO: 10 * time.Minute, ExchangeTimeout: minPatience})
				a := r.serve("a")
				gate := make(chan struct{})
				in := instance("a", 4)
				in.Exec = times(4, 100*time.Millisecond)
				r.Up(in, "fake", "a")
				r.mu.Lock()
				r.pad(time.Now(), true)
				r.mu.Unlock()
				a.echo.mu.Lock()
				a.echo.gate = gate
				a.echo.mu.Unlock()
				time.AfterFunc(30*time.Second, func() { close(gate) }) // 200 rows are predicted to take 5 s.
				if err := invoke(t, r.Dispatcher, withTexts(200)); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// Rows beyond the first of each request are counted, those of refused requests too.
func TestRowsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Minute})
		r.serve("a")
		r.Up(instance("a", 4), "fake", "a")
		r.mu.Lock()
		r.pad(time.Now(), true)
		r.mu.Unlock()
		for _, rows := range []int{1, 64, 3} {
			if _, err := r.Dispatcher.Invoke(t.Context(), withTexts(rows)); err != nil {
				t.Error(err)
			}
		}
		if s := r.Stats(); s.Arrivals != 3 || s.ExtraRows != 65 {
			t.Errorf("%d requests with %d more rows, want 3 with 65", s.Arrivals, s.ExtraRows)
		}
		r.Close()
		if _, err := r.Dispatcher.Invoke(t.Context(), withTexts(5)); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if s := r.Stats(); s.ExtraRows != 69 {
			t.Errorf("%d more rows, want 69", s.ExtraRows)
		}
	})
}

// A best-effort request takes the time of all its rows.
func TestSpareCountsRows(t *testing.T) {
	e := newEcho(t, nil)
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: time.Minute})
	d.Up(slow("a", time.Second, 2*time.Second), "unix", e.address)
	d.mu.Lock()
	d.pad(time.Now(), true)
	d.mu.Unlock()
	if _, err := InvokeSpare(d, withTexts(200)); !errors.Is(err, spare.ErrOccupied) {
		t.Errorf("200 texts, which take 200 s: %v", err)
	}
	if _, err := InvokeSpare(d, withTexts(2)); err != nil {
		t.Error(err)
	}
}

// Instances pad once one has reported rows of texts, those that come later too, and no longer once all are of a model
// without texts. A body of which nothing is seen counts as many rows as others have.
func TestPaddingFollowsTheModel(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience})
	up := func(id string, longest int64) {
		in := instance(id, 4)
		in.Sizes, in.Longest = proportional(100), longest
		d.Up(in, "unix", "none")
	}
	executed := func(id string, ran Executed) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.sizes.turns(d.instances, d.instances[instance(id, 1).ID], ran) {
			d.pad(time.Now(), !d.sizes.pads())
		}
	}
	longest := func(id string) int64 { return d.instances[instance(id, 1).ID].Instance.Longest }
	up("a", 300)
	executed("a", Executed{Size: 4})
	if longest("a") != 0 || d.sizes.pads() {
		t.Error("it pads without texts")
	}
	executed("a", Executed{Rows: 6, Elements: 9})
	up("a", 300)
	up("b", 0)
	if longest("a") != 300 || longest("b") != 1 {
		t.Errorf("the longest rows are %d and %d", longest("a"), longest("b"))
	}
	compressed := sentences(2, 3)
	compressed.Header = http.Header{"Content-Encoding": {"gzip"}}
	for want, r := range map[int]*frame.Request{6: compressed, 3: sentences(3, 3)} {
		c := &call{look: d.sizes.lookAt(r)}
		if d.sizes.estimateOf(c); c.asPolicy().Rows != want {
			t.Errorf("%d rows, want %d", c.asPolicy().Rows, want)
		}
	}
	executed("b", Executed{Size: 4})
	if !d.sizes.pads() {
		t.Error("it no longer pads although an instance has texts")
	}
	d.Forget("a")
	executed("b", Executed{Size: 4})
	if d.sizes.pads() || longest("b") != 0 || !d.sizes.wanted.Load() {
		t.Error("it pads although no instance has texts")
	}
}
