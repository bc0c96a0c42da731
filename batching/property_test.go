package batching

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// harness drives a policy as a driver would and checks what every policy must
// keep: each request is answered exactly once, a batch is never larger than its
// instance takes, goes only to an instance that is up, and Next is always ahead.
type harness struct {
	t        *testing.T
	policy   Policy
	now      time.Time
	pending  map[RequestID]time.Time
	answered map[RequestID]string
	up       map[cluster.InstanceID]Instance
	running  map[cluster.InstanceID][]run
}

type run struct {
	ids []RequestID
	end time.Time
}

func newHarness(t *testing.T, p Policy) *harness {
	return &harness{t: t, policy: p, now: epoch, pending: map[RequestID]time.Time{}, answered: map[RequestID]string{},
		up: map[cluster.InstanceID]Instance{}, running: map[cluster.InstanceID][]run{}}
}

func (h *harness) answer(id RequestID, how string) {
	if _, ok := h.pending[id]; !ok {
		h.t.Fatalf("request %d is answered (%s) but does not wait; before: %q", id, how, h.answered[id])
	}
	delete(h.pending, id)
	h.answered[id] = how
}

func (h *harness) add(id RequestID, due time.Time) {
	h.pending[id] = due
	h.policy.Add(h.now, Request{ID: id, Deadline: due})
	h.act()
}

func (h *harness) act() {
	for range 2 {
		for _, a := range h.policy.Actions(h.now) {
			if a.Dispatch == nil {
				h.answer(a.Reject, "rejected")
				continue
			}
			in, ok := h.up[a.Instance]
			if !ok {
				h.t.Fatalf("batch for %q, which is not up", a.Instance)
			}
			if b := in.Config.Batch; len(a.Dispatch) == 0 || len(a.Dispatch) > b && in.Exec[b-1] > DefaultShortExec/2 {
				h.t.Fatalf("batch of %d for an instance that takes %d in %v", len(a.Dispatch), b, in.Exec[b-1])
			}
			start := h.now
			for _, r := range h.running[a.Instance] {
				if r.end.After(start) {
					start = r.end
				}
			}
			if len(h.running[a.Instance]) >= 2 {
				h.t.Fatalf("%q is given a third batch", a.Instance)
			}
			for _, id := range a.Dispatch {
				h.answer(id, "dispatched")
			}
			h.running[a.Instance] = append(h.running[a.Instance], run{ids: append([]RequestID(nil), a.Dispatch...), end: start.Add(in.Exec[min(len(a.Dispatch), in.Config.Batch)-1])})
		}
	}
	if at, ok := h.policy.Next(); ok && !at.After(h.now) {
		h.t.Fatalf("Next is %v behind now: a driver would spin", h.now.Sub(at))
	}
	if got := h.policy.Waiting(); got != len(h.pending) {
		h.t.Fatalf("Waiting() = %d, %d wait", got, len(h.pending))
	}
}

// advance moves the clock to t, past every end of a batch and every Next.
func (h *harness) advance(t time.Time) {
	for {
		next := t
		var done cluster.InstanceID
		for id, runs := range h.running {
			if len(runs) > 0 && (runs[0].end.Before(next) || done != "" && runs[0].end.Equal(next) && id < done) {
				next, done = runs[0].end, id
			}
		}
		if at, ok := h.policy.Next(); ok && at.Before(next) {
			next, done = at, ""
		}
		h.now = next
		if done != "" {
			h.running[done] = h.running[done][1:]
			h.policy.Done(h.now, done)
		}
		h.act()
		if next.Equal(t) && done == "" {
			return
		}
	}
}

func (h *harness) bringUp(in Instance) {
	h.up[in.ID] = in
	h.policy.Up(h.now, in)
	h.act()
}

func (h *harness) bringDown(id cluster.InstanceID) {
	delete(h.up, id)
	delete(h.running, id)
	h.policy.Down(h.now, id)
	h.act()
}

func affine(b int, base, each time.Duration) []time.Duration {
	out := make([]time.Duration, b)
	for i := range out {
		out[i] = base + time.Duration(i+1)*each
	}
	return out
}

func FuzzPolicies(f *testing.F) {
	for seed := range uint64(12) {
		f.Add(seed, uint16(300))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		for _, name := range Names() {
			random := rand.New(rand.NewPCG(seed, 1))
			slo := time.Duration(1+random.IntN(100)) * time.Millisecond
			p, err := New(name, Options{SLO: slo, MaxBatch: random.IntN(3) * 8})
			if err != nil {
				t.Fatal(err)
			}
			drive(newHarness(t, p), random, slo, int(steps%1000))
		}
	})
}

// drive makes random things happen and then lets all deadlines pass: nothing
// may be left waiting.
func drive(h *harness, random *rand.Rand, slo time.Duration, steps int) {
	var last RequestID
	var instances int
	for range steps {
		switch random.IntN(12) {
		case 0:
			instances++
			b := 1 << random.IntN(6)
			h.bringUp(Instance{ID: cluster.InstanceID(fmt.Sprint("i", instances)), Config: cluster.Config{Batch: b}, Rate: random.Float64() * 100,
				Timeout: time.Duration(random.IntN(40)-5) * time.Millisecond,
				Exec:    affine(b, time.Duration(random.IntN(20_000))*time.Microsecond, time.Duration(random.IntN(4000))*time.Microsecond)})
		case 1:
			if id := cluster.InstanceID(fmt.Sprint("i", 1+random.IntN(instances+1))); random.IntN(3) == 0 {
				h.bringDown(id)
			}
		case 2:
			id := RequestID(1 + random.IntN(int(last)+1))
			if h.policy.Cancel(h.now, id) {
				h.answer(id, "cancelled")
			}
			h.act()
		case 3:
			h.advance(h.now.Add(time.Duration(random.IntN(30_000)) * time.Microsecond))
		default:
			for range 1 + random.IntN(6) {
				last++
				h.add(last, h.now.Add(slo+time.Duration(random.IntN(3)-1)*slo/2))
			}
		}
	}
	h.advance(h.now.Add(10 * time.Second))
	if len(h.pending) != 0 {
		h.t.Fatalf("%d requests were never answered", len(h.pending))
	}
	if len(h.answered) != int(last) {
		h.t.Fatalf("%d of %d requests were answered", len(h.answered), last)
	}
}
