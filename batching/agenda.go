package batching

import (
	"cmp"
	"slices"
	"time"
)

// Busy is an instance that executes until Until, by the caller's clock.
type Busy struct {
	Until time.Duration
	Slot  int
}

func (a Busy) compare(b Busy) int {
	if a.Until != b.Until {
		return cmp.Compare(a.Until, b.Until)
	}
	return cmp.Compare(a.Slot, b.Slot)
}

// Agenda is a sorted list of busy instances; the one that becomes free first is in
// front. Most additions go near the end and most removals come from near the
// front, so both move few entries.
type Agenda struct {
	items []Busy
	head  int
}

// Len is the number of busy instances.
func (a *Agenda) Len() int { return len(a.items) - a.head }

// All returns the busy instances in order. The slice is valid until the next
// change.
func (a *Agenda) All() []Busy { return a.items[a.head:] }

// Add inserts e.
func (a *Agenda) Add(e Busy) {
	if n := len(a.items); n == a.head || a.items[n-1].compare(e) < 0 {
		if a.head > 32 && a.head*2 >= n {
			a.items = a.items[:copy(a.items, a.items[a.head:])]
			a.head = 0
		}
		a.items = append(a.items, e)
		return
	}
	i, _ := slices.BinarySearchFunc(a.All(), e, Busy.compare)
	if a.head > 0 && i < a.Len()/2 {
		a.head--
		copy(a.items[a.head:], a.items[a.head+1:a.head+1+i])
		a.items[a.head+i] = e
		return
	}
	a.items = slices.Insert(a.items, a.head+i, e)
}

// Remove removes e if the agenda has it.
func (a *Agenda) Remove(e Busy) {
	i, found := slices.BinarySearchFunc(a.All(), e, Busy.compare)
	if !found {
		return
	}
	if i < a.Len()/2 {
		copy(a.items[a.head+1:], a.items[a.head:a.head+i])
		a.head++
		return
	}
	a.items = slices.Delete(a.items, a.head+i, a.head+i+1)
}
