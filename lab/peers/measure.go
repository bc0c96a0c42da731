package peers

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/model/tensor"
)

const (
	// attainment is the share of requests that must be answered correctly within the
	// objective.
	attainment = 0.99
	// minObjectives is the minimum length of a trial in objectives. A queue that grows
	// must become visible.
	minObjectives = 12
	// minRequests is the minimum number of requests in the part of a trial that counts. With
	// fewer, one late request would decide about a rate.
	minRequests = 600
	// seed gives the arrivals of all trials: trials of one rate have the same ones, those of
	// another rate are closer or farther apart.
	seed = 1
	// patience is the number of unanswered requests, in requests of one objective's time.
	// Further requests are not sent and count as missed. So servers have no long queue
	// to work off, and no connection is closed while a request is in flight.
	patience = 4
	// firstAsked is the number of requests, one after the other, whose median time gives the
	// first rate.
	firstAsked = 9
	// challenge is the factor by which another setting must be better than the best so
	// far.
	challenge = 1.05
	// checkEvery: during a load, one answer of this number is compared with the
	// provider's.
	checkEvery = 7
	// minInFlight is the minimum number of requests that may be unanswered.
	minInFlight = 64
	// lost is the time beyond patience after which an answer counts as lost.
	lost = 2 * time.Second
	// warm is the time of the part of a trial that does not count. faas-infer gives a function what its load needs, which
	// takes up to two seconds from one request at a time on; its peers have their core from the start.
	warm = 2 * time.Second
	// settling is how long a server may take to answer within the objective again
	// after a rate that it could not serve.
	settling = 20 * time.Second
)

// Trials find the highest rate at which a server keeps an objective. Begin with Rate.
type Trials struct {
	// SLO is the latency objective.
	SLO time.Duration
	// Trial is the minimum time of each rate, Budget the time of each search.
	Trial, Budget time.Duration
	// Warm is the minimum time of the part of a trial that does not count, in which a server that
	// scales may do so.
	Warm time.Duration
	// Size is about how much of the model's time the request with an index takes beside others, nil if all take as much.
	Size func(index int) int
	// Log gets a line for each trial.
	Log io.Writer

	// offered counts the requests of the trials so far, refusedEarly those of [refusedEarly].
	offered, refusedEarly int
}

// subject is a model with its trials, its sample requests and the expected answers.
type subject struct {
	Trials
	inputs [][]tensor.Tensor
	// due are the provider's answers to inputs, nil before they are known.
	due [][]float32
	// absolute and relative are the tolerance between two answers, 0 for that of rounding.
	absolute, relative float64
}

// address is the URL of one setting for one kind of request.
type address struct {
	way     Way
	url     string
	setting string
}

// target makes the requests of all samples. It compares one answer of checkEvery.
func (s *subject) target(a address) (load.Target, func(), error) {
	var bodies [][]byte
	t := load.Target{Name: a.setting, SLO: s.SLO, Arrivals: load.Poisson}
	for _, inputs := range s.inputs {
		body, header, err := a.way.Encode(a.setting, inputs)
		if err != nil {
			return t, nil, err
		}
		if t.Header != nil && !reflect.DeepEqual(header, t.Header) {
			return t, nil, fmt.Errorf("%s: all requests must have the same headers", a.way.Name)
		}
		t.Header = header
		bodies = append(bodies, body)
	}
	t.Body = load.Cycle(bodies...)
	t.URL = a.url
	t.Verify = func(i int, body []byte) error {
		if i%checkEvery != 0 {
			return nil
		}
		return s.check(a.way, i%len(s.inputs), body)
	}
	release := func() {}
	if a.way.GRPC {
		c := newCaller(a.url)
		t.Send, release = c.send, c.close
	}
	return t, release, nil
}

// check compares the answer to a sample with the expected one.
func (s *subject) check(w Way, sample int, body []byte) error {
	got, err := w.Decode(body)
	if err != nil {
		return err
	}
	if s.due == nil {
		return nil
	}
	return equal(got, s.due[sample], cmp.Or(s.absolute, absolute), cmp.Or(s.relative, relative))
}

// ask sends one body and returns the answer. A status other than 200 is an error.
func ask(ctx context.Context, t load.Target, body []byte) ([]byte, error) {
	if t.Send != nil {
		_, answer, err := t.Send(ctx, body)
		return answer, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = t.Header.Clone()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", response.Status, strings.TrimSpace(string(answer)))
	}
	return answer, err
}

// answers sends all samples until each answer is as expected, or for at most wait. A server
// may report too early that it is ready.
func (s *subject) answers(ctx context.Context, w Way, t load.Target, wait time.Duration) (all [][]float32, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for i := 0; i < len(s.inputs); {
		body, err := ask(ctx, t, t.Body(i))
		if err == nil {
			err = s.check(w, i, body)
		}
		if err == nil {
			got, err := w.Decode(body)
			if err != nil {
				return nil, err
			}
			all = append(all, got)
			i++
			continue
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(10 * poll):
		}
	}
	return all, nil
}

// Rate searches the highest rate in requests/s of a target. It begins with the rate at which one
// request follows the other. If there is a rate to beat, it first tries that rate times challenge,
// and returns 0 if this is missed.
func (s *Trials) Rate(ctx context.Context, t load.Target, beat float64) (float64, error) {
	search := Search{Start: beat * challenge, Budget: s.Budget}
	if beat == 0 {
		alone, err := s.alone(ctx, t)
		if err != nil {
			return 0, err
		}
		search.Start = 1 / alone.Seconds()
	}
	for {
		done, err := s.step(ctx, t, &search)
		if done || err != nil || beat > 0 && search.Low == 0 {
			return search.Low, err // The rate met before an error counts.
		}
	}
}

// step offers the next rate of a search to a target. done is true if the search is over.
func (s *Trials) step(ctx context.Context, t load.Target, search *Search) (done bool, err error) {
	rate, done := search.Next()
	if done {
		return true, nil
	}
	began := time.Now()
	met, err := s.met(ctx, t, rate)
	if err == nil {
		search.Saw(rate, met, time.Since(began))
	}
	return false, err
}

// alone returns the median time of requests that are sent one after the other.
func (s *Trials) alone(ctx context.Context, t load.Target) (time.Duration, error) {
	var took []time.Duration
	for i := range firstAsked {
		began := time.Now()
		if _, err := ask(ctx, t, t.Body(i)); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// counted returns how long a rate is offered in the part of a trial that counts. Poisson arrivals
// may be some fewer than expected, so more than minRequests are.
func (s *Trials) counted(rate float64) time.Duration {
	requests := time.Duration(1.05 * minRequests / rate * float64(time.Second))
	return max(s.Trial, minObjectives*s.SLO, requests)
}

// uncounted returns how long a rate is offered before that.
func (s *Trials) uncounted() time.Duration { return max(s.Trial/3, s.Warm) }

// met offers a rate and reports whether it is met. The beginning of the load does not
// count. A missed rate is offered once more: another tenant of a shared machine may have
// caused a pause. A trial ends as soon as it is missed.
func (s *Trials) met(ctx context.Context, t load.Target, rate float64) (bool, error) {
	t.Rate = rate
	o := load.Options{Targets: []load.Target{t}, Seed: seed, MaxInFlight: max(minInFlight, int(patience*rate*s.SLO.Seconds())), Timeout: lost + patience*s.SLO}
	for try := range 2 {
		o.Duration = s.uncounted()
		if _, err := load.Run(ctx, o); err != nil {
			return false, err
		}
		var seen []load.Observed
		counted := o
		counted.Duration, counted.MinWithin = s.counted(rate), attainment
		counted.Observe = func(r load.Observed) { seen = append(seen, r) }
		ran, err := load.Run(ctx, counted)
		if err != nil {
			return false, err
		}
		r := &ran.Targets[0]
		s.report(rate, r, seen)
		if r.WithinSLO >= attainment {
			return true, nil
		}
		if err := s.settle(ctx, t); err != nil {
			return false, err
		}
		// A pause does not explain a rate that is missed by far.
		if try == 0 && r.WithinSLO < attainment/2 {
			return false, nil
		}
	}
	return false, nil
}

// report logs a trial and counts its requests.
func (s *Trials) report(rate float64, r *load.TargetResult, seen []load.Observed) {
	early := refusedEarly(seen, s.SLO, s.Size)
	s.offered, s.refusedEarly = s.offered+len(seen), s.refusedEarly+early
	note := ""
	if r.Refused > 0 {
		note += fmt.Sprintf(", %d refused, %d of them could have been in time", r.Refused, early)
	}
	if r.Lagged() {
		note += ", the generator lagged"
	}
	if r.FirstError != nil && r.WithinSLO < attainment {
		note += fmt.Sprintf(", %.120v", r.FirstError)
	}
	const unit = 100 * time.Microsecond
	fmt.Fprintf(s.Log, "    %.4g requests/s: %.2f %% of %d within %v, median %v, p99 %v%s\n",
		rate, 100*r.WithinSLO, r.Requests, s.SLO, r.Latency.P50.Round(unit), r.Latency.P99.Round(unit), note)
}

// settle waits until a server answers within the objective again.
func (s *Trials) settle(ctx context.Context, t load.Target) error {
	for end := time.Now().Add(settling); ; {
		began := time.Now()
		asked, cancel := context.WithTimeout(ctx, settling)
		_, err := ask(asked, t, t.Body(0))
		cancel()
		if err == nil && time.Since(began) <= s.SLO {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(end) {
			return errors.Join(fmt.Errorf("%v after a rate that was too high, it still does not answer within %v", settling, s.SLO), err)
		}
	}
}
