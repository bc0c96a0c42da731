package batching

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// A batch starts in its window: not before one more request could no longer join in time. Full batches start at
// once, and so do those that pass over an urgent head under overload.
func FuzzDeferredStartsInItsWindow(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, uint16(400))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		random := rand.New(rand.NewPCG(seed, 7))
		slo := time.Duration(20+random.IntN(200)) * time.Millisecond
		in := Instance{Config: cluster.Config{Batch: 2 + random.IntN(15)}}
		in.Exec = affine(in.Config.Batch, slo/time.Duration(4+random.IntN(20)), slo/time.Duration(40+random.IntN(200)))
		p := NewDeferred(Options{SLO: slo})
		h := newHarness(t, windowed{p, t, in.Exec})
		for i := range 1 + random.IntN(3) {
			in.ID = cluster.InstanceID(fmt.Sprint("i", i))
			h.bringUp(in)
		}
		gap := time.Duration(1+random.IntN(40)) * slo / 200
		for id := range RequestID(steps % 1000) {
			h.advance(h.now.Add(time.Duration(random.ExpFloat64() * float64(gap))))
			h.add(id+1, h.now.Add(slo-Travel(slo)), 0)
		}
		h.advance(h.now.Add(time.Minute))
		if len(h.pending) != 0 {
			t.Fatalf("%d requests were never answered", len(h.pending))
		}
	})
}

// windowed is a deferred policy whose batches are checked to start in their windows. All instances have the times exec.
type windowed struct {
	*Shared
	t    *testing.T
	exec []time.Duration
}

func (p windowed) Actions(now time.Time) []Action {
	first, head := map[RequestID]time.Time{}, RequestID(0)
	for rest := p.queued; rest != 0; rest &= rest - 1 {
		q := &p.queues[lowest(rest)]
		for i := range q.len() {
			first[q.at(i).id] = p.clock.time(q.at(i).due)
		}
		if i := q.before(p.clock.since(now) + p.exec[0]); i < q.len() {
			head = q.at(i).id
		}
	}
	actions := p.Shared.Actions(now)
	for _, a := range actions {
		n := len(a.Dispatch)
		if n == 0 || n >= len(p.exec) || p.fleet.kinds[0].single || a.Dispatch[0] != head {
			continue
		}
		if window := first[a.Dispatch[0]].Add(-p.exec[n] - timerSlack); now.Before(window) {
			p.t.Fatalf("a batch of %d starts %v before its window", n, window.Sub(now))
		}
	}
	return actions
}

// Deferring makes larger batches of the same load on the same instances, and serves as much of it in time.
func TestDeferredMakesLargerBatches(t *testing.T) {
	const slo = 50 * time.Millisecond
	for _, m := range models {
		p := m.pool(3, slo)
		rate := 0.3 * p.capacity()
		soon, late := p.offer(SharedName, rate, 5_000), p.offer(DeferredName, rate, 5_000)
		t.Logf("%s: shared %.1f, deferred %.1f requests a batch", m.name, soon.batch, late.batch)
		if late.within < 0.999 || late.batch < 2*soon.batch {
			t.Errorf("%s: deferred %.4f in time in batches of %.1f, shared in batches of %.1f", m.name, late.within, late.batch, soon.batch)
		}
	}
}
