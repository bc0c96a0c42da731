package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testprovider"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// step gives one function at once a load that needs many instances, and measures how long
// the provider takes to decide on them.
func (b *bench) step(ctx context.Context) error {
	b.say("a load step of %.0f requests/s", b.Rate)
	b.rig.Backend.Begin()
	began := time.Now()
	answered, failure := b.load(ctx, b.Rate, b.Step)
	passes := b.rig.Backend.Passes()
	if len(passes) == 0 {
		return fmt.Errorf("the load step started no instance; %d requests were answered: %w", answered, failure)
	}
	byDecision := func(a, b testprovider.Pass) int { return int(a.Decision() - b.Decision()) }
	longest := slices.MaxFunc(passes, byDecision)
	listing := slices.MaxFunc(passes, func(a, b testprovider.Pass) int { return int(a.Listing - b.Listing) })
	starts := 0
	for _, p := range passes {
		starts += p.Starts
	}
	b.report.Add("decision_ms", rig.Milliseconds(longest.Decision()), "ms", fmt.Sprintf("from looking at the nodes to the first order, the longest of %d decisions; %s", len(passes), b.size()))
	b.report.Add("decision_first_ms", rig.Milliseconds(passes[0].Decision()), "ms", fmt.Sprintf("the first decision, on %d instances", passes[0].Starts))
	filling := slices.MaxFunc(b.decisions, byDecision)
	b.report.Add("decision_fill_ms", rig.Milliseconds(filling.Decision()), "ms", fmt.Sprintf("the longest of %d while the nodes were filled", len(b.decisions)))
	b.report.Add("decision_nodes_ms", rig.Milliseconds(listing.Listing), "ms", "of which listing the nodes, the longest")
	b.report.Add("step.reaction_ms", rig.Milliseconds(passes[0].First.Sub(began)), "ms", "from the first request to the first order")
	b.report.Add("step.instances", float64(starts), "instances", fmt.Sprintf("ordered for %.0f requests/s", b.Rate))
	note := fmt.Sprintf("of %.0f, with instances that the cluster makes meanwhile", b.Rate*b.Step.Seconds())
	if failure != nil {
		note += "; the first that was not: " + failure.Error()
	}
	b.report.Add("step.answered", float64(answered), "requests", note)
	return nil
}

// serveLess is how many times less than the load step serve sends.
const serveLess = 4

// serve sends requests to a function that has enough instances. It counts the writes to the
// API server while they are served, after the writes that the load's start caused.
func (b *bench) serve(ctx context.Context) error {
	b.say("counting writes to the API server")
	if err := b.quiet(ctx); err != nil {
		return err
	}
	idle, err := b.writes.during(ctx, func() error { return rig.Pause(ctx, b.Serve) })
	if err != nil {
		return err
	}
	most, rate, functions := b.Rate/serveLess, 0.0, 0 // The load must need no further instance.
	for functions+1 < b.Functions && rate < most {
		functions++
		rate += 0.5 * float64(b.rig.Ready(b.name(functions)))
	}
	answered, stop := b.sustain(ctx, functions, min(most, rate))
	defer stop()
	if err := b.quiet(ctx); err != nil {
		return err
	}
	before := answered.Load()
	loaded, err := b.writes.during(ctx, func() error { return rig.Pause(ctx, b.Serve) })
	if err != nil {
		return err
	}
	requests := answered.Load() - before
	if requests == 0 {
		return errors.New("no request was answered")
	}
	b.report.Add("writes_per_request", float64(loaded.own)/float64(requests), "writes", strings.TrimSuffix(fmt.Sprintf("by the provider, over %d requests at a steady load: %s", requests, loaded.which), ": "))
	b.report.Add("writes.loaded", loaded.server, "writes", fmt.Sprintf("of all that use the API server in %v with requests (apiserver_request_total)", b.Serve))
	b.report.Add("writes.idle", idle.server, "writes", "the same without requests")
	return nil
}

// sustain sends requests at a rate to the first filled functions in turn until stop is called, and
// counts the good answers.
func (b *bench) sustain(ctx context.Context, functions int, rate float64) (answered *atomic.Int64, stop func()) {
	answered = new(atomic.Int64)
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.Tick(time.Duration(float64(time.Second) / rate))
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick:
				all.Go(func() {
					if b.at(i).Invoke(ctx, b.name(1+i%functions), "request") == nil {
						answered.Add(1)
					}
				})
			}
		}
	})
	return answered, func() {
		cancel()
		all.Wait()
	}
}

// quiet waits until the provider has written nothing for three times settle. If it does not
// stop, the error lists the writes.
func (b *bench) quiet(ctx context.Context) error {
	begun := b.writes.now()
	last, since := -1, time.Now()
	err := b.until(ctx, "the provider stops writing", func() int {
		if n, _ := b.writes.ours(nil); n != last {
			last, since = n, time.Now()
		}
		return int((3*settle - time.Since(since)) / time.Millisecond)
	})
	if err != nil {
		_, which := b.writes.ours(begun)
		return fmt.Errorf("%w; it wrote %s", err, which)
	}
	return nil
}

// load sends the stepped function requests at a rate, each when it is due. It returns the number of
// good answers and the first failure.
func (b *bench) load(ctx context.Context, rate float64, d time.Duration) (answered int, failure error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	began := time.Now()
	for i := range int(rate * d.Seconds()) {
		due := began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		if err := rig.Pause(ctx, time.Until(due)); err != nil {
			failure = err
			break
		}
		all.Go(func() {
			err := b.at(i).Invoke(ctx, stepped, "request")
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				answered++
			} else if failure == nil {
				failure = err
			}
		})
	}
	all.Wait()
	return answered, failure
}
