package sim

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// FlowOptions say what a function's load meets.
type FlowOptions struct {
	// SLO is the objective, ColdWait how much longer what finds no ready instance
	// may wait.
	SLO, ColdWait time.Duration
	// Overhead is the way to an instance and back.
	Overhead time.Duration
	// Rate is the load in requests per second; it is asked in order of time.
	Rate func(at time.Duration) float64
	// Spread is σ of the logarithm of execution times.
	Spread float64
	// Window is what is measured. No request comes after it.
	Window Window
	// OnCold is called when requests find no ready instance, OnDrained never: an
	// instance that goes down has nothing in flight.
	OnCold func()
}

// Flow carries one function's load.
//
// Requests are whole: of a rate of 0.5/s one comes every second step of a second.
// Ready instances are a bucket: it holds a batch for each of them and is filled at
// their capacity, Σ B/t(B). Arrivals take from it; below zero, the missing part
// is a queue, and its length divided by the capacity is how long one waits.
type Flow struct {
	options FlowOptions
	groups  []*group
	peers   map[cluster.InstanceID]*fluidPeer
	// up counts ready instances, parked those that could be at once, capacity and depth are those of all of them.
	up, parked      int
	capacity, depth float64
	// bucket is what can be served at once, a queue if it is negative.
	bucket float64
	last   time.Duration
	// owed is the part of a request that has come.
	owed float64
	// cold waits for an instance, the oldest first.
	cold []parcel
	// waited adds up what requests of the latest step wait, in seconds, and queued
	// is how many waited at a time then: rate times mean wait (Little).
	waited, queued float64
	// lastBusy is when there was last a request, busy whether there is one now.
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

// within is how long a request may wait and be executed.
func (f *Flow) within() time.Duration { return f.options.SLO - batching.Travel(f.options.SLO) }

// Advance lets the load flow until now. The steps should be short against what
// loads take to change, and against a cold start.
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

// step serves what comes between from and now.
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

// wait keeps what finds no instance, as long as it may wait.
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

// thaw serves what has waited for the first instance.
func (f *Flow) thaw(now time.Duration) {
	for _, p := range f.cold {
		f.bucket -= float64(p.n)
		waited := now - p.at + time.Duration(max(0, -f.bucket)/f.capacity*float64(time.Second))
		f.serve(load{n: p.n, from: now, to: now, waits: [2]time.Duration{waited, waited}, measured: f.options.Window.Has(p.at), cold: true})
	}
	f.cold = f.cold[:0]
}

// Waiting is how many requests wait.
func (f *Flow) Waiting() int {
	n := max(0, -f.bucket, f.queued)
	for _, p := range f.cold {
		n += float64(p.n)
	}
	return int(n)
}

// Settled reports whether nothing waits.
func (f *Flow) Settled() bool { return f.bucket >= 0 && len(f.cold) == 0 }

// Total counts everything since the beginning.
func (f *Flow) Total() Counts { return f.total }

// Finish counts what still waits for an instance as rejected, and returns what
// was measured.
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
	// since is when it came up.
	since  time.Duration
	parked bool
	// began is what its group had used when it joined, used what it did before,
	// in another group.
	began, used use
}
