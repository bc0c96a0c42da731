package baselines

import (
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// A request joins the queue with the least work for the instance's rate, stays there, and is
// executed however late. Requests of an instance that leaves are dealt again.
func TestLeastLoaded(t *testing.T) {
	p, now := NewLeastLoaded(), time.Unix(1000, 0)
	sent := func() map[cluster.InstanceID][]batching.RequestID {
		all := map[cluster.InstanceID][]batching.RequestID{}
		for _, a := range p.Actions(now) {
			all[a.Instance] = append(all[a.Instance], a.Dispatch...)
		}
		return all
	}
	add := func(ids ...batching.RequestID) {
		for _, id := range ids {
			p.Add(now, batching.Request{ID: id, Deadline: now.Add(-time.Hour)})
		}
	}
	add(1)
	if got := sent(); len(got) != 0 || p.Waiting() != 1 {
		t.Errorf("without an instance: %v, %d wait", got, p.Waiting())
	}
	// slow serves 5/s, fast 100/s in batches of 2.
	p.Up(now, batching.Instance{ID: "slow", Config: cluster.Config{Batch: 1}, Exec: []time.Duration{200 * time.Millisecond}})
	if got := sent(); !slices.Equal(got["slow"], []batching.RequestID{1}) {
		t.Errorf("the first instance gets %v", got)
	}
	p.Up(now, batching.Instance{ID: "fast", Config: cluster.Config{Batch: 2}, Exec: []time.Duration{20 * time.Millisecond, 20 * time.Millisecond}})
	add(2, 3, 4, 5, 6)
	if got := sent(); !slices.Equal(got["fast"], []batching.RequestID{2, 3}) || len(got) != 1 || p.Waiting() != 3 {
		t.Errorf("%v, %d wait", got, p.Waiting())
	}
	if !p.Cancel(now, 5) || p.Cancel(now, 5) || p.Cancel(now, 2) {
		t.Error("only a request that waits can be cancelled, and once")
	}
	p.Down(now, "fast")
	p.Done(now, "slow")
	if got := sent(); !slices.Equal(got["slow"], []batching.RequestID{4}) || p.Waiting() != 1 {
		t.Errorf("after fast has left: %v, %d wait", got, p.Waiting())
	}
	if _, ok := p.Next(); ok {
		t.Error("it wants to be woken")
	}
}
