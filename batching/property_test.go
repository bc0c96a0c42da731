package batching

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// harness drives a policy as a driver would and checks what every policy must keep.
// Each request is answered exactly once, in the order of deadlines within a batch. It
// is rejected only if no instance could answer it in time. A batch is never larger
// than its instance takes and goes only to an instance that is up. Next is always in
// the future.
type harness struct {
	t        *testing.T
	policy   Policy
	now      time.Time
	pending  map[RequestID]request
	answered map[RequestID]string
	up       map[cluster.InstanceID]Instance
	running  map[cluster.InstanceID][]run
	// stable: of those with the same deadline, who came first is in front.
	stable bool
	// classes is how many classes the requests have.
	classes int
	// sizes: the requests have sizes, and times grow with these.
	sizes  bool
	within time.Duration
	// streams is the highest concurrency of an instance, 0 for 1.
	streams int
	// added counts how often a request was, steps what happened.
	added, steps int
}

// request is a request with its number in the order of Add.
type request struct {
	due      time.Time
	order    int
	class    uint8
	elements int64
}

// before is the order of requests in a batch.
func (r request) before(o request, stable bool) bool {
	return r.due.Before(o.due) || stable && r.due.Equal(o.due) && r.order < o.order
}

type run struct {
	ids     []RequestID
	members []request
	end     time.Time
}

func newHarness(t *testing.T, p Policy) *harness {
	_, dealt := p.(*InFless) // Its requests change queues when an instance leaves.
	return &harness{t: t, policy: p, now: epoch, stable: !dealt, classes: 1, pending: map[RequestID]request{}, answered: map[RequestID]string{},
		up: map[cluster.InstanceID]Instance{}, running: map[cluster.InstanceID][]run{}}
}

func (h *harness) answer(id RequestID, how string) request {
	r, ok := h.pending[id]
	if !ok {
		h.t.Fatalf("request %d is answered (%s) but does not wait; before: %q", id, how, h.answered[id])
	}
	delete(h.pending, id)
	h.answered[id] = how
	return r
}

func (h *harness) add(id RequestID, due time.Time, class uint8) {
	h.added++
	r := request{due: due, order: h.added, class: class}
	if h.sizes {
		r.elements = int64(id) * 7 % 5 * 100 // 0 is not known.
	}
	h.pending[id] = r
	h.policy.Add(h.now, Request{ID: id, Deadline: due, Class: class, Elements: r.elements})
	h.act()
}

// times are those of an instance for rows of a size. late: a request takes longer than its objective.
func (h *harness) times(in Instance, elements int64) (exec []time.Duration, late bool) {
	if in.Sizes == nil || elements == 0 || in.Exec[0] < separateExecs*DefaultShortExec {
		return in.Exec, false
	}
	for i, t := range in.Exec {
		exec = append(exec, time.Duration(float64(t)*in.Sizes.Factor(i+1, elements)))
	}
	return exec, exec[0] > h.within-h.within/20
}

// soonest is when a request like r that executes now could be answered. One that is late in any case counts
// as one of the planned size.
func (h *harness) soonest(r request) time.Time {
	inTime, anyhow := time.Duration(-1), time.Duration(-1)
	for _, in := range h.up {
		if !has(in.Serves(), int(r.class)) {
			continue
		}
		switch exec, late := h.times(in, r.elements); {
		case !late && (inTime < 0 || exec[0] < inTime):
			inTime = exec[0]
		case late && (anyhow < 0 || min(in.Exec[0], exec[0]) < anyhow):
			anyhow = min(in.Exec[0], exec[0])
		}
	}
	if inTime >= 0 {
		return h.now.Add(inTime)
	}
	return h.now.Add(max(0, anyhow))
}

func (h *harness) act() {
	for range 2 {
		for _, a := range h.policy.Actions(h.now) {
			if a.Dispatch != nil {
				h.dispatch(a)
				continue
			}
			if r := h.answer(a.Reject, "rejected"); !r.due.Before(h.soonest(r)) {
				h.t.Fatalf("request %d is rejected %v before it is late", a.Reject, r.due.Sub(h.soonest(r)))
			}
		}
	}
	h.check()
}

// dispatch starts a batch on an instance, behind the one that it executes.
func (h *harness) dispatch(a Action) {
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
	most := 2
	if in.Config.Streams() > 1 {
		most = 1
	}
	if len(h.running[a.Instance]) >= most {
		h.t.Fatalf("%q is given more than %d batches", a.Instance, most)
	}
	if n := h.inFlight(InstanceOf(a.Instance)); n >= in.Config.Streams() && most == 1 {
		h.t.Fatalf("%q has %d batches and is given another; it executes %d at the same time", InstanceOf(a.Instance), n, in.Config.Streams())
	}
	exec, _ := h.times(in, h.pending[a.Dispatch[0]].elements)
	begun := run{ids: slices.Clone(a.Dispatch), end: start.Add(exec[min(len(a.Dispatch), in.Config.Batch)-1])}
	var last request
	for i, id := range a.Dispatch {
		r := h.answer(id, "dispatched")
		if i > 0 && r.before(last, h.stable) {
			h.t.Fatalf("request %d stands behind one that is due %v later or came after it", id, last.due.Sub(r.due))
		}
		if !has(in.Serves(), int(r.class)) {
			h.t.Fatalf("request %d of class %d is given to %q, which serves %b", id, r.class, a.Instance, in.Serves())
		}
		if i > 0 && r.elements != last.elements && in.Sizes != nil && in.Exec[0] >= separateExecs*DefaultShortExec {
			h.t.Fatalf("requests of %d and %d elements are in one batch", last.elements, r.elements)
		}
		last = r
		begun.members = append(begun.members, r)
	}
	h.running[a.Instance] = append(h.running[a.Instance], begun)
}

// inFlight counts the batches of an instance.
func (h *harness) inFlight(id cluster.InstanceID) (n int) {
	for stream, runs := range h.running {
		if InstanceOf(stream) == id {
			n += len(runs)
		}
	}
	return n
}

// check checks the invariants after all actions are carried out.
func (h *harness) check() {
	if at, ok := h.policy.Next(); ok && !at.After(h.now) {
		h.t.Fatalf("Next is %v behind now: a driver would spin", h.now.Sub(at))
	}
	if got := h.policy.Waiting(); got != len(h.pending) {
		h.t.Fatalf("Waiting() = %d, %d wait", got, len(h.pending))
	}
	if h.steps++; h.steps%64 != 0 {
		return
	}
	for id, r := range h.pending {
		soonest := h.now.Add(h.quick(h.soonest(r).Sub(h.now)))
		if !(h.sizes && len(h.pending) > lookAhead) && r.due.Before(soonest) {
			h.t.Fatalf("request %d waits, late by %v", id, soonest.Sub(r.due))
		}
	}
}

// quick is the time of a batch that the policy waits for, with that time in Exec: [Shared] learns that batches end
// earlier, as they do here after an instance changed its times.
func (h *harness) quick(exec time.Duration) time.Duration {
	p := h.policy
	for {
		switch of := p.(type) {
		case conserving:
			p = of.Policy
		case logged:
			p = of.Policy
		case classed:
			p = of.Policy
		case windowed:
			p = of.Shared
		case *Shared:
			return of.fleet.soonest(exec)
		default:
			return exec
		}
	}
}

// advance moves the clock to t and stops at every end of a batch and every Next.
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
	for i := range in.Config.Streams() {
		stream := in
		stream.ID = Stream(in.ID, i)
		h.up[stream.ID] = stream
	}
	Up(h.policy, h.now, in)
	h.act()
}

// bringDown removes an instance. again adds its executing requests again, as after a
// crash.
func (h *harness) bringDown(id cluster.InstanceID, again bool) {
	in := h.up[id]
	in.ID = id
	var lost []run
	for i := range in.Config.Streams() {
		stream := Stream(id, i)
		lost = append(lost, h.running[stream]...)
		delete(h.up, stream)
		delete(h.running, stream)
	}
	Down(h.policy, h.now, &in)
	h.act()
	for _, r := range lost {
		for i, id := range r.ids {
			if again {
				h.add(id, r.members[i].due, r.members[i].class)
			}
		}
	}
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
			h := newHarness(t, p)
			h.streams = int(seed % 5)
			drive(h, random, slo, int(steps%1000))
		}
	})
}

// concurrency is that of an instance: it stays the same.
func (h *harness) concurrency(id cluster.InstanceID) int {
	if h.streams == 0 {
		return 0
	}
	return int(id[len(id)-1]) % (h.streams + 1)
}

// drive makes random events and then lets all deadlines pass: no request may still
// wait.
func drive(h *harness, random *rand.Rand, slo time.Duration, steps int) {
	var last RequestID
	var instances int
	crowd := 1 + random.IntN(12)
	some := func() cluster.InstanceID { return cluster.InstanceID(fmt.Sprint("i", 1+random.IntN(instances+1))) }
	for range steps {
		switch random.IntN(12) {
		case 0:
			id := some() // Often one that is up, which then changes.
			if _, ok := h.up[id]; !ok {
				instances++
				id = cluster.InstanceID(fmt.Sprint("i", instances))
			}
			b := 1 << random.IntN(6)
			in := Instance{ID: id, Config: cluster.Config{Batch: b, Concurrency: h.concurrency(id)}, Rate: random.Float64() * 100, Classes: h.some(random),
				Timeout: time.Duration(random.IntN(40)-5) * time.Millisecond,
				Exec:    affine(b, time.Duration(random.IntN(20_000))*time.Microsecond, time.Duration(random.IntN(4000))*time.Microsecond)}
			if h.sizes && random.IntN(8) > 0 {
				in.Sizes = proportional(200)
			}
			h.bringUp(in)
		case 1:
			if id := some(); random.IntN(3) == 0 {
				h.bringDown(id, random.IntN(2) == 0)
				h.policy.Done(h.now, id) // Which nobody waits for.
				h.act()
			}
		case 2:
			id := RequestID(1 + random.IntN(int(last)+1))
			if h.policy.Cancel(h.now, id) {
				h.answer(id, "cancelled")
			} else if _, waits := h.pending[id]; waits {
				h.t.Fatalf("request %d waits and cannot be cancelled", id)
			}
			h.act()
		case 3:
			h.advance(h.now.Add(time.Duration(random.IntN(30_000)) * time.Microsecond))
		default:
			for range 1 + random.IntN(crowd) {
				last++
				h.add(last, h.now.Add(deadline(random, slo)), h.class(random))
			}
		}
	}
	h.advance(h.now.Add(60 * time.Second))
	if len(h.pending) != 0 {
		h.t.Fatalf("%d requests were never answered", len(h.pending))
	}
	if len(h.answered) != int(last) {
		h.t.Fatalf("%d of %d requests were answered", len(h.answered), last)
	}
}

// deadline is mostly the objective, sometimes that of a request that found no ready
// instance, and sometimes any time, even a past one.
func deadline(random *rand.Rand, slo time.Duration) time.Duration {
	switch random.IntN(8) {
	case 0:
		return slo + 30*time.Second
	case 1:
		return time.Duration((random.Float64()*4 - 1) * float64(slo))
	default:
		return slo
	}
}
