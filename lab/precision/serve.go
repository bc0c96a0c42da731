package precision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/python/quantise"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/profiler"
)

// Serve are the options of [RunServe].
type Serve struct {
	// Models are architectures of [Served].
	Models []string
	// Rounds is how often the two variants are measured in turn, Trial how long each time.
	Rounds int
	Trial  time.Duration
	// Profiling is how long to wait for the full profile of each model at most.
	Profiling time.Duration
	// Core is the CPU core of the instance. This process has another (see [rig.PinCores]).
	Core int
}

// setup is how a model is served: its objective, and the largest batch.
type setup struct {
	objective time.Duration
	maxBatch  int
}

// setups are those of the models. Some batches of fp32 meet each objective.
var setups = map[string]setup{
	"resnet-50": {time.Second, 8}, "mobilenet": {200 * time.Millisecond, 8}, "bert-v1": {4 * time.Second, 8}, "dssm": {50 * time.Millisecond, 32},
}

// Served lists the architectures that [RunServe] can measure.
func Served() []string { return []string{"resnet-50", "mobilenet", "bert-v1", "dssm"} }

// RunServe compares the rates that an instance of an int8 model and one of its original serve
// within the objective, and that with the rates of the engine alone. The instance has a core to
// itself; the provider and the load share the other. Both variants are measured in turn, and the
// medians are compared.
func RunServe(ctx context.Context, o rig.Options, b Serve) (*report.Report, error) {
	for _, m := range b.Models {
		if _, ok := setups[m]; !ok {
			return nil, fmt.Errorf("--models %s: it must be some of %s", m, strings.Join(Served(), ", "))
		}
	}
	if len(b.Models) == 0 || b.Rounds < 1 || b.Trial < 100*time.Millisecond {
		return nil, errors.New("--models must name a model, --rounds must be at least 1, and --trial at least 100ms")
	}
	dir, err := os.MkdirTemp("", "faas-infer-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := report.New(fmt.Sprintf("bench int8 --rounds %d --trial %v", b.Rounds, b.Trial), time.Now())
	for _, name := range b.Models {
		if err := b.serve(ctx, o, r, filepath.Join(dir, name), name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r, nil
}

// serve measures one model.
func (b Serve) serve(ctx context.Context, o rig.Options, r *report.Report, dir, name string) error {
	s, err := newSubject(ctx, o, name, setups[name].objective, setups[name].maxBatch)
	if err != nil {
		return err
	}
	defer s.Close()
	engine, way, err := b.engine(ctx, o, s)
	if err != nil {
		return err
	}
	at, err := o.Provider(ctx, dir, "--prepared", filepath.Join(dir, "prepared"), "--cores", fmt.Sprint(b.Core), "--park=false")
	if err != nil {
		return err
	}
	defer at.Stop()
	if err := s.bundles(at, way); err != nil {
		return err
	}
	ours, err := b.rates(ctx, o, s, at)
	if err != nil {
		return err
	}
	add(r, name, way.Way, engine, ours)
	return nil
}

// engine measures the engine's rates on the instance's core. Of the int8 forms it takes the one
// that is the fastest in the first round.
func (b Serve) engine(ctx context.Context, o rig.Options, s *subject) (rates, quantise.Made, error) {
	best, found := s.made[0], rates{}
	for _, m := range s.made {
		rate, err := b.alone(ctx, o, s, m.File, m.Way)
		if err != nil {
			return nil, best, err
		}
		if len(found[quantised]) == 0 || rate > found[quantised][0] {
			best, found[quantised] = m, []float64{rate}
		}
	}
	for round := range b.Rounds {
		for _, variant := range inTurn(round) {
			if len(found[variant]) > round {
				continue // It is known from the choice.
			}
			rate, err := b.alone(ctx, o, s, s.files(best)[variant], variant)
			if err != nil {
				return nil, best, err
			}
			found[variant] = append(found[variant], rate)
		}
	}
	return found, best, nil
}

// alone measures the engine's highest rate with one file, which is called what.
func (b Serve) alone(ctx context.Context, o rig.Options, s *subject, file, what string) (rate float64, err error) {
	var p *profiler.Profile
	err = rig.RunOnCore(b.Core, func() (err error) {
		_, p, err = o.Models.Measure(ctx, file, s.maxBatch, s.objective)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure %s: %w", what, err)
	}
	rate = highest(p.Measurements, s.objective)
	if rate == 0 {
		return 0, fmt.Errorf("one request of %s takes more than half of the objective of %v", what, s.objective)
	}
	fmt.Fprintf(o.Log, "%s %s: the engine alone %.4g requests/s\n", s.Name, what, rate)
	return rate, nil
}

// rates measures the variants through the provider.
func (b Serve) rates(ctx context.Context, o rig.Options, s *subject, at *rig.Deployed) (rates, error) {
	t, err := s.target(at)
	if err != nil {
		return nil, err
	}
	for _, variant := range []string{original, quantised} { // Its times are found without a limit on its instances.
		fmt.Fprintf(o.Log, "%s: profiling %s\n", s.Name, variant)
		if err := at.DeployFunction(ctx, rig.Function(rig.FunctionName, variant+":latest", s.annotations())); err != nil {
			return nil, err
		}
		if _, err := rig.One(ctx, t); err != nil {
			return nil, err
		}
		if err := errors.Join(at.AwaitProfile(ctx, o.Log, b.Profiling), at.Remove(ctx, rig.FunctionName)); err != nil {
			return nil, err
		}
	}
	found, clients := rates{}, map[string]int{}
	for round := range b.Rounds {
		for _, variant := range inTurn(round) {
			if err := fix(ctx, s, at, variant); err != nil {
				return nil, err
			}
			if clients[variant] == 0 {
				if clients[variant], err = b.saturating(ctx, t); err != nil {
					return nil, err
				}
			}
			rate, err := b.within(ctx, t, clients[variant])
			if err := errors.Join(err, at.Remove(ctx, rig.FunctionName)); err != nil {
				return nil, err
			}
			fmt.Fprintf(o.Log, "%s %s: %.1f requests/s with %d clients\n", s.Name, variant, rate, clients[variant])
			found[variant] = append(found[variant], rate)
		}
	}
	return found, nil
}

// fix deploys a variant with one instance that has a whole core, and waits for it.
func fix(ctx context.Context, s *subject, at *rig.Deployed, variant string) error {
	f := rig.Function(rig.FunctionName, variant+":latest", s.annotations("com.openfaas.scale.min", "1", "com.openfaas.scale.max", "1"))
	f.Limits, f.Requests = rig.CPU("1"), rig.CPU("1")
	return errors.Join(at.DeployFunction(ctx, f), at.Available(ctx, rig.FunctionName, 1))
}

// maxClients is the highest number of clients to try.
const maxClients = 256

// saturating returns the number of clients, a power of 2, with the highest rate within the
// objective.
func (b Serve) saturating(ctx context.Context, t load.Target) (best int, err error) {
	top := 0.0
	for clients := 1; clients <= maxClients; clients *= 2 {
		rate, err := b.within(ctx, t, clients)
		if err != nil {
			return 0, err
		}
		if rate > top {
			best, top = clients, rate
		}
		if rate < top/2 {
			break
		}
	}
	if best == 0 {
		return 0, fmt.Errorf("no request is answered within %v", t.SLO)
	}
	return best, nil
}

// within returns the rate of answers within the objective that a number of clients get.
func (b Serve) within(ctx context.Context, t load.Target, clients int) (float64, error) {
	ran, err := load.RunClosed(ctx, t, clients, b.Trial)
	if err != nil {
		return 0, err
	}
	return ran.WithinSLO * float64(ran.Requests) / b.elapsed(ran).Seconds(), nil
}

// elapsed is how long a run took until its last answer.
func (b Serve) elapsed(ran *load.TargetResult) time.Duration {
	return time.Duration(float64(ran.Requests) / ran.Offered * float64(time.Second))
}

// inTurn is the order of the variants in a round: A B, then B A.
func inTurn(round int) []string {
	order := []string{original, quantised}
	if round%2 == 1 {
		slices.Reverse(order)
	}
	return order
}
