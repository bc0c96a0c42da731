package dispatch

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Park sends an instance no batches until the next Up. It returns false and does nothing if
// the instance has a batch in flight, or if requests wait.
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

// unpark clears the parked mark of an instance that does not come back. The lock is held.
func (d *Dispatcher) unpark(m *instanceState) {
	if m.parked {
		m.parked = false
		if !d.anyParked() {
			d.countWokenAsCold()
		}
	}
}

// anyParked reports whether there is a parked instance. The lock is held.
func (d *Dispatcher) anyParked() bool {
	for _, m := range d.instances {
		if m.parked {
			return true
		}
	}
	return false
}

// countWokenAsCold counts the requests that waited for parked instances in vain as cold. The
// lock is held.
func (d *Dispatcher) countWokenAsCold() {
	d.cold.Add(d.woken)
	d.woken = 0
}
