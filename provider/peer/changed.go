package peer

import (
	"maps"
	"sync"
	"time"
)

// changes knows since when each function's load is what it is, so that a reader gets only what has
// changed since it last asked. Of 10,000 functions few have requests between two polls: all loads are
// 1.2 MB, those of ten functions 1.2 kB. Its zero value
// knows nothing.
type changes struct {
	mu sync.Mutex
	// version counts the looks that found a change.
	version uint64
	of      map[string]change
	// gone holds the functions that have no load any more, as of the times when that was noticed.
	// forgotten is the version of the latest that was dropped from it: a reader that has seen no
	// later one gets all.
	gone      map[string]time.Time
	forgotten uint64
}

// change is the load of a function and the version at which it became that.
type change struct {
	version uint64
	load    trace
}

// trace is what tells two loads apart.
type trace struct {
	arrivals, cold, inTime, late, refused, slow uint64
	waiting, inFlight, instances, busy          int
	// used is when an instance last had a request, as well as milliseconds tell it.
	used time.Time
}

const (
	// goneFor is how long changes remembers a function without a load. Readers ask each second.
	goneFor = time.Minute
	// blur is by how much used may differ by rounding.
	blur = 100 * time.Millisecond
)

func traceOf(now time.Time, f *FunctionLoad) trace {
	t := trace{arrivals: f.Arrivals, cold: f.Cold, inTime: f.InTime, late: f.Late, refused: f.Refused, slow: f.Slow, waiting: f.Waiting, inFlight: f.InFlight, instances: len(f.Idle)}
	for _, idle := range f.Idle {
		if idle == Busy {
			t.busy++
		} else if used := now.Add(-time.Duration(idle) * time.Millisecond); used.After(t.used) {
			t.used = used
		}
	}
	return t
}

func (t trace) same(o trace) bool {
	apart := t.used.Sub(o.used)
	t.used, o.used = time.Time{}, time.Time{}
	return t == o && apart.Abs() <= blur
}

// since takes in the loads at now and returns those that changed after a version; of a function that
// is gone it is zero. whole says that these are all. Pass the version that it returns the next time.
func (c *changes) since(now time.Time, after uint64, all map[string]FunctionLoad) (changed map[string]FunctionLoad, version uint64, whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(now, all)
	if after == 0 || after < c.forgotten || after > c.version {
		return all, c.version, true
	}
	changed = map[string]FunctionLoad{}
	for name, known := range c.of {
		if known.version > after {
			changed[name] = all[name]
		}
	}
	return changed, c.version, false
}

// note takes in the loads at now. The lock is held.
func (c *changes) note(now time.Time, all map[string]FunctionLoad) {
	if c.of == nil {
		c.of, c.gone = map[string]change{}, map[string]time.Time{}
	}
	next := c.version + 1
	for name, f := range all {
		delete(c.gone, name)
		if t := traceOf(now, &f); c.of[name].version == 0 || !c.of[name].load.same(t) {
			c.of[name], c.version = change{next, t}, next
		}
	}
	for name := range c.of {
		if _, there := all[name]; there {
			continue
		}
		since, known := c.gone[name]
		switch {
		case !known:
			c.gone[name] = now
			c.of[name], c.version = change{version: next}, next
		case now.Sub(since) > goneFor:
			c.forgotten = max(c.forgotten, c.of[name].version)
			delete(c.of, name)
			delete(c.gone, name)
		}
	}
}

// gone reports whether the load stands for a function that has none any more.
func (f *FunctionLoad) gone() bool {
	return f.Arrivals == 0 && f.Waiting == 0 && f.InFlight == 0 && len(f.Idle) == 0
}

// merge returns a replica's loads after those that it has sent. The map before stays as it is:
// others may read it. Each load keeps the time at which it came, since what is idle counts from then.
func merge(before Load, sent Load) map[string]FunctionLoad {
	whole := sent.Whole || sent.Version == 0 // An earlier version of the provider sends all.
	if len(sent.Functions) == 0 && !whole {
		return before.Functions
	}
	after := make(map[string]FunctionLoad, len(sent.Functions))
	if !whole {
		maps.Copy(after, before.Functions)
	}
	for name, f := range sent.Functions {
		if f.at = sent.At; f.gone() {
			delete(after, name)
		} else {
			after[name] = f
		}
	}
	return after
}
