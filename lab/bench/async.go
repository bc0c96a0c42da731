package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// Async are the options of [RunAsync].
type Async struct {
	// Model is the model of the function that can batch, SLO its objective.
	Model string
	SLO   time.Duration
	// Queued is the number of requests in the queue when their execution is timed.
	Queued int
	// Messages is the number of requests queued while the provider is killed Kills
	// times.
	Messages, Kills int
}

// RunAsync measures the queue of asynchronous requests behind the stock gateway. It
// measures how many requests the queue accepts per second, how much faster they are
// executed many at a time than one at a time, and whether any is lost when the provider is
// killed.
func RunAsync(ctx context.Context, o rig.Options, a Async) (*report.Report, error) {
	r := report.New("bench async --model "+a.Model, time.Now())
	for _, part := range []func(context.Context, rig.Options, *report.Report, Async) error{accept, execute, survive} {
		if err := part(ctx, o, r, a); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// queued is a provider behind a gateway.
type queued struct {
	*rig.Deployed
	options       rig.Options
	dir           string
	address, nats string
	gateway       string
	closeGateway  func()
}

// queue starts a provider behind the gateway and deploys a function. The provider executes
// at most concurrency asynchronous requests at a time (0: its default).
func queue(ctx context.Context, o rig.Options, s *rig.Subject, slo time.Duration, concurrency int) (_ *queued, err error) {
	q := &queued{options: o, dir: s.Dir, closeGateway: func() {}}
	if q.address, err = engine.FreeAddress(); err != nil {
		return nil, err
	}
	if q.nats, err = engine.FreeAddress(); err != nil {
		return nil, err
	}
	if err := q.start(ctx, concurrency); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			q.close()
		}
	}()
	if q.gateway, q.closeGateway, err = o.Gateway(ctx, q.address, q.nats, s.Dir); err != nil {
		q.closeGateway = func() {}
		return nil, err
	}
	if err := q.Bundle(s, "subject:latest"); err != nil {
		return nil, err
	}
	if err := q.Deploy(ctx, rig.FunctionName, "subject:latest", slo); err != nil {
		return nil, err
	}
	target, err := s.Target(q.URL + "/function/" + rig.FunctionName)
	if err != nil {
		return nil, err
	}
	// The first answer comes when the model has been measured.
	_, err = rig.One(ctx, target)
	return q, err
}

func (q *queued) start(ctx context.Context, concurrency int) (err error) {
	arguments := []string{"--nats-listen", q.nats}
	if concurrency > 0 {
		arguments = append(arguments, "--async-concurrency", fmt.Sprint(concurrency))
	}
	q.Deployed, err = q.options.ProviderAt(ctx, q.address, q.dir, arguments...)
	return err
}

func (q *queued) close() {
	q.closeGateway()
	q.Stop()
}

// accept measures how fast small requests are accepted. The function executes hardly any of
// them: executions must not take time from the acceptance.
func accept(ctx context.Context, o rig.Options, r *report.Report, _ Async) error {
	const seconds = 7
	s, err := rig.NewSubject("identity")
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Fprintln(o.Log, "queueing small requests through the gateway")
	q, err := queue(ctx, o, s, time.Second, 1)
	if err != nil {
		return err
	}
	defer q.close()
	if err := q.DeployProgram(ctx, "sleeper", "sleep 5"); err != nil {
		return err
	}
	target := load.Target{URL: q.gateway + "/async-function/sleeper", Body: load.Cycle([]byte("hello"))}
	rates, err := acceptedPerSecond(ctx, target, func(_, done int) bool { return done < seconds })
	if err != nil {
		return err
	}
	r.Add("async.accept_rps", rig.Median(rates), "requests/s", fmt.Sprintf("5 bytes each, from %d clients through the gateway, the median second of %d", senders, len(rates)))
	return nil
}

// execute fills the queue. It measures the rate of executing one request at a time, and
// then the rate with the default concurrency.
func execute(ctx context.Context, o rig.Options, r *report.Report, a Async) error {
	s, err := rig.NewSubject(a.Model)
	if err != nil {
		return err
	}
	defer s.Close()
	q, err := queue(ctx, o, s, a.SLO, 1)
	if err != nil {
		return err
	}
	defer func() { q.close() }()
	if err := q.fill(ctx, r, s, a.Queued); err != nil {
		return err
	}
	serial, err := q.executed(ctx, 5*time.Second)
	if err != nil {
		return err
	}
	q.Stop()
	if err := q.start(ctx, 0); err != nil {
		return err
	}
	batched, err := q.executedBatched(ctx, 5*time.Second)
	if err != nil {
		return err
	}
	r.Add("async.serial_rps", serial, "requests/s", "executed one at a time, as OpenFaaS's queue-worker does")
	r.Add("async.batched_rps", batched, "requests/s", "executed many at a time")
	r.Add("async.ratio_over_serial", batched/serial, "×", "")
	return nil
}

// senders is the number of clients of the gateway.
const senders = 64

// fill queues requests for the model until at least count have been accepted.
func (q *queued) fill(ctx context.Context, r *report.Report, s *rig.Subject, count int) error {
	fmt.Fprintf(q.options.Log, "queueing %d requests of %s through the gateway\n", count, s.Name)
	target, err := s.Target(q.gateway + "/async-function/" + rig.FunctionName)
	if err != nil {
		return err
	}
	rates, err := acceptedPerSecond(ctx, target, func(accepted, _ int) bool { return accepted < count })
	if err != nil {
		return err
	}
	r.Add("async.accept_model_rps", rig.Median(rates), "requests/s", fmt.Sprintf("%d bytes each, while the model executes one at a time; the median second of %d", len(target.Body(0)), len(rates)))
	return nil
}

// acceptedPerSecond loads a target for whole seconds and returns the rate of each. It stops
// when more returns false for the accepted requests and the seconds so far.
func acceptedPerSecond(ctx context.Context, target load.Target, more func(accepted, seconds int) bool) (rates []float64, err error) {
	for accepted := 0; more(accepted, len(rates)); {
		ran, err := load.RunClosed(ctx, target, senders, time.Second)
		if err != nil {
			return nil, err
		}
		if err := rig.AllGood(ran); err != nil {
			return nil, err
		}
		accepted += ran.Good
		rates = append(rates, ran.Achieved)
	}
	return rates, nil
}

// executed returns the requests/s that are answered during d.
func (q *queued) executed(ctx context.Context, d time.Duration) (float64, error) {
	before, err := q.answered(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := rig.Pause(ctx, d); err != nil {
		return 0, err
	}
	after, err := q.answered(ctx)
	return (after - before) / time.Since(began).Seconds(), err
}

// executedBatched waits until instances answer queued requests, and then measures like
// executed.
func (q *queued) executedBatched(ctx context.Context, d time.Duration) (float64, error) {
	const warmUp, patience = 3 * time.Second, 60 * time.Second
	for began := time.Now(); ; {
		n, err := q.answered(ctx)
		if err != nil {
			return 0, err
		}
		if n > 0 {
			break
		}
		if time.Since(began) > patience {
			return 0, fmt.Errorf("no queued request was executed within %v", patience)
		}
		if err := rig.Pause(ctx, 100*time.Millisecond); err != nil {
			return 0, err
		}
	}
	if err := rig.Pause(ctx, warmUp); err != nil {
		return 0, err
	}
	rate, err := q.executed(ctx, d)
	if err != nil {
		return 0, err
	}
	if left, err := q.waiting(ctx); err != nil || left == 0 {
		return 0, errors.Join(errors.New("the queue ran empty during the measurement; raise --queued"), err)
	}
	return rate, nil
}

// waiting returns the number of queued requests for the model.
func (q *queued) waiting(ctx context.Context) (int, error) {
	_, text, err := rig.Get(ctx, http.DefaultClient, q.URL+"/system/async")
	if err != nil {
		return 0, err
	}
	var status struct {
		Functions []struct {
			Name   string `json:"name"`
			Queued int    `json:"queued"`
		} `json:"functions"`
	}
	err = json.Unmarshal(text, &status)
	for _, f := range status.Functions {
		if f.Name == rig.FunctionName+".openfaas-fn" {
			return f.Queued, err
		}
	}
	return 0, err
}

// answered returns the number of the function's requests answered with status 200.
func (q *queued) answered(ctx context.Context) (float64, error) {
	return q.Metric(ctx, `faas_infer_requests_total{code="200",function="`+rig.FunctionName+`.openfaas-fn"}`)
}
