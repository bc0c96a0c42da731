package sim

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// FlowOptions are the options of a [Flow].
type FlowOptions struct {
	// SLO is the objective. ColdWait is how long beyond it requests that find no ready
	// instance may wait.
	SLO, ColdWait time.Duration
	// Overhead is the time of the way to an instance and back.
	Overhead time.Duration
	// Rate returns the load in requests/s. It is called in order of time.
	Rate func(at time.Duration) float64
	// Spread is σ of the logarithm of execution times.
	Spread float64
	// Window is the measured time. No request comes after it.
	Window Window
	// OnCold is called when requests find no ready instance.
	OnCold func()
}

// Flow carries one function's load as a rate, without single requests.
//
// Requests are whole: at a rate of 0.5/s, one comes in every other step of a second.
// Ready instances are a bucket. It holds one batch for each of them and is filled at
// their capacity, Σ B/t(B). Arrivals take from it. Below zero, the missing part is a
// queue; its length divided by the capacity is the waiting time.
type Flow struct {
	options FlowOptions
	groups  []*group
	peers   map[cluster.InstanceID]*fluidPeer
	// up is the number of ready instances, parked that of parked ones. capacity and
	// depth are those of all ready instances together.
	up, parked      int
	capacity, depth float64
	// bucket is the number of requests that can be served at once. It is a queue if
	// negative.
	bucket float64
	last   time.Duration
	// owed is the fraction of a request that has come.
	owed float64
	// cold are the requests that wait for an instance, the oldest first.
	cold []parcel
	// waited is the sum of the waiting times in s of the latest step's requests. queued
	// is their mean number in the queue: rate times mean wait (Little).
	waited, queued float64
	// lastBusy is the last time with a request, busy whether there is one now.
	lastBusy time.Duration
	busy     bool
	record   Record
	total    Counts
	waking   Waking
}

// parcel is n requests that came at about the same time.
type parcel struct {
	at time.Duration
	n  uint64
}

// NewFlow returns a flow without instances.
func NewFlow(o FlowOptions) *Flow {
	return &Flow{options: o, peers: map[cluster.InstanceID]*fluidPeer{}}
}

// Handle does nothing: a flow has no events.
func (f *Flow) Handle(Event) {}

// within returns the time that a request has for waiting and execution.
func (f *Flow) within() time.Duration { return f.options.SLO - batching.Travel(f.options.SLO) }

// Advance lets the load flow until now. Steps should be short compared with changes of the
// load and with a cold start.
func (f *Flow) Advance(now time.Duration) {
	from := f.last
	if now <= from {
		return
	}
	f.last = now
	to := min(now, f.options.Window.To)
	var n uint64
	if came := to - from; came > 0 {
		f.owed += max(0, f.options.Rate(from+came/2)) * came.Seconds()
		whole := math.Floor(f.owed)
		f.owed -= whole
		n = uint64(whole)
	}
	f.busy = n > 0 || len(f.cold) > 0 || f.bucket < 0
	if f.busy {
		f.lastBusy = now
	}
	f.step(from, now, n)
}

// step serves the n requests that come between from and now.
func (f *Flow) step(from, now time.Duration, n uint64) {
	middle := from + (now-from)/2
	measured := f.options.Window.Has(middle)
	f.total.Arrived += n
	if measured {
		f.record.Arrived += n
	}
	if f.up == 0 {
		f.queued = 0
		f.wait(now, middle, n, measured)
		return
	}
	before := f.bucket
	longest := max(0, f.within()-f.soonest()).Seconds() * f.capacity
	f.bucket += f.capacity * (now - from).Seconds()
	taken := min(float64(n), math.Floor(f.bucket+longest))
	taken = max(0, taken)
	f.bucket = min(f.bucket-taken, f.depth)
	f.reject(n-uint64(taken), measured)
	queued := func(bucket float64) time.Duration {
		return time.Duration(max(0, -bucket) / f.capacity * float64(time.Second))
	}
	f.waited = 0
	f.serve(load{n: uint64(taken), from: from, to: now, waits: [2]time.Duration{queued(before), queued(f.bucket)}, measured: measured})
	f.queued = f.waited / (now - from).Seconds()
}

// wait keeps requests that find no instance, and rejects those that have waited too long.
func (f *Flow) wait(now, at time.Duration, n uint64, measured bool) {
	if n > 0 {
		f.cold = append(f.cold, parcel{at, n})
		f.waking.Add(n, measured)
		if f.parked == 0 {
			f.waking.Cold(&f.total, &f.record.Counts)
		}
		f.options.OnCold()
	}
	for len(f.cold) > 0 && now-f.cold[0].at > f.within()+f.options.ColdWait {
		f.reject(f.cold[0].n, f.options.Window.Has(f.cold[0].at))
		f.cold = f.cold[1:]
	}
}

func (f *Flow) reject(n uint64, measured bool) {
	f.total.Rejected += n
	if measured {
		f.record.Rejected += n
	}
}

// serveCold serves the requests that have waited for the first instance.
func (f *Flow) serveCold(now time.Duration) {
	for _, p := range f.cold {
		f.bucket -= float64(p.n)
		waited := now - p.at + time.Duration(max(0, -f.bucket)/f.capacity*float64(time.Second))
		f.serve(load{n: p.n, from: now, to: now, waits: [2]time.Duration{waited, waited}, measured: f.options.Window.Has(p.at), cold: true})
	}
	f.cold = f.cold[:0]
}

// Waiting returns the number of waiting requests.
func (f *Flow) Waiting() int {
	n := max(0, -f.bucket, f.queued)
	for _, p := range f.cold {
		n += float64(p.n)
	}
	return int(n)
}

// Settled reports whether no request waits.
func (f *Flow) Settled() bool { return f.bucket >= 0 && len(f.cold) == 0 }

// Total returns the counts since the beginning.
func (f *Flow) Total() Counts { return f.total }

// Finish counts requests that still wait for an instance as rejected, and returns the
// record of the measured time.
func (f *Flow) Finish() *Record {
	for _, p := range f.cold {
		f.reject(p.n, f.options.Window.Has(p.at))
	}
	f.cold = nil
	f.waking.Cold(&f.total, &f.record.Counts)
	return &f.record
}

// fluidPeer is a ready instance.
type fluidPeer struct {
	Peer
	flow  *Flow
	group *group
	// since is the time when it came up.
	since  time.Duration
	parked bool
	// began is the use of its group when it joined, used its own use before, in other
	// groups.
	began, used use
}
