// Package attainment measures whether functions keep their objectives on this machine,
// compared with the best fixed setting under the same load. It starts real providers; it
// simulates nothing. Begin with [Run]; scenario.go has the loads, judge.go the criteria.
package attainment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
)

// Bench are the options of the bench.
type Bench struct {
	// Core is the CPU core of the server: provider, instances and their children. This
	// process has another (see [rig.PinCores]).
	Core int
	// Full selects all scenarios of [Full] instead of [covering].
	Full bool
	// Only, if set, is a regular expression. It selects the scenarios and the other
	// measurements by name.
	Only string
	// Policies, if there are some, are the batching policies to compare: each scenario is played with each of
	// them, and with no fixed settings.
	Policies []string
	// Seed is the seed of the arrival times.
	Seed uint64
	// Progress, if set, is called with the number of finished scenarios.
	Progress func(done, total int)
}

// The measurements besides scenarios.
const (
	firstAnswer = "first_answer"
	payloads    = "json"
	gateway     = "gateway"
)

// scenarios returns the selected scenarios. selected reports whether another measurement is
// selected.
func (b Bench) scenarios() (all []Scenario, selected func(name string) bool, err error) {
	all = covering()
	if b.Full {
		all = Full()
	}
	only, err := regexp.Compile(b.Only)
	if err != nil {
		return nil, nil, fmt.Errorf("--only %q: %w", b.Only, err)
	}
	all = slices.DeleteFunc(all, func(s Scenario) bool { return !only.MatchString(s.Name) })
	if len(all) == 0 && !slices.ContainsFunc([]string{firstAnswer, payloads, gateway}, only.MatchString) {
		return nil, nil, fmt.Errorf("--only %q: no scenario or measurement matches", b.Only)
	}
	return all, only.MatchString, nil
}

// Run measures the selected scenarios. The server has one core. Loads are proportional to
// the rate that one instance with the whole core answers within the objective.
func Run(ctx context.Context, o rig.Options, b Bench) (*report.Report, error) {
	all, selected, err := b.scenarios()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "faas-infer-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	m := &machine{o: o, b: b, report: report.New("bench attainment", time.Now()), subjects: map[string]*rig.Subject{}, capacities: map[string]float64{}}
	defer m.close()
	if selected(firstAnswer) {
		if err := m.firstAnswers(ctx, dir); err != nil {
			return nil, err
		}
	}
	if err := m.start(ctx, dir); err != nil {
		return nil, err
	}
	var totals totals
	for i, s := range all {
		if b.Progress != nil {
			b.Progress(i, len(all))
		}
		play := func() error { return m.scenario(ctx, s, &totals) }
		if len(b.Policies) > 0 {
			play = func() error { return m.compare(ctx, s) }
		}
		if err := play(); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	if b.Progress != nil {
		b.Progress(len(all), len(all))
	}
	totals.add(m.report)
	if selected(payloads) {
		err = m.payloads(ctx)
	}
	if selected(gateway) {
		if failed := m.gateway(ctx, dir); failed != nil { // Without the gateway, the other results still count.
			m.add("missing.gateway", 1, "", failed.Error())
		}
	}
	return m.report, err
}

// machine is the server under test with its measured capacities.
type machine struct {
	o      rig.Options
	b      Bench
	report *report.Report
	// server has the functions as users deploy them. fixed has those with a fixed
	// setting; its instances may have the whole core.
	server, fixed *rig.Deployed
	subjects      map[string]*rig.Subject
	// capacities are in requests/s, by function name.
	capacities map[string]float64
}

// start starts the two providers.
func (m *machine) start(ctx context.Context, dir string) error {
	prepared := filepath.Join(dir, "prepared")
	return rig.RunOnCore(m.b.Core, func() (err error) {
		if m.server, err = m.o.Provider(ctx, filepath.Join(dir, "server"), "--prepared", prepared); err == nil {
			m.fixed, err = m.o.Provider(ctx, filepath.Join(dir, "fixed"), "--prepared", prepared, "--cores", fmt.Sprint(m.b.Core), "--park=false")
		}
		return err
	})
}

func (m *machine) close() {
	for _, d := range []*rig.Deployed{m.server, m.fixed} {
		if d != nil {
			d.Stop()
		}
	}
	for _, s := range m.subjects {
		s.Close()
	}
}

// deploy deploys a function as users do, and removes it before if it exists.
func (m *machine) deploy(ctx context.Context, f Function, policy string, keepAlive time.Duration) error {
	if _, err := m.subject(ctx, f.Model); err != nil {
		return err
	}
	if err := m.server.Remove(ctx, f.name()); err != nil {
		return err
	}
	annotations := f.annotations()
	if keepAlive > 0 {
		annotations["com.openfaas.infer.keep-alive"] = keepAlive.String()
	}
	if policy != "" {
		annotations["com.openfaas.infer.policy"] = policy
	}
	return m.server.DeployFunction(ctx, rig.Function(f.name(), f.Model+":latest", annotations))
}

// errCannot means that a fixed setting cannot meet the objective.
var errCannot = errors.New("the setting does not meet the objective")

// fix deploys a function with a fixed number of instances of a fixed size, and waits for
// them.
func (m *machine) fix(ctx context.Context, f Function, s setting) error {
	count := fmt.Sprint(s.count)
	d := rig.Function(f.name(), f.Model+":latest", f.annotations())
	(*d.Annotations)["com.openfaas.scale.min"], (*d.Annotations)["com.openfaas.scale.max"] = count, count
	d.Limits = rig.CPU(fmt.Sprintf("%dm", s.cpu))
	d.Requests = d.Limits
	if err := errors.Join(m.fixed.Remove(ctx, f.name()), m.fixed.DeployFunction(ctx, d)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := m.fixed.Available(ctx, f.name(), uint64(s.count)); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return errCannot
		}
		return err
	}
	return nil
}

// startTimeout is how long instances of a fixed setting may take to start.
const startTimeout = 8 * time.Second

// firstAnswers times new models from their deployment to their first answer. The provider
// has all cores, and no profiles of the models or their operators.
func (m *machine) firstAnswers(ctx context.Context, dir string) error {
	dir = filepath.Join(dir, "first")
	err := rig.WithCore(m.b.Core, func() (err error) {
		// Models prepared by another run would shorten the first answer.
		m.server, err = m.o.Provider(ctx, dir, "--prepared", filepath.Join(dir, "prepared"))
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		m.server.Stop()
		m.server = nil
		for _, s := range m.subjects {
			s.Close()
		}
		clear(m.subjects)
	}()
	for _, model := range []string{"resnet-50", "bert-v1"} {
		f := Function{Model: model, Payload: Binary}
		if _, err := m.subject(ctx, model); err != nil {
			return err
		}
		t, err := m.target(ctx, f, m.server)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := m.deploy(ctx, f, "", 0); err != nil {
			return err
		}
		if _, err := rig.One(ctx, t); err != nil {
			return err
		}
		m.add("first_answer_s."+model, time.Since(began).Seconds(), "s", "from the deployment of a new model on a new machine; to reach: at most 5")
		if err := m.server.Remove(ctx, f.name()); err != nil {
			return err
		}
	}
	return nil
}

// capacity returns the requests/s that one instance with the whole core answers within the
// objective. It takes the best of several numbers of closed-loop clients, and reduces that
// to a Poisson rate.
func (m *machine) capacity(ctx context.Context, f Function) (float64, error) {
	if c, ok := m.capacities[f.name()]; ok {
		return c, nil
	}
	if err := m.profile(ctx, f); err != nil {
		return 0, err
	}
	if err := m.fix(ctx, f, setting{1000, 1}); err != nil {
		return 0, err
	}
	t, err := m.target(ctx, f, m.fixed)
	if err != nil {
		return 0, err
	}
	highest := 0.0
	for clients := 64; clients >= 1; clients /= 2 {
		r, err := load.RunClosed(ctx, t, clients, 1500*time.Millisecond)
		if err != nil {
			return 0, err
		}
		if within := r.Achieved * r.WithinSLO; within > highest {
			highest = within
		} else if within < 0.9*highest {
			break
		}
	}
	capacity, err := m.poissonRate(ctx, t, highest)
	if err != nil {
		return 0, err
	}
	m.capacities[f.name()] = capacity
	m.add("capacity_rps."+f.name(), capacity, "requests/s", fmt.Sprintf("come at random and %g %% are answered within %v, by one instance with the whole core", 100*enough, t.SLO))
	return capacity, m.fixed.Remove(ctx, f.name())
}

// poissonRate returns the highest Poisson rate that is answered within the objective, in
// tenths of the rate that closed-loop clients reached.
func (m *machine) poissonRate(ctx context.Context, t load.Target, closedLoop float64) (float64, error) {
	for tenths := 10.0; tenths > 0; tenths-- {
		t.Rate = closedLoop * tenths / 10
		r, err := load.Run(ctx, load.Options{Targets: []load.Target{t}, Duration: 3 * time.Second, Seed: m.b.Seed, MaxInFlight: 1 << 14, Timeout: 5 * time.Second})
		if err != nil {
			return 0, err
		}
		if r.Targets[0].WithinSLO >= enough {
			return t.Rate, nil
		}
	}
	return 0, fmt.Errorf("%s answers nothing within %v", t.Name, t.SLO)
}

// first deploys a function to the server, and waits for its first answer.
func (m *machine) first(ctx context.Context, f Function) (load.Target, error) {
	if err := m.deploy(ctx, f, "", 0); err != nil {
		return load.Target{}, err
	}
	t, err := m.target(ctx, f, m.server)
	if err == nil {
		_, err = rig.One(ctx, t)
	}
	return t, err
}

// profile waits until both providers have the full profile of a function's model. The fixed
// one gets a copy of the server's operator profiles, and measures a model without any.
func (m *machine) profile(ctx context.Context, f Function) error {
	t, err := m.first(ctx, f)
	if err != nil {
		return err
	}
	fmt.Fprintf(m.o.Log, "profiling %s\n", f.Model)
	for {
		provisional, err := m.server.FunctionMetric(ctx, "provisional_profile", f.name())
		if err != nil {
			return err
		}
		if provisional == 0 {
			break
		}
		if err := rig.Pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	if err := m.server.Remove(ctx, f.name()); err != nil {
		return err
	}
	rows, err := os.ReadFile(filepath.Join(m.server.State, operators.FileName))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.fixed.State, operators.FileName), rows, 0o644); err != nil {
		return err
	}
	if err := m.fixed.DeployFunction(ctx, rig.Function(f.name(), f.Model+":latest", f.annotations())); err != nil {
		return err
	}
	if t, err = m.target(ctx, f, m.fixed); err != nil {
		return err
	}
	_, err = rig.One(ctx, t)
	return errors.Join(err, m.fixed.Remove(ctx, f.name()))
}

// add adds a figure to the report and to the log.
func (m *machine) add(name string, value float64, unit, note string) {
	m.report.Add(name, value, unit, note)
	fmt.Fprintf(m.o.Log, "%s = %.4g %s\n", name, value, unit)
}

// payloads compares the capacity with JSON to that with binary tensors.
func (m *machine) payloads(ctx context.Context) error {
	json, err := m.capacity(ctx, Function{Model: "dssm", Payload: JSON})
	if err != nil {
		return err
	}
	binary, err := m.capacity(ctx, Function{Model: "dssm", Payload: Binary})
	if err != nil {
		return err
	}
	m.add("json.rps_ratio.over_binary", json/binary, "ratio", "dssm, of the capacities; to reach: at least 0.4")
	return nil
}

// gateway compares requests through the stock gateway, on the server's core, with direct
// ones.
func (m *machine) gateway(ctx context.Context, dir string) error {
	f := Function{Model: "dssm", Payload: Binary}
	t, err := m.first(ctx, f)
	if err != nil {
		return err
	}
	var url string
	var stop func()
	if err := rig.RunOnCore(m.b.Core, func() (err error) {
		url, stop, err = m.o.Gateway(ctx, strings.TrimPrefix(m.server.URL, "http://"), "", dir)
		return err
	}); err != nil {
		return fmt.Errorf("the stock gateway: %w", err)
	}
	defer stop()
	through := t
	through.URL = url + "/function/" + f.name()
	rates := map[string]float64{}
	for range 3 { // In turn.
		for way, t := range map[string]load.Target{"direct": t, "gateway": through} {
			r, err := load.RunClosed(ctx, t, 32, 2*time.Second)
			if err != nil {
				return err
			}
			rates[way] = max(rates[way], r.Achieved*r.WithinSLO)
		}
	}
	m.add("gateway.rps_ratio.over_direct", rates["gateway"]/rates["direct"], "ratio",
		fmt.Sprintf("dssm, binary, all on one core: %.0f against %.0f requests/s; to reach: at least 0.8", rates["gateway"], rates["direct"]))
	return nil
}
