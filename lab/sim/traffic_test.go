package sim

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

const trafficMS = time.Millisecond

// rig runs only one function's requests.
type rig struct {
	*Requests
	events  EventQueue
	now     time.Duration
	cold    int
	drained []cluster.InstanceID
}

func newRig(t *testing.T, policy string, o TrafficOptions) *rig {
	t.Helper()
	g := &rig{}
	way, err := batching.New(policy, batching.Options{SLO: o.SLO})
	if err != nil {
		t.Fatal(err)
	}
	o.Policy, o.Events = way, &g.events
	o.OnCold = func() { g.cold++ }
	o.OnDrained = func(id cluster.InstanceID) { g.drained = append(g.drained, id) }
	g.Requests = NewRequests(o)
	return g
}

func (g *rig) until(end time.Duration) {
	for {
		e, ok := g.events.Next()
		if !ok {
			return
		}
		if e.At > end {
			g.events.Plan(e.At, e.Kind, e.A, e.B)
			return
		}
		g.now = e.At
		g.Handle(e)
	}
}

func at(times ...time.Duration) func() (time.Duration, bool) {
	return func() (time.Duration, bool) {
		if len(times) == 0 {
			return 0, false
		}
		next := times[0]
		times = times[1:]
		return next, true
	}
}

// affine returns the times of batches of 1 to b: base + k·each for a batch of k.
func affine(b int, base, each time.Duration) (out []time.Duration) {
	for i := range b {
		out = append(out, base+time.Duration(i+1)*each)
	}
	return out
}

func one(id string, table []time.Duration) Peer {
	return Peer{Instance: batching.Instance{ID: cluster.InstanceID(id), Config: cluster.Config{Batch: len(table)}, Exec: table}, Truth: table}
}

var always = Window{To: time.Hour}

// A request that comes while the instance is idle takes the way there, one execution and
// the way back. Requests that come meanwhile share the next batch.
func TestLatencyIsWaitingExecutionAndTheWay(t *testing.T) {
	g := newRig(t, batching.SharedName, TrafficOptions{SLO: 100 * trafficMS, Overhead: 2 * trafficMS, Window: always, Next: at(10*trafficMS, 12*trafficMS, 13*trafficMS)})
	g.Up(0, one("a", affine(8, 10*trafficMS, trafficMS)))
	g.until(time.Hour)
	r := g.Finish()
	// The first is executed from 11 to 22 ms and back at 23 ms: 13 ms. Then the
	// others go; they are executed from 24 to 36 ms and back at 37 ms: 25 and 24 ms.
	if r.Served != 3 || r.Latency.Max() != 25*trafficMS || r.Latency.Mean() != (13+25+24)*trafficMS/3 {
		t.Errorf("%d served, max %v, mean %v", r.Served, r.Latency.Max(), r.Latency.Mean())
	}
	if _, queue, exec := r.Means(); queue != (0+11+10)*trafficMS/3 || exec != (11+12+12)*trafficMS/3 {
		t.Errorf("queue %v, exec %v", queue, exec)
	}
	if use := g.peers["a"].Used(); use.Busy != 23*trafficMS || use.Served != 3 || r.Batches[1] != 1 || r.Batches[2] != 1 {
		t.Errorf("used %+v, batches %v", use, r.Batches)
	}
	if since, idle := g.peers["a"].IdleSince(); !idle || since != 37*trafficMS {
		t.Errorf("idle: %v since %v", idle, since)
	}
}

// A request that finds no ready instance waits for one beyond its objective, and is
// rejected after that time.
func TestColdRequestsWait(t *testing.T) {
	o := TrafficOptions{SLO: 100 * trafficMS, ColdWait: time.Second, Window: always, Next: at(0, 500*trafficMS, 3*time.Second)}
	g := newRig(t, batching.SharedName, o)
	g.until(900 * trafficMS)
	if g.cold != 2 || g.Waiting() != 2 {
		t.Fatalf("%d cold, %d wait", g.cold, g.Waiting())
	}
	g.until(1200 * trafficMS) // The first was given up at 1.095 s.
	if g.Waiting() != 1 || g.Total().Rejected != 1 {
		t.Fatalf("%d wait, %+v", g.Waiting(), g.Total())
	}
	g.Up(1200*trafficMS, one("a", affine(1, 0, 10*trafficMS)))
	g.until(time.Hour)
	if c := g.Total(); c != (Counts{Arrived: 3, Cold: 2, Served: 2, Missed: 1, Rejected: 1}) {
		t.Errorf("%+v", c)
	}
	r := g.Finish()
	if cold, queue, _ := r.Means(); cold != 350*trafficMS || queue != 0 || r.Latency.Max() != 710*trafficMS {
		t.Errorf("cold %v, queue %v, max %v", cold, queue, r.Latency.Max())
	}
}

func TestAFullQueueRefuses(t *testing.T) {
	g := newRig(t, batching.SharedName, TrafficOptions{SLO: 100 * trafficMS, ColdWait: time.Second, QueueLimit: 2, Window: always, Next: at(0, 1, 2, 3)})
	g.until(trafficMS)
	if c := g.Total(); c.Rejected != 2 || g.Waiting() != 2 {
		t.Errorf("%+v, %d wait", c, g.Waiting())
	}
}

// Requests count by their arrival. Those of the warm-up are not measured.
func TestOnlyTheWindowIsMeasured(t *testing.T) {
	w := Window{From: 15 * trafficMS, To: 100 * trafficMS}
	g := newRig(t, batching.SharedName, TrafficOptions{SLO: 100 * trafficMS, Window: w, Next: at(0, 10*trafficMS, 20*trafficMS, 90*trafficMS, 100*trafficMS)})
	g.Up(0, one("a", affine(1, 0, 8*trafficMS)))
	g.until(time.Hour)
	r := g.Finish()
	if g.Total().Arrived != 4 || r.Arrived != 2 || r.Served != 2 || g.peers["a"].Used().Served != 2 || g.peers["a"].Used().Busy != (3+8+8)*trafficMS {
		t.Errorf("total %+v, measured %+v, used %+v", g.Total(), r.Counts, g.peers["a"].Used())
	}
}

// An instance that goes down answers its batches, and is drained only then.
func TestDownDrains(t *testing.T) {
	g := newRig(t, batching.SharedName, TrafficOptions{SLO: 100 * trafficMS, Window: always, Next: at(0, 5*trafficMS)})
	g.Up(0, one("a", affine(1, 0, 10*trafficMS)))
	g.Up(0, one("b", affine(1, 0, 10*trafficMS)))
	g.until(trafficMS)
	busy := cluster.InstanceID("a")
	if _, idle := g.peers["a"].IdleSince(); idle {
		busy = "b"
	}
	if g.Down(2*trafficMS, busy) {
		t.Fatal("it is drained with a batch in flight")
	}
	g.Forget(busy)
	if g.Settled() {
		t.Fatal("nothing is in flight")
	}
	g.until(time.Hour)
	if len(g.drained) != 1 || g.drained[0] != busy || g.Total().Served != 2 || !g.Settled() {
		t.Errorf("drained %v, %+v", g.drained, g.Total())
	}
	g.Forget(busy)
	if !g.Down(g.now, busy) || len(g.peers) != 1 || len(g.free) != 1 {
		t.Error("it is not forgotten")
	}
	g.Up(g.now, one("c", affine(1, 0, 10*trafficMS)))
	if len(g.slots) != 2 {
		t.Error("its place is not used again")
	}
}

// Queues agree with theory. With Poisson arrivals at rate λ and a constant time s (M/D/1),
// the mean wait is ρs/(2(1−ρ)): 20 ms at ρ = 0.8 and s = 10 ms.
func TestQueueOfOneServer(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	now := time.Duration(0)
	next := func() (time.Duration, bool) {
		now += time.Duration(random.ExpFloat64() / 80 * float64(time.Second))
		return now, true
	}
	o := TrafficOptions{SLO: time.Minute, Window: Window{From: time.Minute, To: 20 * time.Minute}, Next: next}
	g := newRig(t, batching.OneToOneName, o)
	g.Up(0, one("a", []time.Duration{10 * trafficMS}))
	g.until(2 * time.Hour)
	_, queue, exec := g.Finish().Means()
	if math.Abs(queue.Seconds()-0.020) > 0.0007 || exec != 10*trafficMS {
		t.Errorf("one waits %v and is executed in %v, want 20 ms and 10 ms", queue, exec)
	}
}

// Execution times keep their mean, and their logarithms have the spread.
func TestSpread(t *testing.T) {
	s := newSpread(0.3, 1, 2)
	var sum, logs, squares float64
	const n = 200_000
	for range n {
		d := s.draw(time.Second, 0).Seconds()
		l := math.Log(d)
		sum, logs, squares = sum+d, logs+l, squares+l*l
	}
	mean := logs / n
	if sigma := math.Sqrt(squares/n - mean*mean); math.Abs(sum/n-1) > 0.003 || math.Abs(sigma-0.3) > 0.003 {
		t.Errorf("the mean is %v, σ %v", sum/n, sigma)
	}
}

// Several short batches go to an instance at once, and are executed one after another.
func TestSeveralShortBatchesAtOnce(t *testing.T) {
	var times []time.Duration
	for range 40 {
		times = append(times, 0)
	}
	g := newRig(t, batching.SharedName, TrafficOptions{SLO: 100 * trafficMS, Window: always, Next: at(times...)})
	table := affine(4, 0, 5*time.Microsecond)
	g.Up(0, one("a", table))
	g.until(time.Hour)
	r := g.Finish()
	whole := uint64(0)
	for size, n := range r.Batches {
		whole += uint64(size) * n
	}
	if whole != 40 || len(r.Batches) != 5 || g.peers["a"].Used().Busy != 40*5*time.Microsecond {
		t.Errorf("batches %v, busy %v", r.Batches, g.peers["a"].Used().Busy)
	}
}

// The ring keeps every request until it is taken, however long the oldest stays.
func FuzzRing(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := ring{first: 1, next: 1}
		held := map[batching.RequestID]time.Duration{}
		var ids []batching.RequestID
		for i := range 2000 {
			if random.IntN(5) > 1 {
				id := r.add(time.Duration(i), false)
				held[id] = time.Duration(i)
				ids = append(ids, id)
			} else if len(ids) > 0 {
				k := random.IntN(len(ids))
				x, ok := r.take(ids[k])
				want, there := held[ids[k]]
				if ok != there || ok && x.arrived != want {
					t.Fatalf("take(%d): %v %v, want %v %v", ids[k], x, ok, want, there)
				}
				delete(held, ids[k])
			}
		}
		n := 0
		r.each(func(request) { n++ })
		if _, ok := r.take(r.next); ok || n != len(held) {
			t.Fatalf("%d are held, want %d", n, len(held))
		}
	})
}
