package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// Instances come up and go down under any policy and any load. At all times every arrived
// request is served, rejected or waiting. At the end none waits, and every instance that
// went down is drained.
func FuzzRequestsAreKept(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 8))
		names := batching.Names()
		name := names[random.IntN(len(names))]
		g := newRig(t, name, anyLoad(random))
		up, down := map[cluster.InstanceID]bool{}, 0
		for step := range 60 {
			g.until(time.Duration(step) * 50 * trafficMS)
			now := max(g.now, time.Duration(step)*50*trafficMS)
			id := cluster.InstanceID(fmt.Sprint("i", random.IntN(6)))
			switch random.IntN(3) {
			case 0:
				if g.peers[id] == nil || up[id] {
					g.Up(now, one(string(id), affine(1<<random.IntN(5), time.Duration(random.IntN(30))*trafficMS, time.Duration(1+random.IntN(5000))*time.Microsecond)))
					up[id] = true
				}
			case 1:
				if up[id] {
					delete(up, id)
					if down++; g.Down(now, id) {
						g.drained = append(g.drained, id)
					}
				}
			}
			g.balanced(t, name)
			for _, id := range g.drained {
				g.Forget(id)
				down--
			}
			g.drained = g.drained[:0]
		}
		for id := range up {
			if down++; g.Down(3*time.Second, id) {
				g.drained = append(g.drained, id)
			}
		}
		g.until(time.Hour)
		if !g.Settled() || down != len(g.drained) {
			t.Errorf("%s: %d wait, %d are in flight; %d of %d are drained", name, g.Waiting(), g.inFlight, len(g.drained), down)
		}
		r := g.Finish()
		if c := g.Total(); c.Arrived != c.Served+c.Rejected || r.Arrived != r.Served+r.Rejected || r.Latency.Count() != r.Served || r.Missed > r.Served {
			t.Errorf("%s: %+v in all, %+v measured", name, c, r.Counts)
		}
	})
}

// anyLoad returns three seconds of a load that may exceed the capacity.
func anyLoad(random *rand.Rand) TrafficOptions {
	o := TrafficOptions{
		SLO: time.Duration(20+random.IntN(300)) * trafficMS, ColdWait: time.Duration(random.IntN(2000)) * trafficMS, Overhead: time.Duration(random.IntN(3000)) * time.Microsecond,
		QueueLimit: random.IntN(3) * 100, Spread: random.Float64() / 3, Seed: random.Uint64(),
		Window: Window{From: time.Duration(random.IntN(1000)) * trafficMS, To: 3 * time.Second},
	}
	now, gap := time.Duration(0), float64(time.Second)/(1+random.Float64()*2000)
	o.Next = func() (time.Duration, bool) {
		now += time.Duration(random.ExpFloat64() * gap)
		return now, true
	}
	return o
}

// balanced checks that no request was lost or counted twice.
func (g *rig) balanced(t *testing.T, policy string) {
	t.Helper()
	held := uint64(0)
	g.ring.each(func(request) { held++ })
	if c := g.Total(); c.Arrived != c.Served+c.Rejected+held || held != uint64(g.Waiting()) {
		t.Fatalf("%s: %+v, %d are held, %d wait", policy, c, held, g.Waiting())
	}
}
