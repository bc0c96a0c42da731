package dispatch

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/health"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// Up adds an instance that listens at network and address, as in net.Dial. A second
// Up with the same ID changes its times, rate and concurrency; a parked instance then takes batches
// again.
func (d *Dispatcher) Up(in batching.Instance, network, address string) {
	d.delegate(d.locked(func(now time.Time) {
		m, ok := d.instances[in.ID]
		switch {
		case d.closed:
			return
		case !ok:
			m = &instanceState{link: &link{network: network, address: address, dial: d.options.Dial, hold: d.options.Hold}, idleSince: now}
			d.instances[in.ID] = m
			d.countWokenAsCold(in.Serves())
		case m.parked:
			m.idleSince = now
			d.setParked(m, false)
			for c := range d.woken {
				if in.Serves()>>c&1 != 0 {
					d.woken[c] = 0
				}
			}
		case m.health.State() == health.Gone:
			return
		}
		if m.up { // raise counts the new classes.
			m.up = false
			d.up.add(m.Serves(), -1)
		}
		if ok {
			for i := in.Config.Streams(); i < m.Config.Streams() && !m.lent; i++ {
				// The policy ignores the end of a batch that a lost stream still executes.
				d.policy.Down(now, batching.Stream(in.ID, i))
			}
		}
		if m.longest = in.Longest; d.sizes.pads() {
			in.Longest = max(1, in.Longest)
		} else {
			in.Longest = 0
		}
		m.Instance = in
		if in.Sizes != nil {
			d.sizes.wanted.Store(true)
		}
		m.link.setTimeout(d.timeout(in))
		if m.ready() {
			d.raise(now, m)
		}
	}), nil)
}

// ready reports whether an instance that is not parked may take batches.
func (m *instanceState) ready() bool {
	return !m.parked && m.health.Serves() && m.health.State() != health.Probing
}

// raise lets an instance take batches, or gives the policy its new times. The lock is held.
func (d *Dispatcher) raise(now time.Time, m *instanceState) {
	if !m.up {
		m.up, m.upSince = true, now
		d.up.add(m.Serves(), 1)
		rescue(d, now, m.Serves())
	}
	if !m.lent {
		batching.Up(d.policy, now, m.Instance)
	}
}

// retire takes an instance out of service for good. The lock is held.
func (d *Dispatcher) retire(now time.Time, m *instanceState) {
	m.health.Retire()
	d.siblings.Forget(&m.health)
	d.down(now, m)
	healthDriver{d}.spareNone(now)
	strand(d, now)
}

// down stops an instance from taking batches. The lock is held.
func (d *Dispatcher) down(now time.Time, m *instanceState) {
	if m.up {
		m.up = false
		m.generation++
		d.up.add(m.Serves(), -1)
		batching.Down(d.policy, now, &m.Instance)
	}
}

// timeout returns the maximum time of an exchange with the instance.
func (d *Dispatcher) timeout(in batching.Instance) time.Duration {
	least := cmp.Or(d.options.ExchangeTimeout, minPatience)
	if len(in.Exec) == 0 {
		return least
	}
	return max(least, patienceTimes*in.Exec[len(in.Exec)-1])
}

const (
	// minPatience and patienceTimes bound the time of an exchange: it may take patienceTimes
	// its prediction, and minPatience in any case.
	minPatience   = 10 * time.Second
	patienceTimes = 20
)

// Patience is the maximum time of an exchange whose batch is predicted to take exec. After
// it the instance counts as lost.
func Patience(exec time.Duration) time.Duration { return max(minPatience, patienceTimes*exec) }

// Drain sends an instance nothing new, and closes the idle connections to it. It returns when
// the instance has nothing in flight, or with ctx's error.
func (d *Dispatcher) Drain(ctx context.Context, id cluster.InstanceID) error {
	drained := make(chan struct{})
	var m *instanceState
	d.delegate(d.locked(func(now time.Time) {
		var ok bool
		if m, ok = d.instances[id]; !ok {
			close(drained)
			return
		}
		d.retire(now, m)
		d.unpark(m)
		if m.drained == nil {
			m.drained = drained
		}
		drained = m.drained
		d.settle(m)
	}), nil)
	if m != nil { // An instance that stops waits for it.
		m.link.keepNone()
	}
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reconfigure changes the policy, the objective and [Options.Once] of a running dispatcher.
// Waiting requests keep their deadlines and move to the new policy.
func (d *Dispatcher) Reconfigure(policy batching.Policy, slo time.Duration, once bool) {
	d.delegate(d.locked(func(now time.Time) {
		d.policy, d.options.SLO, d.options.Once = policy, slo, once
		for _, m := range d.instances {
			if m.up && !m.lent {
				batching.Up(policy, now, m.Instance)
			}
		}
		for _, c := range d.waiting.calls {
			policy.Add(now, c.asPolicy())
		}
	}), nil)
}

// Forget removes an instance that has exited, and reports whether it ever answered a
// batch.
func (d *Dispatcher) Forget(id cluster.InstanceID) (served bool) {
	var m *instanceState
	d.delegate(d.locked(func(now time.Time) {
		var ok bool
		if m, ok = d.instances[id]; !ok {
			return
		}
		d.retire(now, m)
		delete(d.instances, id)
		d.unpark(m)
		served = m.served
		if m.drained != nil {
			close(m.drained)
			m.drained = nil
		}
	}), nil)
	if m != nil {
		m.link.close()
	}
	return served
}

// Stats holds the counters that the scaling engine uses.
type Stats struct {
	// Arrivals counts all requests since the dispatcher was made. Cold counts those that
	// found no ready instance that serves their class, nor a parked one that came back in
	// time.
	Arrivals uint64
	Cold     uint64
	// InTime, Late and Refused count the requests that found a ready instance. InTime
	// were answered within the objective, Late after it. Refused were not executed,
	// because they could not meet it or too many waited. Patient requests do not count.
	InTime, Late, Refused uint64
	// Slow are those of Late and Refused whose own execution took longer than their objective.
	Slow    uint64
	Waiting int
	// Patient counts those of Arrivals that may wait for longer than their objective, and
	// PatientWaiting those of Waiting.
	Patient        uint64
	PatientWaiting int
	// ExtraRows counts the rows of Arrivals beyond the first of each: a request with 64 texts counts as one arrival
	// and 63 of these.
	ExtraRows uint64
	// Starting: requests wait as for a first instance until [Starts] ends that.
	Starting bool
	// Classes has the counters by class, up to the highest class that came. It is empty if
	// all requests are of class 0.
	Classes []ClassStats
	// Instances holds the time since which each instance is idle, zero while it is
	// busy.
	Instances map[cluster.InstanceID]time.Time
}

// Arrivals is that of [Dispatcher.Stats]. It takes no lock.
func Arrivals(d *Dispatcher) uint64 { return d.arrivals.Load() }

// CountElsewhere counts a request that asks for nothing and is answered elsewhere, as one that came here.
func CountElsewhere(d *Dispatcher) {
	d.arrivals.Add(1)
	d.prompt.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting.seen |= 1
	d.waiting.stats[0].Arrivals++
}

// Stats reads the counters.
func (d *Dispatcher) Stats() Stats {
	var s Stats
	d.Read(&s)
	return s
}

// Read is Stats without allocation: it overwrites s and reuses its map and its slice.
func (d *Dispatcher) Read(s *Stats) {
	d.mu.Lock()
	defer d.mu.Unlock()
	prompt := d.prompt.Load()
	s.Arrivals, s.Cold, s.Waiting = d.arrivals.Load(), d.cold.Load(), d.policy.Waiting()
	s.InTime, s.Late, s.Refused = d.inTime.Load(), d.late.Load(), d.refused.Load()
	s.Slow, s.Starting = d.slow.Load(), d.start.active.Load()
	s.Patient, s.PatientWaiting = s.Arrivals-prompt, d.waiting.patient
	s.ExtraRows = d.sizes.extra
	s.Classes = d.waiting.read(s.Classes)
	if s.Instances == nil {
		s.Instances = make(map[cluster.InstanceID]time.Time, len(d.instances))
	}
	clear(s.Instances)
	for id, m := range d.instances {
		if m.inFlight > 0 {
			s.Instances[id] = time.Time{}
			continue
		}
		s.Instances[id] = m.idleSince
	}
}

// Close answers all waiting requests with ErrClosed and accepts no more. Batches in
// flight finish normally.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		close(d.ended)
	}
	d.answerWaiting(time.Now(), math.MaxUint16, ErrClosed, metrics.Closed)
	if d.timer != nil {
		d.timer.Stop()
	}
	members := slices.Collect(maps.Values(d.instances))
	d.mu.Unlock()
	for _, m := range members {
		m.link.keepNone()
	}
}
