// Package interference measures how soon a provider notices that something interferes with an
// instance, and how soon the requests are within their objective again. The interference is a
// real-time process on the instance's core (seize.go), which also outranks the cgroups of
// instances. Begin with [Run].
package interference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/provider"
)

// Bench are the options of the bench.
type Bench struct {
	// Model is an architecture of the zoo, SLO its objective and Rate the requests per second
	// that come at random to an instance with one core.
	Model string
	SLO   time.Duration
	Rate  float64
	// Calm is how long requests come before and after the interference, Disturbed how long it
	// lasts. Share is the part of the core that it takes.
	Calm, Disturbed time.Duration
	Share           float64
}

// trial is a situation in which the instance is disturbed.
type trial struct {
	name, note string
	// cpu is the CPU share of the instance and rate the part of the bench's rate. alone:
	// instances may use the disturbed core only.
	cpu   string
	rate  float64
	alone bool
}

var trials = []trial{
	{"moved", "the instance has a core to itself, another is free", "1", 1, false},
	{"shared", "the instance has three quarters of a core and shares all cores", "750m", 0.7, false},
	{"stuck", "instances may use the disturbed core only, so none can be moved", "1", 1, true},
}

// Run disturbs an instance in each situation.
func Run(ctx context.Context, o rig.Options, b Bench) (*report.Report, error) {
	if b.Calm < 10*time.Second || b.Disturbed < 5*time.Second || b.Rate <= 0 || b.SLO <= 0 || b.Share <= 0 || b.Share > 0.9 {
		return nil, errors.New("--calm must be at least 10s, --disturbed 5s, --rate and --slo above 0, and --share from 0 to 0.9")
	}
	dir, err := os.MkdirTemp("", "faas-infer-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	subject, err := rig.NewSubject(b.Model)
	if err != nil {
		return nil, err
	}
	defer subject.Close()
	r := report.New("bench interference", time.Now())
	for _, t := range trials {
		fmt.Fprintf(o.Log, "%s: %s\n", t.name, t.note)
		seen, err := b.run(ctx, o, subject, dir, t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		seen.add(r, t)
	}
	return r, nil
}

// run starts a provider, loads its one instance, and disturbs it.
func (b Bench) run(ctx context.Context, o rig.Options, subject *rig.Subject, dir string, t trial) (*outcome, error) {
	arguments := []string{"--prepared", filepath.Join(dir, "prepared")}
	if t.alone {
		arguments = append(arguments, "--cores", "0")
	}
	d, err := o.Provider(ctx, filepath.Join(dir, t.name), arguments...)
	if err != nil {
		return nil, err
	}
	defer d.Stop()
	if err := d.Bundle(subject, "subject:latest"); err != nil {
		return nil, err
	}
	f := rig.Function(rig.FunctionName, "subject:latest", map[string]string{"com.openfaas.slo.latency": b.SLO.String(), "com.openfaas.infer.max-batch": "1"})
	f.Labels = &map[string]string{"com.openfaas.scale.max": "1", "com.openfaas.scale.min": "1"}
	f.Limits, f.Requests = rig.CPU(t.cpu), rig.CPU(t.cpu)
	if err := d.DeployFunction(ctx, f); err != nil {
		return nil, err
	}
	target, err := subject.Target(d.URL + "/function/" + rig.FunctionName)
	if err != nil {
		return nil, err
	}
	if _, err := rig.One(ctx, target); err != nil {
		return nil, err
	}
	target.Rate, target.SLO, target.Arrivals = b.Rate*t.rate, b.SLO, load.Poisson
	return b.disturb(ctx, o, d, target)
}

// disturb sends requests, and disturbs the instance after the first part of them.
func (b Bench) disturb(ctx context.Context, o rig.Options, d *rig.Deployed, target load.Target) (*outcome, error) {
	seen := &outcome{slo: b.SLO, lasts: b.Disturbed}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began, failed := time.Now(), make(chan error, 1)
	go func() { failed <- b.interfere(ctx, o, d, began, seen) }()
	ran, err := load.Run(ctx, load.Options{Targets: []load.Target{target}, Duration: 2*b.Calm + b.Disturbed, Observe: func(one load.Observed) { seen.requests = append(seen.requests, one) }})
	if err := errors.Join(err, <-failed); err != nil {
		return nil, err
	}
	seen.from -= ran.Began.Sub(began)
	seen.late = ran.Targets[0].Lag.P99
	return seen, nil
}

// interfere waits for the first part of the load, disturbs the instance, and notes when the
// provider sees it.
func (b Bench) interfere(ctx context.Context, o rig.Options, d *rig.Deployed, began time.Time, seen *outcome) error {
	if err := rig.Pause(ctx, b.Calm); err != nil {
		return err
	}
	state, err := stateOf(ctx, d)
	if err != nil {
		return err
	}
	if seen.early = state == "interfered"; seen.early {
		fmt.Fprintln(o.Log, "the instance is interfered with before the bench disturbs it: is the machine busy?")
	}
	core, err := coreOf(d.State)
	if err != nil {
		return err
	}
	from := time.Now()
	seen.from = from.Sub(began)
	child, err := o.Start("bench", "seize", "--core", fmt.Sprint(core), "--share", fmt.Sprint(b.Share), "--for", b.Disturbed.String())
	if err != nil {
		return err
	}
	defer child.Stop()
	for seen.detected == 0 && time.Since(from) < b.Disturbed {
		if state, err = stateOf(ctx, d); err != nil {
			return err
		}
		if state == "interfered" {
			seen.detected = time.Since(from)
		}
		if err := rig.Pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return child.Wait()
}

// stateOf asks the provider for the state of the function's only variant.
func stateOf(ctx context.Context, d *rig.Deployed) (string, error) {
	status, text, err := rig.Get(ctx, http.DefaultClient, d.URL+"/system/variants/"+rig.FunctionName)
	if err != nil {
		return "", err
	}
	var all []provider.Variant
	if err := json.Unmarshal(text, &all); status != http.StatusOK || err != nil || len(all) != 1 {
		return "", fmt.Errorf("GET /system/variants: %d %s", status, text)
	}
	return all[0].State, nil
}
