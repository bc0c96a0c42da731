package onnxruntime

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// Loads are the times to load segments of a prepared model whose file is in the page cache.
type Loads struct {
	// Segment is what every segment takes, whatever is in it. Blocks are what each block adds.
	Segment time.Duration
	Blocks  []time.Duration
}

// MeasureLoads cuts out and opens each block as a segment, and some neighbours as one, on one thread.
// For example, blocks that take 3 and 4 ms, and 5 ms as one segment: each segment takes 3+4−5 = 2 ms,
// and the blocks add 1 and 2 ms. Of several neighbours the median counts, of those that load soonest.
// Times are CPU times, the minimum of several tries: other work on the machine can only add to them.
func (s *Segments) MeasureLoads(ctx context.Context) (Loads, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l := Loads{Blocks: make([]time.Duration, s.Blocks())}
	for i := range l.Blocks {
		if err := ctx.Err(); err != nil {
			return Loads{}, err
		}
		var err error
		if l.Blocks[i], err = s.loading(i, i+1); err != nil {
			return Loads{}, err
		}
	}
	joined := make(map[int]time.Duration)
	for _, i := range soonest(l.Blocks) {
		took, err := s.loading(i, i+2)
		if err != nil {
			return Loads{}, err
		}
		joined[i] = took
	}
	l.divide(joined)
	return l, nil
}

// neighbours is the maximum number of neighbours that are loaded as one segment.
const neighbours = 8

// soonest are the first of the neighbours that load soonest.
func soonest(blocks []time.Duration) (first []int) {
	for i := range len(blocks) - 1 {
		first = append(first, i)
	}
	slices.SortStableFunc(first, func(a, b int) int { return cmp.Compare(blocks[a]+blocks[a+1], blocks[b]+blocks[b+1]) })
	return first[:min(len(first), neighbours)]
}

// divide takes what every segment takes off the blocks' times. joined are the times of a block and the
// next as one segment, by the number of the first.
func (l *Loads) divide(joined map[int]time.Duration) {
	var found []time.Duration
	for i, took := range joined {
		found = append(found, l.Blocks[i]+l.Blocks[i+1]-took)
	}
	if len(found) == 0 {
		return
	}
	slices.Sort(found)
	l.Segment = max(0, min(slices.Min(l.Blocks), found[len(found)/2]))
	for i := range l.Blocks {
		l.Blocks[i] -= l.Segment
	}
}

// loading is the CPU time to cut out and open the blocks from first up to, but without, end.
func (s *Segments) loading(first, end int) (least time.Duration, err error) {
	for i := range loadTimes {
		start := ThreadTime()
		segment, err := s.Segment(first, end)
		if err != nil {
			return 0, err
		}
		e, err := segment.Open(Options{Threads: 1})
		if err != nil {
			return 0, err
		}
		took := ThreadTime() - start
		if err := e.Close(); err != nil {
			return 0, fmt.Errorf("closing a segment: %w", err)
		}
		if i == 0 || took < least {
			least = took
		}
		if took > longLoad {
			break
		}
	}
	return least, nil
}
