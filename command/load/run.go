package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Options configure one run of the open loop.
type Options struct {
	Targets []Target
	// Duration is how long requests are sent. The run lasts until the last request
	// is answered or times out.
	Duration time.Duration
	// Seed determines random arrivals.
	Seed uint64
	// MaxInFlight is the maximum number of unanswered requests, which protects the
	// machine. Beyond it, a due request is not sent and counts as dropped. 4096 if 0.
	MaxInFlight int
	// Timeout is how long after its intended time a request may be
	// answered. 30 s if 0.
	Timeout time.Duration
	// Progress, if it is a terminal, gets a progress bar.
	Progress io.Writer
	// Observe, if set, is called for every request once the last is answered, in the
	// order of their intended times.
	Observe func(Observed)
}

// Observed is the result of one request.
type Observed struct {
	// Target is the index of its target.
	Target int
	// At is its intended time, from the start. Latency is from then to the whole
	// answer.
	At, Latency time.Duration
	// Good: it was answered with a 2xx status and passed Verify. Otherwise Latency
	// means nothing.
	Good bool
}

const (
	defaultMaxInFlight = 4096
	defaultTimeout     = 30 * time.Second
)

// Run sends the targets' requests at their intended times and waits for all
// answers. Late, wrong or missing answers are results, not errors. An error means
// that the options are invalid or that ctx ended.
func Run(ctx context.Context, o Options) (*Result, error) {
	if len(o.Targets) == 0 {
		return nil, errors.New("Options.Targets is empty: give at least one target")
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = defaultMaxInFlight
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	arrivals, err := schedule(o.Targets, o.Duration, o.Seed)
	if err != nil {
		return nil, err
	}
	pools := make([]*pool, len(o.Targets))
	flight := make(chan struct{}, o.MaxInFlight)
	counts := make([]int, len(o.Targets))
	for _, a := range arrivals {
		counts[a.target]++
	}
	for i := range o.Targets {
		if pools[i], err = newPool(ctx, &o.Targets[i], counts[i], o.Timeout, flight); err != nil {
			return nil, err
		}
	}
	elapsed, err := drive(ctx, o, arrivals, pools)
	if err != nil {
		return nil, err
	}
	if o.Observe != nil {
		for _, a := range arrivals {
			s := &pools[a.target].samples[a.index]
			o.Observe(Observed{Target: a.target, At: a.at, Latency: s.latency, Good: s.outcome == good})
		}
	}
	result := &Result{Elapsed: elapsed}
	for i, p := range pools {
		offered := float64(counts[i]) / o.Duration.Seconds()
		result.Targets = append(result.Targets, summarise(p.target, p.samples, offered, elapsed))
	}
	return result, nil
}

// drive sends all arrivals and waits until each is answered. It returns the elapsed
// time, at least the options' duration.
func drive(ctx context.Context, o Options, arrivals []arrival, pools []*pool) (time.Duration, error) {
	pace, err := newPacer(ctx)
	if err != nil {
		return 0, err
	}
	defer pace.close()
	bar := newProgress(o.Progress, o.Duration)
	bar.begin(pace.start)
	defer bar.finish()
	err = send(ctx, pace, arrivals, pools)
	for _, p := range pools {
		p.finish()
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, fmt.Errorf("wait for the next request's time: %w", err)
	}
	return max(pace.now(), o.Duration), nil
}

// send gives each arrival to its pool at its time.
func send(ctx context.Context, pace *pacer, arrivals []arrival, pools []*pool) error {
	for _, a := range arrivals {
		if err := pace.wait(a.at); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		pools[a.target].start(job{index: a.index, intended: pace.start.Add(a.at)})
	}
	return nil
}
