package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// models are the zoo's models that the functions serve, those of the demo.
var models = []string{"mnist", "dssm"}

// Recovery are the options of [RunRecovery]: three phases under one steady load.
type Recovery struct {
	// Rate is the load of each function in requests/s, SLO its objective.
	Rate float64
	SLO  time.Duration
	// Before, Busy and After are the lengths of the phases. In Busy, Loops processes
	// only compute.
	Before, Busy, After time.Duration
	Loops               int
	// Window is the period of one row of the result.
	Window time.Duration
}

// Check returns an error that names the first invalid option.
func (b Recovery) Check() error {
	switch {
	case !(b.Rate > 0):
		return fmt.Errorf("--rate %v: it must be a number of requests per second above 0", b.Rate)
	case b.SLO <= 0:
		return fmt.Errorf("--slo %v: it must be above 0", b.SLO)
	case b.Loops < 1:
		return fmt.Errorf("--loops %d: it must be at least 1", b.Loops)
	case b.Window < time.Second:
		return fmt.Errorf("--window %v: it must be at least 1s", b.Window)
	case b.Before < time.Second, b.Busy < time.Second:
		return fmt.Errorf("--before %v and --busy %v: both must be at least 1s", b.Before, b.Busy)
	case b.After < steady*time.Second:
		return fmt.Errorf("--after %v: it must be at least %ds, the time of good answers that counts as recovered", b.After, steady)
	}
	return nil
}

// RunRecovery starts a provider, deploys the functions, loads them, and disturbs them.
func RunRecovery(ctx context.Context, o rig.Options, b Recovery) (*report.Report, error) {
	if err := b.Check(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "faas-infer-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	d, err := o.Provider(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer d.Stop()
	targets, err := b.deploy(ctx, o, d)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Log, "loading them for %v; after %v, %d processes compute for %v\n", b.Before+b.Busy+b.After, b.Before, b.Loops, b.Busy)
	seen := newHistory(len(targets), b.SLO)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	began := time.Now()
	var ended time.Duration
	disturbed := make(chan error, 1)
	go func() {
		err := b.disturb(ctx, o)
		if ended = time.Since(began); err != nil {
			stop() // Without the disturbance there is no result.
		}
		disturbed <- err
	}()
	ran, err := load.Run(ctx, load.Options{Targets: targets, Duration: b.Before + b.Busy + b.After, Seed: 1, Progress: o.Log, Observe: seen.observe})
	if err != nil {
		stop() // There is no load left to disturb.
	}
	if failed := errors.Join(<-disturbed, err); failed != nil {
		return nil, failed
	}
	r := report.New("bench recovery", time.Now())
	b.add(r, seen, ended)
	for _, t := range ran.Targets {
		note := "how late the load itself was, part of the latencies"
		if t.FirstError != nil {
			note += "; the first error: " + t.FirstError.Error()
		}
		r.Add(t.Name+".send_lag.p99_ms", rig.Milliseconds(t.Lag.P99), "ms", note)
	}
	return r, nil
}

// deploy deploys the functions, waits for their first answers, and returns their loads.
func (b Recovery) deploy(ctx context.Context, o rig.Options, d *rig.Deployed) (targets []load.Target, err error) {
	for _, name := range models {
		fmt.Fprintf(o.Log, "deploying %s and measuring it\n", name)
		s, err := rig.NewSubject(name)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if err := d.Bundle(s, name+":latest"); err != nil {
			return nil, err
		}
		if err := d.Deploy(ctx, name, name+":latest", b.SLO); err != nil {
			return nil, err
		}
		t, err := s.Target(d.URL + "/function/" + name)
		if err != nil {
			return nil, err
		}
		// The first answer comes when the model has been measured.
		if _, err := rig.One(ctx, t); err != nil {
			return nil, err
		}
		t.Rate, t.Arrivals, t.SLO = b.Rate, load.Poisson, b.SLO
		targets = append(targets, t)
	}
	return targets, nil
}

// disturb runs the loops in their phase, and returns when they have stopped.
func (b Recovery) disturb(ctx context.Context, o rig.Options) error {
	if pause(ctx, b.Before) != nil {
		return nil // The load has failed and reports the error.
	}
	var loops []*rig.Child
	defer func() {
		for _, l := range loops {
			l.Stop()
		}
	}()
	for range b.Loops {
		l, err := o.Start("bench", "spin")
		if err != nil {
			return err
		}
		loops = append(loops, l)
	}
	_ = pause(ctx, b.Busy) // As above.
	for _, l := range loops {
		select {
		case <-l.Exited():
			return fmt.Errorf("a disturbing process has exited: %v", l.ProcessState)
		default:
		}
	}
	return nil
}

// Spin computes on one core until ctx ends.
func Spin(ctx context.Context) {
	for ctx.Err() == nil {
		for range 1 << 20 {
		}
	}
}
