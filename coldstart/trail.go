package coldstart

import (
	"cmp"
	"math"
	"time"
)

// The two terms of LSTH (INFless §3.5).
const (
	LongTerm  = 24 * time.Hour
	ShortTerm = time.Hour
)

// slot is the resolution of the times at which idle times ended.
const slot = 5 * time.Minute

// entry counts the idle times of one length that ended in one slot.
type entry struct {
	slot  int64 // since the epoch
	bin   int   // bins means out of bounds
	count uint32
}

// Trail has the histograms of the idle times of the last day, or another long term, and of
// the last hour. Both begin at a whole slot.
type Trail struct {
	long    time.Duration // the long term; 0 means LongTerm
	entries []entry       // the oldest first
	recent  int           // the first entry that is in Short
	// Long is the long term's histogram, Short the last hour's.
	Long, Short Histogram
}

func slotOf(t time.Time) int64 { return t.Unix() / int64(slot/time.Second) }

// Add counts an idle time that ended now.
func (t *Trail) Add(now time.Time, idle time.Duration) {
	t.Expire(now)
	at := slotOf(now)
	if n := len(t.entries); n > 0 { // Keep the order if the clock was set back.
		at = max(at, t.entries[n-1].slot)
	}
	t.put(entry{at, min(binOf(idle), bins), 1})
}

// put appends an entry, or adds its count to one of the same slot and bin.
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

// Expire drops idle times that are too old.
func (t *Trail) Expire(now time.Time) {
	short, long := slotOf(now.Add(-ShortTerm)), slotOf(now.Add(-cmp.Or(t.long, LongTerm)))
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

// maxEntries is more entries than a day can have. At most five idle times of a minute or
// more end in a slot; a sixth entry is for the shorter ones.
const maxEntries = 6 * int(LongTerm/slot+1)

// maxEntry is more idle times than can end in a slot.
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

// Restore reads the idle times into an empty trail. All of them count for the last hour,
// too, until Expire gets the time.
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
