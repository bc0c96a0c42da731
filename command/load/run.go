package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
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
	// MinWithin, if positive, ends the run once fewer than this share of all its requests can be
	// answered well within their SLO. Requests that are not due by then are not part of the result.
	MinWithin float64
	// Until, if it is not nil, ends the sending when it ends. The result is then of the requests sent before.
	Until context.Context
	// Progress, if it is a terminal, gets a progress bar.
	Progress io.Writer
	// Observe, if set, is called for every request once the last is answered, in the
	// order of their intended times.
	Observe func(Observed)
}

// Observed is the result of one request.
type Observed struct {
	// Target is the index of its target, Index the request's own among those of the
	// target, as Body and Verify count.
	Target, Index int
	// At is its intended time, from the start; Lag is from then until it was sent,
	// Latency from then to the whole answer, or to the error in its place.
	At, Lag, Latency time.Duration
	// Sent is false if too many requests were in flight. Lag, Latency and Status say
	// nothing then.
	Sent bool
	// Good: it was answered with a 2xx status and to Verify's liking.
	Good bool
	// Status is the answer's, 0 if none came; Err says why, or what Verify did not like.
	Status int
	Err    error
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
	missed := &missed{max: math.MaxInt64}
	if o.MinWithin > 0 {
		missed.max = int64((1 - o.MinWithin) * float64(len(arrivals)))
	}
	for i := range o.Targets {
		if pools[i], err = newPool(ctx, &o.Targets[i], counts[i], o.Timeout, flight); err != nil {
			return nil, err
		}
		pools[i].missed = missed
	}
	began, sent, elapsed, err := drive(ctx, o, arrivals, pools)
	if err == nil && sent == 0 && o.Until != nil {
		err = o.Until.Err()
	}
	if err != nil {
		return nil, err
	}
	lasted := o.Duration
	if sent < len(arrivals) {
		lasted = arrivals[sent].at
		for _, a := range arrivals[sent:] {
			counts[a.target]--
		}
		arrivals = arrivals[:sent]
	}
	if o.Observe != nil {
		for _, a := range arrivals {
			s := &pools[a.target].samples[a.index]
			o.Observe(Observed{
				Target: a.target, Index: a.index, At: a.at, Lag: s.lag, Latency: s.latency,
				Sent: s.outcome != unsent, Good: s.outcome == good, Status: s.status, Err: s.err,
			})
		}
	}
	result := &Result{Began: began, Elapsed: elapsed}
	for i, p := range pools {
		offered := float64(counts[i]) / lasted.Seconds()
		result.Targets = append(result.Targets, summarise(p.target, p.samples[:counts[i]], offered, elapsed))
	}
	return result, nil
}

// drive sends the arrivals and waits until each is answered. It returns when that began, how
// many it sent, and how long it took, at least the options' duration if it sent all.
func drive(ctx context.Context, o Options, arrivals []arrival, pools []*pool) (
	began time.Time, sent int, elapsed time.Duration, err error,
) {
	until := o.Until
	if until == nil {
		until = ctx
	}
	pace, err := newPacer(until)
	if err != nil {
		return began, 0, 0, err
	}
	defer pace.close()
	bar := newProgress(o.Progress, o.Duration)
	bar.begin(pace.start)
	defer bar.finish()
	sent, err = send(until, pace, arrivals, pools)
	for _, p := range pools {
		p.finish()
	}
	if ctx.Err() != nil {
		return began, 0, 0, ctx.Err()
	}
	if err != nil && until.Err() == nil {
		return began, 0, 0, fmt.Errorf("waiting for the next request's time: %w", err)
	}
	if elapsed = pace.now(); sent == len(arrivals) {
		elapsed = max(elapsed, o.Duration)
	}
	return pace.start, sent, elapsed, nil
}

// send gives each arrival to its pool at its time, until too many are missed. It returns how
// many it sent.
func send(ctx context.Context, pace *pacer, arrivals []arrival, pools []*pool) (sent int, err error) {
	for i, a := range arrivals {
		if err := pace.wait(a.at); err != nil {
			return i, err
		}
		p := pools[a.target]
		if ctx.Err() != nil || p.missed.tooMany() {
			return i, nil
		}
		p.start(job{index: a.index, intended: pace.start.Add(a.at)})
	}
	return len(arrivals), nil
}
