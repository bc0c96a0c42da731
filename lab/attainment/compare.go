package attainment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// maxRate is a rate in requests/s that one core can send on schedule, with some reserve.
const maxRate = 2500

// scenario measures one scenario, with the functions as deployed and with fixed settings.
func (m *machine) scenario(ctx context.Context, s Scenario, t *totals) error {
	rates, err := m.rates(ctx, s)
	if err != nil {
		return err
	}
	ours, err := m.deployed(ctx, s, "", rates)
	if err != nil {
		return err
	}
	found, err := search(settings(s), func(of []setting) (outcome, error) {
		for i, f := range s.Functions {
			switch err := m.fix(ctx, f, of[i]); {
			case errors.Is(err, errCannot):
				return outcome{}, m.remove(ctx, s, m.fixed)
			case err != nil:
				return outcome{}, err
			}
		}
		o, err := m.play(ctx, s, rates, m.fixed)
		fmt.Fprintf(m.o.Log, "%s with %s: %.1f %% within, %.1f requests/s\n", s.Name, describe(of), 100*o.share(), o.goodput())
		return o, errors.Join(err, m.remove(ctx, s, m.fixed))
	})
	if err != nil {
		return err
	}
	if found.goodput == 0 {
		return errors.New("no fixed setting answers any request within the objectives: there is nothing to compare with")
	}
	m.addScenario(s, ours, found)
	t.take(s, ours, found)
	return nil
}

// rates are the highest loads of a scenario's functions, in requests/s.
func (m *machine) rates(ctx context.Context, s Scenario) ([]float64, error) {
	rates := make([]float64, len(s.Functions))
	for i, f := range s.Functions {
		capacity, err := m.capacity(ctx, f)
		if err != nil {
			return nil, err
		}
		rates[i] = min(f.Peak*capacity, maxRate)
	}
	return rates, nil
}

// deployed plays a scenario with its functions as users deploy them, with a policy or the default, "".
func (m *machine) deployed(ctx context.Context, s Scenario, policy string, rates []float64) (outcome, error) {
	for _, f := range s.Functions {
		if err := m.deploy(ctx, f, policy, s.KeepAlive); err != nil {
			return outcome{}, err
		}
	}
	ours, err := m.play(ctx, s, rates, m.server)
	if err != nil {
		return outcome{}, err
	}
	fmt.Fprintf(m.o.Log, "%s: %d %% within by second\n", s.Name, ours.bySecond)
	return ours, m.remove(ctx, s, m.server)
}

// compare measures one scenario with each of the policies.
func (m *machine) compare(ctx context.Context, s Scenario) error {
	rates, err := m.rates(ctx, s)
	if err != nil {
		return err
	}
	for _, policy := range m.b.Policies {
		o, err := m.deployed(ctx, s, policy, rates)
		if err != nil {
			return err
		}
		name := s.Name + "." + policy
		m.add("within_slo_pct."+name, 100*o.share(), "%", fmt.Sprintf("of %d requests", o.requests))
		m.add("median_ms."+name, float64(o.median)/float64(time.Millisecond), "ms", "latency")
		m.add("cores."+name, o.cores, "cores", "held by instances on average")
		m.add("cpu_ms_per_answer."+name, 1000*o.used/max(o.goodput(), 1e-9), "ms", "CPU time of instances for each answer within the objective")
	}
	return nil
}

// remove removes a scenario's functions.
func (m *machine) remove(ctx context.Context, s Scenario, at *rig.Deployed) error {
	for _, f := range s.Functions {
		if err := at.Remove(ctx, f.name()); err != nil {
			return err
		}
	}
	return nil
}

// addScenario adds a scenario's figures.
func (m *machine) addScenario(s Scenario, ours outcome, found best) {
	m.add("within_slo_pct."+s.Name, 100*ours.share(), "%", fmt.Sprintf("of %d requests", ours.requests))
	m.add("goodput_over_best."+s.Name, ours.goodput()/found.goodput, "ratio", fmt.Sprintf("%.1f requests/s; the best fixed setting, %s, has %.1f", ours.goodput(), describe(found.fastest), found.goodput))
	m.add("cores."+s.Name, ours.cores, "cores", "held by instances on average")
	m.add("cores_over_best."+s.Name, ours.cores/(float64(millicores(found.leanest))/1000), "ratio", fmt.Sprintf("%s has as much goodput as the best with the fewest cores", describe(found.leanest)))
	m.add("settle_s."+s.Name, ours.settle.Seconds(), "s", fmt.Sprintf("from a change to the end of the last second with less than %g %% within", 100*well))
}

func describe(of []setting) string {
	var parts []string
	for _, s := range of {
		parts = append(parts, fmt.Sprintf("%d × %dm", s.count, s.cpu))
	}
	return strings.Join(parts, " + ")
}

// play sends a scenario's requests to the functions of a provider and judges the answers.
func (m *machine) play(ctx context.Context, s Scenario, rates []float64, at *rig.Deployed) (outcome, error) {
	targets := make([]load.Target, len(s.Functions))
	slo := make([]time.Duration, len(s.Functions))
	for i, f := range s.Functions {
		var err error
		if targets[i], err = m.target(ctx, f, at); err != nil {
			return outcome{}, err
		}
		targets[i].Rate, targets[i].Shape, slo[i] = rates[i], s.Shape, objectives[f.Model]
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	disturbed := make(chan error, 1)
	go func() { disturbed <- m.disturb(ctx, s, at) }()
	means := make(chan [2]float64, 1)
	go func() { means <- m.meanCores(ctx, s, at) }()
	var seen []load.Observed
	_, err := load.Run(ctx, load.Options{Targets: targets, Duration: s.Length, Seed: m.b.Seed, MaxInFlight: 1 << 14, Timeout: 5 * time.Second,
		Observe: func(o load.Observed) { seen = append(seen, o) }})
	stop()
	if failed := <-disturbed; err == nil {
		err = failed
	}
	o := judge(s, slo, seen)
	mean := <-means
	o.cores, o.used = mean[0], mean[1]
	return o, err
}

// meanCores returns the cores that the functions' instances hold, and those that they use, on
// average while requests count. It looks once a second until ctx ends.
func (m *machine) meanCores(ctx context.Context, s Scenario, at *rig.Deployed) (mean [2]float64) {
	const look = time.Second
	n := 0
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			for i := range mean {
				mean[i] /= max(1, float64(n))
			}
			return mean
		case <-time.After(look):
		}
		now := time.Since(began)
		if now >= s.Length || !s.counts(now) {
			continue
		}
		n++
		for _, f := range s.Functions {
			for i, name := range []string{"allocated_cpu_cores", "used_cpu_cores"} {
				if cores, err := at.FunctionMetric(ctx, name, f.name()); err == nil {
					mean[i] += cores
				}
			}
		}
	}
}

// newModel is the model without a profile that is deployed beside others.
const newModel = "mobilenet"

// disturb deploys the new model or takes the cores, as the scenario says, until ctx ends.
func (m *machine) disturb(ctx context.Context, s Scenario, at *rig.Deployed) error {
	if s.Beside == nothing {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(grace):
	}
	if s.Beside == deploying {
		if _, err := m.subject(ctx, newModel); err != nil {
			return err
		}
		if err := at.DeployFunction(ctx, rig.Function("new", newModel+":latest", map[string]string{
			"com.openfaas.slo.latency": "200ms"})); err != nil && ctx.Err() == nil {
			return err
		}
		<-ctx.Done()
		return at.Remove(context.WithoutCancel(ctx), "new")
	}
	for _, here := range []bool{true, false} {
		var loop *rig.Child
		start := func() (err error) { loop, err = m.o.Start("bench", "spin"); return err }
		var err error
		if here {
			err = start()
		} else {
			err = rig.RunOnCore(m.b.Core, start)
		}
		if err != nil {
			return err
		}
		defer loop.Stop()
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
	}
	return nil
}

// totals collects the figures of all scenarios.
type totals struct {
	within, overBest, coresOverBest, overload, deploying []float64
	settle                                               time.Duration
}

func (t *totals) take(s Scenario, ours outcome, found best) {
	ratio := ours.goodput() / found.goodput
	t.overBest = append(t.overBest, ratio)
	if s.overloaded() {
		t.overload = append(t.overload, ratio)
		return
	}
	t.within = append(t.within, 100*ours.share())
	t.coresOverBest = append(t.coresOverBest, ours.cores/(float64(millicores(found.leanest))/1000))
	t.settle = max(t.settle, ours.settle)
	if s.Beside == deploying {
		t.deploying = append(t.deploying, 100*ours.share())
	}
}

func (t *totals) add(r *report.Report) {
	put := func(name string, values []float64, of func([]float64) float64, unit, aim string) {
		if len(values) > 0 {
			r.Add(name, of(values), unit, "to reach: "+aim)
		}
	}
	put("within_slo_pct.worst", t.within, worst, "%", "at least 97, of scenarios within capacity")
	put("within_slo_pct.mean", t.within, mean, "%", "at least 99")
	put("goodput_over_best.mean", t.overBest, mean, "ratio", "at least 0.92")
	put("goodput_over_best.worst", t.overBest, worst, "ratio", "at least 0.8")
	put("cores_over_best.mean", t.coresOverBest, mean, "ratio", "at most 1.3")
	put("overload.goodput_over_best", t.overload, worst, "ratio", "at least 0.9 at twice the capacity")
	put("deploying.within_slo_pct", t.deploying, worst, "%", "at least 98")
	if len(t.within) > 0 {
		r.Add("settle_s.worst", t.settle.Seconds(), "s", "to reach: at most 3")
	}
}

func worst(values []float64) float64 {
	least := math.Inf(1)
	for _, v := range values {
		least = min(least, v)
	}
	return least
}

func mean(values []float64) (sum float64) {
	for _, v := range values {
		sum += v / float64(len(values))
	}
	return sum
}
