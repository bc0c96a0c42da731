package batching

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// ordered is a simple, slow model of a queue.
type ordered []waiter

func (o *ordered) add(w waiter) {
	i := slices.IndexFunc(*o, func(x waiter) bool { return x.due > w.due })
	if i < 0 {
		i = len(*o)
	}
	*o = slices.Insert(*o, i, w)
}

func (o ordered) before(t time.Duration) int {
	n := 0
	for n < len(o) && o[n].due < t {
		n++
	}
	return n
}

// compare checks that the queue has the model's requests in the same order.
func (q *queue) compare(t *testing.T, o ordered) {
	t.Helper()
	if q.len() != len(o) {
		t.Fatalf("%d wait, want %d", q.len(), len(o))
	}
	for i, w := range o {
		if *q.at(i) != w {
			t.Fatalf("the %d-th of %d is %v, want %v", i, len(o), *q.at(i), w)
		}
	}
	before, behind := q.parts(0, q.len())
	if !slices.Equal(slices.Concat(before, behind), o) {
		t.Fatalf("the parts are %v and %v, want %v", before, behind, o)
	}
}

// Whatever comes and goes, the queue is in the order of deadlines. Equal deadlines
// keep the order of arrival.
func FuzzQueue(f *testing.F) {
	for seed := range uint64(6) {
		f.Add(seed, uint16(600))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		random := rand.New(rand.NewPCG(seed, 5))
		var q queue
		var model ordered
		// How many come and go, and how many of them early, changes.
		in, late := 0.5, 0.5
		next := RequestID(0)
		for i := range int(steps % 3000) {
			if i%64 == 0 {
				in, late = random.Float64(), random.Float64()
			}
			now := time.Duration(i)
			switch n := len(model); {
			case n == 0 || random.Float64() < in:
				w := waiter{id: next, due: now + time.Duration(random.IntN(8))}
				if random.Float64() < late {
					w.due += 1000
				}
				next++
				q.add(w)
				model.add(w)
			case random.IntN(20) == 0:
				w := model[random.IntN(n)]
				if !q.remove(w.id) || q.remove(next) {
					t.Fatalf("%v is not there, or somebody else is", w)
				}
				model = slices.DeleteFunc(model, func(x waiter) bool { return x == w })
			case random.IntN(200) == 0:
				if got := q.drain(); !slices.Equal(got, model) {
					t.Fatalf("drained %v, want %v", got, model)
				}
				model = nil
			default:
				k := random.IntN(n)
				from := random.IntN(n-k) * random.IntN(2)
				for j, id := range q.take(from, k, nil) {
					if id != model[from+j].id {
						t.Fatalf("took %d, want %d", id, model[from+j].id)
					}
				}
				model = slices.Delete(model, from, from+k)
			}
			q.compare(t, model)
			if at := now + time.Duration(random.IntN(12)) + 1000*time.Duration(random.IntN(2)); q.before(at) != model.before(at) {
				t.Fatalf("%d are before %d, want %d", q.before(at), at, model.before(at))
			}
		}
		if room := cap(q.items); room > 4*int(next)+128 {
			t.Fatalf("%d places for what was never more than %d", room, next)
		}
	})
}

// A queue that never gets empty does not grow for ever, whichever requests come in
// between.
func TestAQueueStaysSmall(t *testing.T) {
	for _, cold := range []int{0, 1, 100} {
		var q queue
		for i := range cold {
			q.add(waiter{id: RequestID(i), due: time.Hour + time.Duration(i)})
		}
		for i := range 20_000 {
			q.add(waiter{id: RequestID(i), due: time.Duration(i)})
			if cold > 0 && i%3 == 0 {
				q.add(waiter{id: RequestID(i), due: time.Hour + time.Duration(i)})
				q.drop(q.len()-cold, 1)
			}
			if i >= 10 {
				q.drop(0, 1)
			}
		}
		if cap(q.items) > 1000 {
			t.Errorf("%d places for %d and ten", cap(q.items), cold)
		}
	}
}

// BenchmarkQueue adds and removes a request while requests with later deadlines wait
// behind it.
func BenchmarkQueue(b *testing.B) {
	for _, cold := range []int{0, 1000, 16_000} {
		for _, warm := range []int{1, 100, 2000} {
			b.Run(fmt.Sprintf("cold=%d/warm=%d", cold, warm), func(b *testing.B) {
				var q queue
				for i := range cold {
					q.add(waiter{id: RequestID(i), due: time.Hour + time.Duration(i)})
				}
				var ids []RequestID
				i := 0
				for b.Loop() {
					i++
					q.add(waiter{id: RequestID(i), due: time.Duration(i)})
					if q.len() >= cold+warm {
						ids = q.take(0, min(8, warm), ids[:0])
					}
				}
			})
		}
	}
}

// No policy holds a request for its patience: one that found no instance, or one of the queue, goes as
// soon as one with the objective alone would.
func TestPatientRequestsGoInTime(t *testing.T) {
	const slo = 200 * time.Millisecond
	within := slo - Travel(slo)
	for _, policy := range Names() {
		for _, patience := range []time.Duration{0, 30 * time.Second, time.Minute} {
			p, err := New(policy, Options{SLO: slo})
			if err != nil {
				t.Fatal(err)
			}
			exec := []time.Duration{20e6, 24e6, 28e6, 32e6, 36e6, 40e6, 44e6, 48e6}
			p.Up(epoch, Instance{ID: "a", Config: cluster.Config{Batch: 8, Resources: cluster.Resources{CPU: 1000}}, Exec: exec, Rate: 10, Timeout: within - exec[7]})
			p.Add(epoch, Request{ID: 1, Deadline: epoch.Add(within + patience), Within: within})
			at := epoch
			for sent := false; !sent; {
				for _, a := range p.Actions(at) {
					sent = sent || a.Dispatch != nil
				}
				next, ok := p.Next()
				if !sent && (!ok || !next.After(at)) {
					t.Fatalf("%s waits for ever", policy)
				}
				if !sent {
					at = next
				}
			}
			if waited := at.Sub(epoch); waited > within-exec[0] {
				t.Errorf("%s holds a request with a patience of %v for %v", policy, patience, waited)
			}
		}
	}
}
