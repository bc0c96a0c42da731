package sim

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// A policy that believes that an execution takes 60 ms refuses what it really could answer within 50 ms. Two requests
// come at once: the execution of 20 ms leaves time for both, one after the other. Of three, one is not counted.
func TestHastyRefusals(t *testing.T) {
	for _, c := range []struct {
		truth time.Duration
		come  []time.Duration
		want  uint64
	}{
		{20 * trafficMS, []time.Duration{trafficMS}, 1},
		{20 * trafficMS, []time.Duration{trafficMS, trafficMS}, 2},
		{20 * trafficMS, []time.Duration{trafficMS, trafficMS, trafficMS}, 2},
		{60 * trafficMS, []time.Duration{trafficMS, trafficMS}, 0},
	} {
		o := TrafficOptions{SLO: 50 * trafficMS, Window: always, Next: at(append(c.come, time.Second)...)}
		g := newRig(t, batching.SharedName, o)
		in := one("a", []time.Duration{60 * trafficMS})
		in.Truth = []time.Duration{c.truth}
		g.Up(0, in)
		g.until(time.Minute)
		r := g.Finish()
		if last := c.truth <= 50*trafficMS; last {
			c.want++ // The one that comes after a second makes the others' time known.
		}
		if r.Rejected != uint64(len(c.come)+1) || r.Hasty != c.want {
			t.Errorf("%v, %d requests: %d rejected, %d hasty, want %d", c.truth, len(c.come), r.Rejected, r.Hasty, c.want)
		}
	}
}

// An instance that is busy until it is too late, parked or gone has no time for a refused request.
func TestRefusalsThatAreNotHasty(t *testing.T) {
	o := TrafficOptions{SLO: 50 * trafficMS, Window: always, Next: at(trafficMS, 2*trafficMS, time.Second)}
	g := newRig(t, batching.SharedName, o)
	g.Up(0, one("a", []time.Duration{40 * trafficMS}))
	g.until(500 * trafficMS)
	g.Down(500*trafficMS, cluster.InstanceID("a"))
	g.until(time.Minute)
	if r := g.Finish(); r.Rejected != 2 || r.Hasty != 0 {
		t.Errorf("%d rejected, %d hasty", r.Rejected, r.Hasty)
	}
}
