package shadows

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/papers/asyfunc/pair"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// The names of the ways to compute batches.
const (
	wayWhole       = "whole"       // one whole instance
	wayTwin        = "twin"        // two that map the same weights
	wayElsewhere   = "elsewhere"   // two, each with weights of its own, as on two nodes
	waySynchronous = "synchronous" // a body whose shadow waits meanwhile (Eq. 6)
	wayPair        = "pair"        // a body whose shadow begins the next batch meanwhile
	wayAuto        = "auto"        // a pair with the part that the provider would choose
)

// way is one way to compute batches.
type way struct {
	name string
	// clients get one stream of batches each.
	clients []*process
	rows    int
	before  func(ctx context.Context) error
	// both are the processes that compute, none if the way has one core. weights are those of the
	// second, in bytes. accounts are those in which the way is one.
	both     []*process
	weights  int64
	accounts []shadow.Accounting
}

// ways starts the processes and lists the ways.
func (s *subject) ways(ctx context.Context) (_ []way, err error) {
	most := fmt.Sprint(s.pairRows())
	for _, x := range []struct {
		into           **process
		name, prepared string
		on             int
		flags          []string
	}{
		{&s.whole, "whole", s.prepared, 0, nil},
		{&s.twin, "twin", s.prepared, 1, nil},
		{&s.elsewhere, "elsewhere", s.copied, 1, nil},
		{&s.body, "body", s.prepared, 0, []string{"body", "--concurrency", "2"}},
	} {
		if *x.into, err = s.start(ctx, x.name, x.prepared, x.on, append(x.flags, "--max-batch", most)...); err != nil {
			return nil, err
		}
	}
	if s.helper, err = s.startShadow(ctx, "shadow", s.phi, s.Rows); err != nil {
		return nil, err
	}
	weights, part := s.layers.Weights(s.layers.All()), s.layers.Weights(s.shadowPhi)
	own, shared := []shadow.Accounting{shadow.Own}, []shadow.Accounting{shadow.Shared}
	either := []shadow.Accounting{shadow.Own, shadow.Shared}
	with := func(synchronous bool) func(ctx context.Context) error {
		return func(ctx context.Context) error { return s.pairWith(ctx, s.helper, synchronous) }
	}
	pairs := []*process{s.body, s.helper}
	all := []way{
		{wayWhole, []*process{s.whole}, s.Rows, nil, nil, 0, nil},
		{wayTwin, []*process{s.whole, s.twin}, s.Rows, nil, []*process{s.whole, s.twin}, weights, shared},
		{wayElsewhere, []*process{s.whole, s.elsewhere}, s.Rows, nil, []*process{s.whole, s.elsewhere}, weights, own},
		{waySynchronous, []*process{s.body}, s.pairRows(), with(true), pairs, part, either},
		{wayPair, []*process{s.body, s.body}, s.pairRows(), with(false), pairs, part, either},
	}
	if err := s.divide(); err != nil || s.auto != wayAuto {
		return all, err
	}
	phi := s.division.Pair.Phi
	helper, err := s.startShadow(ctx, "shadow-"+wayAuto, runsOf(phi), s.pairRows())
	fmt.Fprintf(s.o.Log, "%s: the provider would choose a shadow of %v\n", s.name, phi)
	return append(all, way{
		name: wayAuto, clients: slices.Repeat([]*process{s.body}, s.division.Streams), rows: s.pairRows(), both: []*process{s.body, helper},
		before:  func(ctx context.Context) error { return s.pairFor(ctx, runsOf(phi), helper, false) },
		weights: s.layers.Weights(phi), accounts: either,
	}), err
}

// pairWith orders the body to be paired with a shadow.
func (s *subject) pairWith(ctx context.Context, with *process, synchronous bool) error {
	return s.pairFor(ctx, s.phi, with, synchronous)
}

// pairFor is pairWith for a shadow that holds phi.
func (s *subject) pairFor(ctx context.Context, phi pair.Phi, with *process, synchronous bool) error {
	text, err := json.Marshal(pair.Order{Phi: phi.String(), Shadows: []pair.Address{{Network: "unix", Address: with.relay}}, Synchronous: synchronous})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: s.body.over}
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://instance"+pair.ShadowsPath, bytes.NewReader(text))
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the body refuses the pair: %s", answer.Status)
	}
	for range 2000 {
		var status pair.Status
		_, text, err := rig.Get(ctx, client, "http://instance"+pair.ShadowsPath)
		if err == nil {
			err = json.Unmarshal(text, &status)
		}
		if err != nil {
			return err
		}
		if len(status.Shadows) == 1 && status.Shadows[0].State == "connected" {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("the body is not connected to its shadow")
}

// rounds measures the ways in turn and returns the rows per second of each round.
func (s *subject) rounds(ctx context.Context, ways []way) (map[string][]float64, error) {
	rates := make(map[string][]float64)
	for round := range s.Rounds {
		for _, w := range ways {
			rate, err := s.stream(ctx, w)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			rates[w.name] = append(rates[w.name], rate)
			fmt.Fprintf(s.o.Log, "%s: round %d: %s %.2f rows/s\n", s.name, round+1, w.name, rate)
		}
	}
	return rates, nil
}

const (
	// warmUp are each stream's first batches, which warm the instance up and teach a pair its
	// shares.
	warmUp = 3
	// enough is how many times of a batch are measured, if that takes no longer than longest, and least in any
	// case: those in flight at both ends count as if they advanced evenly. A quarter of a batch is 6 % of four.
	enough, least = 6, 2
	longest       = 20 * time.Second
)

// window is how long a way is measured whose batch takes so long.
func window(each, batch time.Duration) time.Duration {
	return max(each, min(enough*batch, longest), least*batch)
}

// stream sends batches, one after the other on each client, and returns the rows per second while all
// clients have some in flight.
func (s *subject) stream(ctx context.Context, w way) (float64, error) {
	if w.before != nil {
		if err := w.before(ctx); err != nil {
			return 0, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var streams sync.WaitGroup
	var warm atomic.Int32
	var from, until atomic.Int64
	errs, batches := make([]error, len(w.clients)), make([][]batch, len(w.clients))
	for i, c := range w.clients {
		streams.Go(func() {
			for {
				began := time.Now()
				if _, err := s.infer(ctx, c, w.rows); err != nil {
					errs[i] = err
					cancel()
					return
				}
				now := time.Now()
				batches[i] = append(batches[i], batch{began, now})
				if len(batches[i]) == warmUp && int(warm.Add(1)) == len(w.clients) {
					from.Store(now.UnixNano())
					until.Store(now.Add(window(s.Each, now.Sub(began))).UnixNano())
				}
				// A batch that begins after the end keeps the cores as busy for those of the other
				// streams that began before it.
				if u := until.Load(); u > 0 && began.UnixNano() >= u {
					return
				}
			}
		})
	}
	streams.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	return float64(w.rows) * steady(slices.Concat(batches...), time.Unix(0, from.Load()), time.Unix(0, until.Load())), nil
}

// batch is when a batch was sent and when its answer came.
type batch struct{ began, end time.Time }

// steady is the number of batches per second between two times. Of a batch that is in flight at either end
// the part counts that lies between them: of 1 s of a batch that takes 4 s, a quarter. Whole ones alone
// would misjudge a way of which only some batches are measured.
func steady(batches []batch, from, until time.Time) float64 {
	sum := 0.0
	for _, b := range batches {
		began, end := b.began, b.end
		if began.Before(from) {
			began = from
		}
		if end.After(until) {
			end = until
		}
		if end.After(began) {
			sum += end.Sub(began).Seconds() / b.end.Sub(b.began).Seconds()
		}
	}
	return sum / until.Sub(from).Seconds()
}
