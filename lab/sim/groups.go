package sim

import (
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// group is a set of equal ready instances.
type group struct {
	Peer
	count int
	// each is the use of every instance since the group exists.
	each use
	// owed is the fraction of a request that the group should still get. turn is the
	// point of the spread that the next request takes.
	owed float64
	turn int
}

// use is an instance's seconds of execution and its requests.
type use struct{ busy, served float64 }

func (g *group) full() int { return len(g.Truth) }

// streams is how many batches the group executes at the same time.
func (g *group) streams() float64 { return float64(g.count * g.Config.Streams()) }

// capacity returns the requests/s that one instance serves in full batches.
func (g *group) capacity() float64 {
	return float64(g.full()*g.Config.Streams()) / g.Truth[g.full()-1].Seconds()
}

// load is n requests that come between from and to. The first waits for waits[0] until its
// batch may begin to gather, the last for waits[1].
type load struct {
	n        uint64
	from, to time.Duration
	waits    [2]time.Duration
	measured bool
	cold     bool
}

// serve divides a load among the groups by their capacities.
func (f *Flow) serve(l load) {
	if l.n == 0 {
		return
	}
	left := l.n
	for i, g := range f.groups {
		g.owed += float64(l.n) * g.capacity() * float64(g.count) / f.capacity
		n := min(left, uint64(max(0, math.Floor(g.owed))))
		if i == len(f.groups)-1 {
			n = left
		}
		g.owed -= float64(n)
		left -= n
		f.execute(g, l, n)
	}
}

// points is the number of equally likely outcomes of a wait and of an execution.
const points = 16

// execute lets a group serve n requests of a load.
func (f *Flow) execute(g *group, l load, n uint64) {
	if n == 0 {
		return
	}
	b, gathers := g.batch(f, float64(n)/g.streams()/max(l.to-l.from, time.Millisecond).Seconds())
	mean := g.Truth[b-1]
	part := float64(f.options.Window.Overlap(l.from, max(l.to, l.from+1))) / float64(max(l.to-l.from, 1))
	g.each.busy += part * float64(n) / float64(b) * mean.Seconds() / g.streams()
	if l.measured {
		g.each.served += float64(n) / float64(g.count)
		f.record.Batch(b, max(1, n/uint64(b)))
	}
	for k := range min(points, n) {
		point := (g.turn + int(k)) % points
		here := n / points
		if k < n%points {
			here++
		}
		f.answer(l, here, point, gathers, mean)
	}
	g.turn = (g.turn + int(n%points)) % points
}

// answer counts n requests at one point of the spread. Waits take another point than
// executions, to make the two independent.
func (f *Flow) answer(l load, n uint64, point int, gathers, mean time.Duration) {
	at := (float64(point) + 0.5) / points
	other := (float64(point*7%points) + 0.5) / points
	waited := l.waits[0] + time.Duration(other*float64(l.waits[1]-l.waits[0])) + time.Duration(other*float64(gathers))
	sigma := f.options.Spread
	exec := time.Duration(float64(mean) * math.Exp(sigma*math.Sqrt2*math.Erfinv(2*at-1)-sigma*sigma/2))
	latency := waited + exec + f.options.Overhead
	f.waited += float64(n) * waited.Seconds()
	late := latency > f.options.SLO
	f.total.Served += n
	if late {
		f.total.Missed += n
	}
	if l.measured {
		f.record.Flowed(n, waited, exec, latency, l.cold)
		if late {
			f.record.Missed += n
		}
	}
}

// batch returns the size of an instance's batches if its rate is rate requests/s, and how
// long the first request of a batch waits until the execution.
//
// Some policies let batches wait to be full, for a timeout or as long as the objective
// allows. Then the size is the number of requests that gather in that time. With other
// policies, a free instance takes what waits. Then batches grow until b/t(b) is the rate,
// and a request waits for at most one execution, divided by the number of instances.
func (g *group) batch(f *Flow, rate float64) (b int, waits time.Duration) {
	fill := g.Timeout
	pooled := rate * float64(f.up)
	if fill <= 0 && g.Rate > 0 {
		fill, pooled = max(0, f.within()-g.Truth[g.full()-1]), rate
	}
	if fill > 0 {
		if b = 1 + int(pooled*fill.Seconds()); b < g.full() {
			return b, fill
		}
		b = g.full()
		return b, min(fill, time.Duration(float64(b-1)/max(pooled, 1e-9)*float64(time.Second)))
	}
	b = 1
	for b < g.full() && float64(b) < rate*g.Truth[b-1].Seconds() {
		b++
	}
	busy := min(1, rate*g.Truth[b-1].Seconds()/float64(b))
	return b, time.Duration(busy * float64(g.Truth[b-1]) / float64(max(1, f.up)))
}

// soonest returns the shortest time of any batch.
func (f *Flow) soonest() time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, g := range f.groups {
		least = min(least, g.Truth[0])
	}
	return least
}

// Up lets a ready or parked instance serve, or changes its times, its config or its rate.
func (f *Flow) Up(now time.Duration, in Peer) Ready {
	f.Advance(now)
	before := f.up
	p, ok := f.peers[in.ID]
	switch {
	case !ok:
		p = &fluidPeer{flow: f, since: now}
		f.peers[in.ID] = p
		f.waking.Cold(&f.total, &f.record.Counts)
	case p.parked:
		p.parked = false
		f.parked--
		f.waking.Woken(&f.total, &f.record.Counts)
	default:
		f.leave(p)
	}
	p.Peer = in
	f.join(p)
	if before == 0 {
		f.serveCold(now)
	}
	return p
}

// Park gives an instance no load until Up. It returns false if the function has requests:
// then no instance is idle.
func (f *Flow) Park(now time.Duration, id cluster.InstanceID) bool {
	f.Advance(now)
	p, ok := f.peers[id]
	if !ok || p.group == nil || f.busy {
		return false
	}
	f.leave(p)
	p.parked = true
	f.parked++
	return true
}

// join puts a peer into the group of equal peers.
func (f *Flow) join(p *fluidPeer) {
	i := slices.IndexFunc(f.groups, func(g *group) bool {
		return g.Config == p.Config && g.Timeout == p.Timeout && math.Abs(g.Rate-p.Rate) <= 0.01*g.Rate
	})
	if i < 0 {
		i = len(f.groups)
		f.groups = append(f.groups, &group{Peer: p.Peer})
	}
	p.group = f.groups[i]
	p.began = p.group.each
	p.group.count++
	f.sum()
	f.bucket += float64(p.group.full() * p.Config.Streams())
}

// sum adds up the groups' counts, capacities and depths.
func (f *Flow) sum() {
	f.up, f.capacity, f.depth = 0, 0, 0
	for _, g := range f.groups {
		f.up += int(g.streams())
		f.capacity += float64(g.count) * g.capacity()
		f.depth += float64(g.full()) * g.streams()
	}
}

// leave takes a peer out of its group.
func (f *Flow) leave(p *fluidPeer) {
	g := p.group
	p.used = p.did()
	if g.count--; g.count == 0 {
		f.groups = slices.DeleteFunc(f.groups, func(x *group) bool { return x == g })
	}
	f.sum()
	if f.bucket = min(f.bucket, f.depth); f.up == 0 {
		f.bucket = 0 // The queue's requests have already been counted as served.
	}
	p.group = nil
}

// did returns the use of a peer since it came up.
func (p *fluidPeer) did() use {
	if p.group == nil {
		return p.used
	}
	e := p.group.each
	return use{p.used.busy + e.busy - p.began.busy, p.used.served + e.served - p.began.served}
}

// Down gives an instance no new load. In a flow it is drained at once.
func (f *Flow) Down(now time.Duration, id cluster.InstanceID) (drained bool) {
	f.Advance(now)
	p, ok := f.peers[id]
	switch {
	case !ok:
	case p.parked:
		p.parked = false
		if f.parked--; f.parked == 0 {
			f.waking.Cold(&f.total, &f.record.Counts)
		}
	case p.group != nil:
		f.leave(p)
	}
	return true
}

// Forget drops an instance that is down.
func (f *Flow) Forget(id cluster.InstanceID) { delete(f.peers, id) }

// IdleSince implements [Ready]. While the function has requests, no instance is idle.
func (p *fluidPeer) IdleSince() (since time.Duration, idle bool) {
	return max(p.since, p.flow.lastBusy), !p.flow.busy
}

// Executed implements [Ready]. A flow does not know it.
func (p *fluidPeer) Executed() (busy, expected time.Duration) { return 0, 0 }

// Used implements [Ready]. It limits the busy time to the time since the instance came up:
// an instance counts as busy for a whole execution as soon as it takes a batch.
func (p *fluidPeer) Used() Use {
	u := p.did()
	up := p.flow.options.Window.Overlap(p.since, p.flow.last)
	return Use{Busy: min(up, time.Duration(u.busy*float64(time.Second))), Served: uint64(u.served + 0.5)}
}
