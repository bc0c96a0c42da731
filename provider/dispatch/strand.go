package dispatch

import (
	"maps"
	"slices"
	"time"
)

// strand gives the calls that wait, and whose last instance has been retired, the time of those that find
// none: an update may have to stop it before the next one has room. The lock is held.
func strand(d *Dispatcher, now time.Time) {
	none := d.up.fewer(1)
	if d.closed || d.problem.Refuse || !d.waiting.some(none) {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(d.waiting.calls)) {
		c := d.waiting.calls[id]
		if none>>c.class&1 == 0 || c.cold || c.orphaned || !d.policy.Cancel(now, id) {
			continue
		}
		c.ownDeadline, c.orphaned, d.stranded = c.deadline, true, true
		c.extend(now, d.options.ColdWait, false)
		d.policy.Add(now, c.asPolicy())
	}
}

// rescue ends that for the calls of those classes, which have an instance again. A call keeps its own
// deadline if that is still to come, as when a new revision takes over at once; otherwise it gets the
// time of a new one. The lock is held.
func rescue(d *Dispatcher, now time.Time, classes uint16) {
	if !d.stranded {
		return
	}
	d.stranded = false
	for _, id := range slices.Sorted(maps.Keys(d.waiting.calls)) {
		c := d.waiting.calls[id]
		switch {
		case c.ownDeadline.IsZero():
		case classes>>c.class&1 == 0:
			d.stranded = true
		case d.policy.Cancel(now, id):
			if c.extend(now, d.options.ColdWait, true); now.Before(c.ownDeadline) {
				c.deadline, c.orphaned = c.ownDeadline, false
			}
			c.ownDeadline = time.Time{}
			d.policy.Add(now, c.asPolicy())
		}
	}
}
