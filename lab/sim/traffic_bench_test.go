package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// everyEighth is a policy without cost: every eighth request sends the last eight to the
// next instance. The benchmark then measures only the simulation.
type everyEighth struct {
	ids     []batching.RequestID
	actions []batching.Action
	up      []cluster.InstanceID
	next    int
	due     time.Time
}

func (p *everyEighth) Add(_ time.Time, r batching.Request) {
	p.ids, p.due = append(p.ids, r.ID), r.Deadline
}
func (p *everyEighth) Cancel(time.Time, batching.RequestID) bool { return false }
func (p *everyEighth) Up(_ time.Time, in batching.Instance)      { p.up = append(p.up, in.ID) }
func (p *everyEighth) Down(time.Time, cluster.InstanceID)        {}
func (p *everyEighth) Done(time.Time, cluster.InstanceID)        {}
func (p *everyEighth) Next() (time.Time, bool)                   { return p.due, len(p.ids) > 0 }
func (p *everyEighth) Waiting() int                              { return len(p.ids) - 8*len(p.actions) }
func (p *everyEighth) Actions(now time.Time) []batching.Action {
	if len(p.actions) > 0 { // Their requests are on their way.
		p.actions, p.ids = p.actions[:0], append(p.ids[:0], p.ids[8:]...)
	}
	if len(p.ids) < 8 {
		return nil
	}
	p.next = (p.next + 1) % len(p.up)
	p.actions = append(p.actions, batching.Action{Instance: p.up[p.next], Dispatch: p.ids[:8]})
	return p.actions
}

// BenchmarkRequestsAlone measures a simulated request without its policy, with 40 functions
// of 250 instances each.
func BenchmarkRequestsAlone(b *testing.B) {
	var events EventQueue
	var functions []*Requests
	count := 0
	for i := range 40 {
		random, now := rand.New(rand.NewPCG(uint64(i), 1)), time.Duration(0)
		r := NewRequests(TrafficOptions{
			Index: int32(i), Policy: &everyEighth{}, SLO: 200 * trafficMS, Spread: 0.1, Events: &events, Window: Window{To: 1 << 62},
			Next: func() (time.Duration, bool) {
				now += time.Duration(random.ExpFloat64() / 20_000 * float64(time.Second))
				count++
				return now, true
			},
			OnCold: func() {}, OnDrained: func(cluster.InstanceID) {},
		})
		for k := range 250 {
			r.Up(0, one(string(rune('A'+k)), affine(8, 40*trafficMS, 5*trafficMS)))
		}
		functions = append(functions, r)
	}
	b.ReportAllocs()
	for b.Loop() {
		for before := count; count == before; {
			e, _ := events.Next()
			functions[e.A].Handle(e)
		}
	}
}
