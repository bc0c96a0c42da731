package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Events happen in order of time, and at the same time in the order of planning, whatever
// the order of Plan and Next.
func FuzzOrder(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, uint16(500))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		r := rand.New(rand.NewPCG(seed, 1))
		var q EventQueue
		var want []Event
		var planned int32
		for range steps {
			if r.IntN(3) > 0 {
				at := time.Duration(r.IntN(50))
				planned++
				q.Plan(at, 1, planned, 0)
				i, _ := slices.BinarySearchFunc(want, at, func(e Event, at time.Duration) int {
					if e.At <= at {
						return -1
					}
					return 1
				})
				want = slices.Insert(want, i, Event{At: at, A: planned})
			} else {
				got, ok := q.Next()
				if ok != (len(want) > 0) {
					t.Fatalf("Next: %v with %d to come", ok, len(want))
				}
				if ok {
					if got.At != want[0].At || got.A != want[0].A {
						t.Fatalf("got %v, want %v", got, want[0])
					}
					want = want[1:]
				}
			}
			if q.Len() != len(want) {
				t.Fatalf("Len is %d, want %d", q.Len(), len(want))
			}
		}
	})
}

func TestPlanningAllocatesNothing(t *testing.T) {
	var q EventQueue
	for i := range int32(1000) {
		q.Plan(time.Duration(i), 0, i, 0)
	}
	if n := testing.AllocsPerRun(100, func() {
		e, _ := q.Next()
		q.Plan(e.At+1000, 0, e.A, 0)
	}); n > 0 {
		t.Errorf("%v allocations for each event", n)
	}
}

func BenchmarkEvents(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	var q EventQueue
	for i := range int32(10_000) {
		q.Plan(time.Duration(r.IntN(10_000)), 0, i, 0)
	}
	for b.Loop() {
		e, _ := q.Next()
		q.Plan(e.At+time.Duration(r.IntN(10_000)), 0, e.A, 0)
	}
}
