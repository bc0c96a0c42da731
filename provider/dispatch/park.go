package dispatch

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/health"
)

// Park gives an instance no batches until it is Up again, and tells whether it has: one
// that has a batch, or for which requests wait, is not parked.
func (d *Dispatcher) Park(id cluster.InstanceID) (parked bool) {
	d.delegate(d.locked(func(now time.Time) {
		m, ok := d.instances[id]
		if !ok || !m.up || m.health.State() != health.Healthy || m.lent || m.inFlight > 0 || d.waiting.some(m.Serves()) {
			return
		}
		parked = true
		d.setParked(m, true)
		d.down(now, m)
	}), nil)
	return parked
}

// setParked notes whether an instance needs no start to serve. The lock is held.
func (d *Dispatcher) setParked(m *instanceState, parked bool) {
	switch {
	case parked && !m.parked:
		d.parked.add(m.Serves(), 1)
	case !parked && m.parked:
		d.parked.add(m.Serves(), -1)
	}
	m.parked = parked
}

// unpark clears the parked mark of an instance that does not come back. The lock is held.
func (d *Dispatcher) unpark(m *instanceState) {
	if m.parked {
		d.setParked(m, false)
		d.countWokenAsCold(d.parked.fewer(1))
	}
}

// countWokenAsCold counts the requests of those classes that waited for parked instances in
// vain as cold. The lock is held.
func (d *Dispatcher) countWokenAsCold(classes uint16) {
	for c := range d.woken {
		if classes>>c&1 != 0 {
			d.cold.Add(d.woken[c])
			d.woken[c] = 0
		}
	}
}
