package coldstart

import (
	"math"
	"time"
)

// The two terms of LSTH (INFless §3.5).
const (
	LongTerm  = 24 * time.Hour
	ShortTerm = time.Hour
)

// slot is how finely a Trail knows when an idle time ended.
const slot = 5 * time.Minute

// entry is that some idle times of one length ended in one slot.
type entry struct {
	slot  int64 // since the epoch
	bin   int   // bins stands for all that are out of bounds
	count uint32
}

// Trail is the histograms of the idle times of the last day and of the last
// hour, both up to the slot in which they would end.
type Trail struct {
	entries []entry // the oldest first
	recent  int     // the first that is in short
	// Long is the day's, Short the hour's.
	Long, Short Histogram
}

func slotOf(t time.Time) int64 { return t.Unix() / int64(slot/time.Second) }

// Add counts an idle time that ended now.
func (t *Trail) Add(now time.Time, idle time.Duration) {
	t.Expire(now)
	at := slotOf(now)
	if n := len(t.entries); n > 0 { // A clock that was set back keeps the order.
		at = max(at, t.entries[n-1].slot)
	}
	t.put(entry{at, min(binOf(idle), bins), 1})
}

// put appends to the entries, or to an equal one of the last slot.
func (t *Trail) put(e entry) {
	t.Long.put(e.bin, e.count)
	t.Short.put(e.bin, e.count)
	for i := len(t.entries) - 1; i >= 0 && t.entries[i].slot == e.slot; i-- {
		if t.entries[i].bin == e.bin {
			t.entries[i].count += e.count
			return
		}
	}
	t.entries = append(t.entries, e)
}

// Expire drops what is too old.
func (t *Trail) Expire(now time.Time) {
	short, long := slotOf(now.Add(-ShortTerm)), slotOf(now.Add(-LongTerm))
	for t.recent < len(t.entries) && t.entries[t.recent].slot < short {
		t.Short.remove(t.entries[t.recent].bin, t.entries[t.recent].count)
		t.recent++
	}
	old := 0
	for old < t.recent && t.entries[old].slot < long {
		t.Long.remove(t.entries[old].bin, t.entries[old].count)
		old++
	}
	t.entries = append(t.entries[:0], t.entries[old:]...)
	t.recent -= old
}

// maxEntries is more than a day can have: in each slot at most five idle times
// of a minute or more end, and a sixth entry is for the shorter ones.
const maxEntries = 6 * int(LongTerm/slot+1)

// maxEntry is more idle times than a slot can have.
const maxEntry = 1 << 20

// Marshal writes the idle times of the last day.
func (t *Trail) Marshal(w *wireWriter) {
	w.Count(uint64(len(t.entries)))
	before := int64(0)
	for _, e := range t.entries {
		w.Number(e.slot - before)
		w.Count(uint64(e.bin))
		w.Count(uint64(e.count))
		before = e.slot
	}
}

// Restore puts what was marshalled into an empty trail; all of it counts for
// the last hour, too, until the time is known.
func (t *Trail) Restore(r *wireReader) {
	before := int64(math.MinInt32)
	at := int64(0)
	for range r.Count(uint64(maxEntries)) {
		at += r.Number()
		e := entry{at, int(r.Count(bins)), uint32(r.Count(maxEntry))}
		if r.Failed() || e.slot < before || e.count == 0 {
			r.Fail()
			return
		}
		t.put(e)
		before = e.slot
	}
}
