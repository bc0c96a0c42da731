package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// RunClosed runs a closed loop for d: each client sends its next request when its
// last one is answered. Latency counts from the actual sending. In the result,
// Offered is the rate that was sent and Lag is zero. Every request has a different
// index (see Target.Body): the first client begins at 0, the second at 1, and so on.
func RunClosed(ctx context.Context, t Target, clients int, d time.Duration) (*TargetResult, error) {
	if clients < 1 || d <= 0 {
		return nil, fmt.Errorf("%d clients for %v: both must be positive", clients, d)
	}
	e, err := t.resolve()
	if err != nil {
		return nil, err
	}
	samples := make([][]sample, clients)
	start := time.Now()
	var group sync.WaitGroup
	for client := range clients {
		group.Go(func() {
			samples[client] = backToBack(ctx, &t, e, client, clients, start.Add(d))
		})
	}
	group.Wait()
	elapsed := time.Since(start)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var all []sample
	for _, s := range samples {
		all = append(all, s...)
	}
	if len(all) == 0 {
		return nil, errors.New("the duration ended before the first request; give a longer one")
	}
	r := summarise(&t, all, float64(len(all))/elapsed.Seconds(), elapsed)
	return &r, nil
}

// backToBack runs one client.
func backToBack(ctx context.Context, t *Target, e *endpoint, first, step int, end time.Time) []sample {
	c := e.connect(t.Verify != nil)
	defer c.close()
	var samples []sample
	for i := first; ctx.Err() == nil; i += step {
		var body []byte
		if t.Body != nil {
			body = t.Body(i)
		}
		began := time.Now()
		if !began.Before(end) {
			break
		}
		status, answer, err := c.do(ctx, body, began.Add(defaultTimeout))
		took := time.Since(began)
		s := judge(t, i, status, answer, err)
		s.latency = took
		samples = append(samples, s)
	}
	return samples
}
