package dispatch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/metrics"
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
	// 4 a minute for half of ten minutes are 20 for both. The flood may use what its neighbour leaves.
	until("the flood yields", func() bool { return neighbour.Waiting.Load() == 2 && flood.Waiting.Load() == 18 })
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

// crowd is a dispatcher of two owners whose only instance is busy, for calls that nobody sends.
type crowd struct {
	*Dispatcher
	*record
	now          time.Time
	flood, quiet *frame.Owner
	dropped      map[*frame.Owner]int
}

// newCrowd returns one that carries 400 requests/s in batches of 8, so 40 may wait with an objective of 200 ms.
func newCrowd(t *testing.T) *crowd {
	t.Helper()
	d, r := newDispatcher(t, batching.SharedName, Options{SLO: 200 * time.Millisecond})
	c := &crowd{Dispatcher: d, record: r, now: time.Now(), flood: &frame.Owner{Name: "flood"}, quiet: &frame.Owner{Name: "quiet"}, dropped: map[*frame.Owner]int{}}
	for _, o := range []*frame.Owner{c.flood, c.quiet} {
		o.Dropped = func(reason string) {
			if reason != string(metrics.QueueFull) {
				t.Errorf("a drop of %s is %s", o.Name, reason)
			}
			c.dropped[o]++
		}
	}
	m := &instanceState{Instance: instance("i", 8)}
	m.Exec, m.up = times(8, 20*time.Millisecond), true
	c.instances[m.ID] = m
	c.up.add(m.Serves(), 1)
	t.Cleanup(func() { // It is closed without an instance.
		delete(c.instances, m.ID)
		c.flood.Dropped, c.quiet.Dropped = nil, nil
	})
	return c
}

// arrive lets a call of an owner come, and reports whether it waits.
func (c *crowd) arrive(o *frame.Owner, objective time.Duration, edit ...func(*call)) (*call, bool) {
	x := &call{owner: o, objective: objective, deadline: c.now.Add(objective), signal: make(chan signal, 1), request: &frame.Request{}}
	for _, e := range edit {
		e(x)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !makeRoom(c.Dispatcher, c.now, x) {
		x.crowdOut(c.Dispatcher)
		return x, false
	}
	c.lastID++
	x.id = c.lastID
	c.waiting.add(x)
	c.policy.Add(c.now, x.asPolicy())
	return x, true
}

// Instances that take large batches leave a member that floods no more than half of the objective of its neighbours,
// whichever objective its own requests state.
func TestAFloodIsBoundedByTheCapacity(t *testing.T) {
	const objective = 200 * time.Millisecond
	c := newCrowd(t)
	for i := range 1000 {
		if _, waits := c.arrive(c.flood, objective+time.Duration(i%2)*10*time.Millisecond); !waits {
			t.Fatalf("request %d is refused although nobody else waits", i)
		}
	}
	if _, waits := c.arrive(c.quiet, objective); !waits {
		t.Fatal("the neighbour is refused")
	}
	if n := c.flood.Waiting.Load(); n < 39 || n > 41 {
		t.Errorf("the flood has %d waiting, want about 400 · 0.1", n)
	}
	for range 100 {
		c.arrive(c.flood, objective)
	}
	for range 15 {
		if _, waits := c.arrive(c.quiet, objective); !waits {
			t.Fatal("the neighbour is refused within its part")
		}
	}
	if n := c.waiting.prompt(); n < 39 || n > 42 {
		t.Errorf("%d wait together", n)
	}
	if c.dropped[c.quiet] != 0 || c.record.drops.Load() != 0 {
		t.Errorf("%d of the neighbour are dropped, and %d are counted twice", c.dropped[c.quiet], c.record.drops.Load())
	}
	if got, want := c.dropped[c.flood], 1100-int(c.flood.Waiting.Load()); got != want || int(c.refused.Load()) != want {
		t.Errorf("%d drops of the flood are counted and %d refused, want %d", got, c.refused.Load(), want)
	}
}

// The oldest requests stay, and one that has waited before is not the newest.
func TestTheNewestYield(t *testing.T) {
	c := newCrowd(t)
	var all []*call
	for range 100 {
		x, _ := c.arrive(c.flood, 200*time.Millisecond)
		all = append(all, x)
	}
	again := c.waiting.take(all[50].id)
	c.waiting.add(again)
	c.arrive(c.quiet, 200*time.Millisecond)
	for i, x := range all {
		if waits := c.waiting.calls[x.id] != nil; waits != (i < 38 || i == 50) {
			t.Errorf("call %d waits: %v", i, waits)
		}
	}
}

// A refused request whose lateness says nothing about the capacity asks for no more of it.
func TestRefusalsThatAskForNoCapacity(t *testing.T) {
	c := newCrowd(t)
	beyond := func(x *call) { x.beyond = true }
	for range 100 {
		c.arrive(c.flood, 200*time.Millisecond, beyond)
	}
	c.arrive(c.quiet, 200*time.Millisecond)
	for range 100 {
		c.arrive(c.flood, 200*time.Millisecond, beyond)
	}
	if c.dropped[c.flood] < 100 || c.refused.Load() != 0 {
		t.Errorf("%d dropped, %d counted as refused", c.dropped[c.flood], c.refused.Load())
	}
}

// A member with an objective of 50 ms is not crowded out by one of 2 s, and leaves it its part.
func TestAFloodBesideAnotherObjective(t *testing.T) {
	c := newCrowd(t)
	for range 2000 {
		c.arrive(c.flood, 2*time.Second)
	}
	for range 5 {
		if _, waits := c.arrive(c.quiet, 50*time.Millisecond); !waits {
			t.Fatal("the neighbour is refused")
		}
	}
	if n := c.flood.Waiting.Load(); n < 394 || n > 400 {
		t.Errorf("the flood has %d waiting, want 400 of all", n)
	}
}

// Lines say at all times what scanning the calls would.
func FuzzLines(f *testing.F) {
	f.Add([]byte{0, 1, 130, 3, 64, 200, 7, 9, 255, 12})
	f.Fuzz(func(t *testing.T, script []byte) {
		w := waiting{calls: map[batching.RequestID]*call{}, lines: map[*frame.Owner]*ownerLine{}}
		owners := []*frame.Owner{{}, {}, {}, nil}
		var out []*call
		for i, b := range script {
			switch {
			case b < 128:
				w.add(&call{id: batching.RequestID(i + 1), owner: owners[b%4], patient: b%5 == 0, objective: time.Duration(b)})
			case b < 192 && len(out) > 0:
				w.add(out[0])
				out = out[1:]
			default:
				for id := range w.calls {
					out = append(out, w.take(id))
					break
				}
			}
			for _, o := range owners[:3] {
				n, sum, all := 0, time.Duration(0), int64(0)
				for _, c := range w.calls {
					if c.owner == o {
						if all++; !c.patient {
							n, sum = n+1, sum+c.objective
						}
					}
				}
				l, listed := w.lines[o], 0
				if o.Waiting.Load() != all || (l == nil) != (n == 0) {
					t.Fatalf("%d wait, %d are counted; line %+v", all, o.Waiting.Load(), l)
				}
				if l == nil {
					continue
				}
				for c := l.oldest; c != nil; c = c.behind {
					if listed++; w.calls[c.id] != c || c.behind == nil && l.newest != c || c.behind != nil && c.behind.ahead != c {
						t.Fatalf("call %d of %d is wrong", c.id, n)
					}
				}
				if l.n != n || listed != n || l.objectives != sum {
					t.Fatalf("the line is %+v with %d calls, want %d and %d", l, listed, n, sum)
				}
			}
		}
	})
}
