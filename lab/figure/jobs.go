package figure

import (
	"context"
	"sync"
)

// each runs n jobs, several at the same time. The first error cancels the others and is
// returned. A job calls part with the part of it that is done.
func (o Options) each(ctx context.Context, n int, job func(ctx context.Context, i int, part func(float64)) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &progress{parts: make([]float64, n), report: o.Progress}
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

// progress adds up the finished parts of several jobs.
type progress struct {
	mu       sync.Mutex
	parts    []float64
	sum      float64
	reported int
	report   func(done, total int)
}

// whole is the total that is reported.
const whole = 100

// set records the part of job i that is done. A smaller part than before has no effect.
func (p *progress) set(i int, part float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if more := min(part, 1) - p.parts[i]; more > 0 {
		p.parts[i] += more
		p.sum += more
	}
	if done := int(whole * p.sum / float64(len(p.parts))); p.report != nil && done > p.reported {
		p.reported = done
		p.report(done, whole)
	}
}
