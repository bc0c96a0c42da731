package figure

import (
	"context"
	"sync"
)

// each carries out n jobs, several at the same time, and returns the first error,
// upon which the others end. A job tells what part of it is done.
func (o Options) each(ctx context.Context, n int, job func(ctx context.Context, i int, part func(float64)) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &progress{parts: make([]float64, n), tell: o.Progress}
	next := make(chan int)
	var wait sync.WaitGroup
	for range min(o.Workers, n) {
		wait.Go(func() {
			for i := range next {
				if err := job(ctx, i, func(part float64) { p.set(i, part) }); err != nil {
					cancel(err)
				}
				p.set(i, 1)
			}
		})
	}
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wait.Wait()
	return context.Cause(ctx)
}

// progress adds up what parts of several jobs are done.
type progress struct {
	mu    sync.Mutex
	parts []float64
	sum   float64
	told  int
	tell  func(done, total int)
}

// whole is the number that stands for all.
const whole = 100

// set notes what part of job i is done. It never goes back.
func (p *progress) set(i int, part float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if more := min(part, 1) - p.parts[i]; more > 0 {
		p.parts[i] += more
		p.sum += more
	}
	if done := int(whole * p.sum / float64(len(p.parts))); p.tell != nil && done > p.told {
		p.told = done
		p.tell(done, whole)
	}
}
