package queue

import (
	"container/heap"
	"time"
)

// times is a heap of points in time, the earliest first.
type times []time.Time

func (t *times) add(at time.Time) { heap.Push((*order)(t), at) }

// until returns the earlier one of at and the first of the times. If that has come, until
// removes all times that have come, because the caller acts now.
func (t *times) until(now, at time.Time) time.Time {
	if len(*t) > 0 && (*t)[0].Before(at) {
		at = (*t)[0]
	}
	if !now.Before(at) {
		for len(*t) > 0 && !(*t)[0].After(now) {
			heap.Pop((*order)(t))
		}
	}
	return at
}

// order implements heap.Interface for times.
type order []time.Time

func (o order) Len() int           { return len(o) }
func (o order) Less(i, j int) bool { return o[i].Before(o[j]) }
func (o order) Swap(i, j int)      { o[i], o[j] = o[j], o[i] }
func (o *order) Push(x any)        { *o = append(*o, x.(time.Time)) }

func (o *order) Pop() any {
	last := (*o)[len(*o)-1]
	*o = (*o)[:len(*o)-1]
	return last
}
