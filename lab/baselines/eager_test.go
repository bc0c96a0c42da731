package baselines

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// line are the times 5 + b ms.
func line(b int) (exec []time.Duration) {
	for i := range b {
		exec = append(exec, time.Duration(6+i)*time.Millisecond)
	}
	return exec
}

// What each policy makes of eight requests that wait while its accelerator is busy, 30 ms before the first deadline
// of a deadline each 2 ms.
func TestEagerBatches(t *testing.T) {
	for name, test := range map[string]struct {
		policy func() batching.Policy
		left   time.Duration
		want   []batching.RequestID
	}{
		"clockwork, all in time":   {newClockwork, 30 * time.Millisecond, []batching.RequestID{1, 2, 3, 4, 5, 6, 7, 8}},
		"clockwork, powers of two": {newClockwork, 12 * time.Millisecond, []batching.RequestID{1, 2, 3, 4}},
		"shepherd, all that fit":   {newShepherd, 12 * time.Millisecond, []batching.RequestID{1, 2, 3, 4, 5, 6, 7}},
		// Two batches of 8 take 26 ms of the 30. In the window of 8, request 2 is the first in time for the 7 that
		// are left.
		"nexus, early drop": {newNexus, 11 * time.Millisecond, []batching.RequestID{2, 3, 4, 5, 6, 7, 8}},
	} {
		p, now := test.policy(), time.Unix(1000, 0)
		p.Up(now, batching.Instance{ID: "a", Config: cluster.Config{Batch: 16}, Exec: line(16)})
		p.Add(now, batching.Request{ID: 100, Deadline: now.Add(30 * time.Millisecond)})
		p.Actions(now)
		now = now.Add(time.Second)
		for id := range batching.RequestID(8) {
			due := now.Add(test.left + time.Duration(id)*2*time.Millisecond)
			p.Add(due.Add(-30*time.Millisecond), batching.Request{ID: id + 1, Deadline: due})
		}
		p.Done(now, "a")
		var got []batching.RequestID
		for _, a := range p.Actions(now) {
			got = append(got, a.Dispatch...)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// Nexus deals requests out in turn; the others share a queue.
func TestNexusDeals(t *testing.T) {
	p, now := newNexus(), time.Unix(1000, 0)
	for _, id := range []cluster.InstanceID{"a", "b"} {
		p.Up(now, batching.Instance{ID: id, Config: cluster.Config{Batch: 4}, Exec: line(4)})
	}
	for id := range batching.RequestID(4) {
		p.Add(now, batching.Request{ID: id, Deadline: now.Add(time.Second)})
	}
	for i, a := range p.Actions(now) {
		if want := []batching.RequestID{batching.RequestID(i), batching.RequestID(i + 2)}; !slices.Equal(a.Dispatch, want) {
			t.Errorf("%s executes %v, want %v", a.Instance, a.Dispatch, want)
		}
	}
}

// Each request is answered exactly once, and none waits beyond its deadline.
func TestEagerAnswersOnce(t *testing.T) {
	for i, make := range []func() batching.Policy{newClockwork, newShepherd, newNexus} {
		for seed := range uint64(30) {
			random, p, now := rand.New(rand.NewPCG(seed, uint64(i))), make(), time.Unix(1000, 0)
			answered, added := map[batching.RequestID]int{}, batching.RequestID(0)
			act := func() {
				for _, a := range p.Actions(now) {
					if a.Dispatch == nil {
						answered[a.Reject]++
					}
					for _, id := range a.Dispatch {
						answered[id]++
					}
				}
			}
			for range 300 {
				now = now.Add(time.Duration(random.IntN(4)) * time.Millisecond)
				id := cluster.InstanceID(fmt.Sprint(random.IntN(3)))
				switch random.IntN(8) {
				case 0:
					p.Up(now, batching.Instance{ID: id, Config: cluster.Config{Batch: 8}, Exec: line(8)})
				case 1:
					p.Down(now, id)
				case 2, 3:
					p.Done(now, id)
				case 4:
					if c := batching.RequestID(random.IntN(int(added) + 1)); p.Cancel(now, c) {
						answered[c]++
					}
				default:
					p.Add(now, batching.Request{ID: added, Deadline: now.Add(time.Duration(random.IntN(40)) * time.Millisecond)})
					added++
				}
				act()
			}
			for at, ok := p.Next(); ok; at, ok = p.Next() {
				now = at
				act()
			}
			if p.Waiting() != 0 || len(answered) != int(added) {
				t.Fatalf("%d wait, %d of %d are answered", p.Waiting(), len(answered), added)
			}
			for id, n := range answered {
				if n != 1 {
					t.Fatalf("request %d is answered %d times", id, n)
				}
			}
		}
	}
}
