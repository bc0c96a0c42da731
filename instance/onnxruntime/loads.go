package onnxruntime

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// Loads are the times to load segments of a prepared model whose file is in the page cache.
type Loads struct {
	// Segment is what every segment takes, whatever is in it. Blocks are what each block adds.
	Segment time.Duration
	Blocks  []time.Duration
}

// MeasureLoads cuts out and opens each block as a segment, and all blocks as one, on one thread. For
// example, three blocks that take 3, 4 and 5 ms, and 8 ms as one segment: each segment takes
// (12−8)/2 = 2 ms, and the blocks add 1, 2 and 3 ms. Times are CPU times, the minimum of several
// tries: other work on the machine can only add to them.
func (s *Segments) MeasureLoads(ctx context.Context) (Loads, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n := s.Blocks()
	whole, err := s.loading(0, n)
	if err != nil {
		return Loads{}, err
	}
	blocks := make([]time.Duration, n)
	for i := range blocks {
		if err := ctx.Err(); err != nil {
			return Loads{}, err
		}
		if blocks[i], err = s.loading(i, i+1); err != nil {
			return Loads{}, err
		}
	}
	return divideLoads(whole, blocks), nil
}

// divideLoads finds what every segment takes from the times of all blocks alone and as one segment.
func divideLoads(whole time.Duration, blocks []time.Duration) Loads {
	l := Loads{Blocks: blocks}
	sum, least := time.Duration(0), whole
	for _, b := range blocks {
		sum, least = sum+b, min(least, b)
	}
	if len(blocks) > 1 {
		l.Segment = max(0, min(least, (sum-whole)/time.Duration(len(blocks)-1)))
	}
	for i := range blocks {
		blocks[i] -= l.Segment
	}
	return l
}

// loading is the CPU time to cut out and open the blocks from first up to, but without, end.
func (s *Segments) loading(first, end int) (least time.Duration, err error) {
	for i := range loadTimes {
		start := processorTime()
		segment, err := s.Segment(first, end)
		if err != nil {
			return 0, err
		}
		e, err := segment.Open(Options{Threads: 1})
		if err != nil {
			return 0, err
		}
		took := processorTime() - start
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
