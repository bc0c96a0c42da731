package dispatch

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Park gives an instance no batches until it is Up again, and tells whether it has: one
// that has a batch, or for which requests wait, is not parked.
func (d *Dispatcher) Park(id cluster.InstanceID) bool {
	now := time.Now()
	d.mu.Lock()
	m, ok := d.instances[id]
	if !ok || !m.up || m.inFlight > 0 || d.policy.Waiting() > 0 {
		d.mu.Unlock()
		return false
	}
	m.up, m.parked = false, true
	d.policy.Down(now, id)
	batches := d.act(now)
	d.mu.Unlock()
	d.delegate(batches, nil)
	return true
}

// unpark takes an instance that does not come back off the parked ones. The lock is
// held.
func (d *Dispatcher) unpark(m *peer) {
	if m.parked {
		m.parked = false
		if !d.anyParked() {
			d.chill()
		}
	}
}

// anyParked reports whether there is an instance that needs no start to serve. The lock
// is held.
func (d *Dispatcher) anyParked() bool {
	for _, m := range d.instances {
		if m.parked {
			return true
		}
	}
	return false
}

// chill counts as cold what has waited for parked instances in vain. The lock is held.
func (d *Dispatcher) chill() {
	d.cold.Add(d.woken)
	d.woken = 0
}
