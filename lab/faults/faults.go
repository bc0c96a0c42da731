// Package faults puts a load on a provider behind the stock gateway, brings one fault after
// the other, and says what became of every request and what is left behind. It mends
// nothing and sends no requests itself: command/load does. Begin reading at Run;
// catalogue.go has the faults, and check.go, which is pure, judges the histories.
package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// Bench is what is asked.
type Bench struct {
	// Seed settles when requests come and what faults hit; Repeat is how often each fault
	// is brought.
	Seed   uint64
	Repeat int
	// Only names the faults, all if empty.
	Only []string
	// SLO is the objective of the models, and what the ordinary function is held to.
	SLO time.Duration
	// Rate is how many requests each function gets, in requests/s; 0 for half of what
	// the three carry together. Async is the share that is to be answered later.
	Rate, Async float64
	// After is how long the load goes on after a fault.
	After time.Duration
	// Cores is how many processes take the cores.
	Cores int
	// Soak, if above 0, is how long a steady and a changing load run in the place of faults.
	Soak time.Duration
	// History, if set, is the file that every request is written to, a line of JSON each.
	History string
	// Progress, if set, is told how many runs are done.
	Progress func(done, total int)
}

// Check is an error that names the first option that makes no sense.
func (b Bench) Check() error {
	switch {
	case b.Repeat < 1:
		return fmt.Errorf("--repeat is %d: it must be at least 1", b.Repeat)
	case b.SLO < time.Millisecond:
		return fmt.Errorf("--slo is %v: it must be at least 1ms", b.SLO)
	case !(b.Rate >= 0):
		return fmt.Errorf("--rate is %v: it must be a number of requests/s, or 0 for half of what is carried", b.Rate)
	case !(b.Async >= 0 && b.Async < 1):
		return fmt.Errorf("--async is %v: it must be from 0 up to, but not including, 1", b.Async)
	case b.After < time.Second:
		return fmt.Errorf("--after is %v: it must be at least 1s", b.After)
	case b.Soak < 0 || b.Soak > 0 && b.Soak < leastSoak:
		return fmt.Errorf("--soak is %v: it must be at least %v", b.Soak, leastSoak)
	case b.Soak > 0 && len(b.Only) > 0:
		return errors.New("--only is given with --soak, which brings no faults: leave one of them out")
	}
	_, err := chosen(b.Only)
	return err
}

const (
	// calm is how long the load runs before the fault.
	calm = 3 * time.Second
	// wellWithin is how long functions may take to be well again before a run.
	wellWithin = 30 * time.Second
)

// bench is one run of Run.
type bench struct {
	Bench
	o         rig.Options
	world     *world
	functions []*function
	callbacks *callbacks
	// rates are in requests/s, by function.
	rates   []float64
	history io.Writer
	// runs counts all runs. The next one is not to suffer from the last if that has spoilt
	// the world.
	runs   int
	spoilt bool
	lags   []time.Duration
}

// Run deploys three functions, measures what load they carry, and brings the faults, or
// has them soak. It must be kept by a [Keep].
func Run(ctx context.Context, o rig.Options, b Bench) (_ *report.Report, err error) {
	if err := b.Check(); err != nil {
		return nil, err
	}
	u := &bench{Bench: b, o: o, history: io.Discard}
	if b.History != "" {
		file, err := os.Create(b.History)
		if err != nil {
			return nil, fmt.Errorf("--history: %w", err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		u.history = file
	}
	if u.callbacks, err = newCallbacks(); err != nil {
		return nil, err
	}
	defer u.callbacks.close()
	if u.world, err = newWorld(ctx, o, os.Getenv(dirEnv)); err != nil {
		return nil, err
	}
	defer u.world.close()
	if err := u.deploy(ctx); err != nil {
		return nil, err
	}
	name := "bench faults"
	if b.Soak > 0 {
		name += " --soak " + b.Soak.String()
	}
	r := report.New(name, time.Now())
	if err := u.measure(ctx, r); err != nil {
		return nil, err
	}
	if b.Soak > 0 {
		err = u.soak(ctx, r)
	} else {
		err = u.all(ctx, r)
	}
	return r, err
}

// deploy makes the functions ready to answer, and learns the right answers.
func (u *bench) deploy(ctx context.Context) error {
	functions, known, err := makeFunctions(u.world.now(), u.world.dir, u.SLO, u.Seed)
	if err != nil {
		return err
	}
	for _, f := range functions {
		fmt.Fprintf(u.o.Log, "deploying %s\n", f.name)
		if err := u.world.now().DeployFunction(ctx, f.deployment); err != nil {
			return err
		}
	}
	if err := known.learn(ctx, u.world.answerOf(functions[0], 2*time.Minute)); err != nil {
		return err
	}
	u.functions = functions
	// While models are measured in the background, they are slower. On a busy machine that
	// takes long.
	for deadline := time.Now().Add(5 * time.Second); ; {
		provisional := 0.0
		for _, f := range functions[:2] {
			p, err := u.world.now().FunctionMetric(ctx, "provisional_profile", f.name)
			if err != nil {
				return err
			}
			provisional += p
		}
		if provisional == 0 || time.Now().After(deadline) {
			break
		}
		if err := rig.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return u.world.awaitWell(ctx, u.functions, u.SLO, 2*time.Minute)
}

// sources adds the functions' loads to a recorder, with their requests to be answered at
// once and later. shape is the part of the rate at a time, nil for all of it.
func (u *bench) sources(r *recorder, rates []float64, shape func(at time.Duration) float64) (first int, targets []load.Target) {
	first = -1
	for i, f := range u.functions {
		for _, async := range []bool{false, true} {
			s := source{function: f, async: async, step: 2, slo: u.SLO, bound: u.SLO + beyond}
			t := load.Target{URL: u.world.gateway + "/function/" + f.name, Rate: rates[i] * (1 - u.Async), Arrivals: load.Poisson, SLO: u.SLO, Shape: shape}
			if async {
				s.first, t.URL, t.Rate = 1, u.world.gateway+"/async-function/"+f.name, rates[i]*u.Async
			}
			if t.Rate <= 0 {
				continue
			}
			if id := r.add(s, &t); first < 0 {
				first = id
			}
			targets = append(targets, t)
		}
	}
	return first, targets
}

// measure settles the rates: half of what the functions carry together. Each is measured
// alone by clients that wait for their answers, and then all together, with as much less
// as it takes for 95 % to be within the objective.
func (u *bench) measure(ctx context.Context, r *report.Report) error {
	u.rates = slices.Repeat([]float64{u.Rate}, len(u.functions))
	if u.Rate > 0 {
		return nil
	}
	fmt.Fprintln(u.o.Log, "measuring what load the functions carry")
	for i, f := range u.functions {
		t := load.Target{Name: f.name, URL: u.world.gateway + "/function/" + f.name, Header: f.header, Body: f.body, SLO: u.SLO}
		for _, clients := range []int{4, 16} {
			ran, err := load.RunClosed(ctx, t, clients, 700*time.Millisecond)
			if err != nil {
				return err
			}
			u.rates[i] = max(u.rates[i], ran.Achieved*ran.WithinSLO)
		}
		if u.rates[i] == 0 {
			return fmt.Errorf("%s answers nothing within %v: give a larger --slo, or a --rate", f.name, u.SLO)
		}
	}
	const steps, well = 8, 0.95
	for step := steps; step > 0; step-- {
		rates := slices.Clone(u.rates)
		for i := range rates {
			rates[i] *= float64(step) / steps / float64(len(rates))
		}
		_, targets := u.sources(u.callbacks.record(0), rates, nil)
		ran, err := load.Run(ctx, load.Options{Targets: targets, Duration: 1500 * time.Millisecond, Seed: u.Seed, MaxInFlight: maxInFlight, Timeout: timeout})
		if err != nil {
			return err
		}
		if step > 1 && slices.ContainsFunc(ran.Targets, func(t load.TargetResult) bool { return t.WithinSLO < well }) {
			continue
		}
		for i, f := range u.functions {
			u.rates[i] = rates[i] / 2
			r.Add("load_rps."+f.name, u.rates[i], "requests/s", fmt.Sprintf("half of what the functions carry together within %v", u.SLO))
		}
		break
	}
	return nil
}

// all brings the faults that are chosen.
func (u *bench) all(ctx context.Context, r *report.Report) error {
	faults, err := chosen(u.Only)
	if err != nil {
		return err
	}
	var sum total
	for i, f := range faults {
		var its total
		for repeat := range u.Repeat {
			if u.Progress != nil {
				u.Progress(i*u.Repeat+repeat, len(faults)*u.Repeat)
			}
			o, err := u.try(ctx, f, repeat)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				its.notRun = append(its.notRun, err)
				if errors.Is(err, errNotHere) {
					break // It cannot the next time, either.
				}
				continue
			}
			fmt.Fprintf(u.o.Log, "%s %d of %d: %s\n", f.name, repeat+1, u.Repeat, o)
			its.add(o)
		}
		its.report(r, f)
		sum.join(its)
	}
	if u.Progress != nil {
		u.Progress(len(faults)*u.Repeat, len(faults)*u.Repeat)
	}
	sum.reportAll(r)
	u.reportLag(r)
	return nil
}

// trial is one fault being brought once.
type trial struct {
	*bench
	fault    fault
	run      int
	repeat   int
	rng      *rand.Rand
	recorder *recorder
	// mu guards notes, broken, undoes and restores: a fault may do several things at once.
	mu    sync.Mutex
	notes []string
	// undoes take the fault away, restores what was prepared for it.
	undoes, restores []func(ctx context.Context) error
	// expectEnds is how often the fault itself ended the provider.
	expectEnds int
	// excess is by how many MiB something was beyond its bound.
	excess float64
	// broken is how much happened that must not happen under this fault.
	broken int
	// own is the fault's own function, if it has one.
	own    *function
	clocks []clock
}

// say notes what a reader of the figures should know.
func (t *trial) say(format string, values ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes = append(t.notes, fmt.Sprintf(format, values...))
}

// must notes what the fault has shown if it is not what its sentence promises. Each counts as a wrong
// answer.
func (t *trial) must(ok bool, format string, values ...any) {
	if !ok {
		t.mu.Lock()
		t.broken++
		t.mu.Unlock()
		t.say("NOT HELD: "+format, values...)
	}
}

// after takes what takes the fault away, restored what takes its preparation away.
func (t *trial) after(undo func(ctx context.Context) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.undoes = append(t.undoes, undo)
}

func (t *trial) restored(undo func(ctx context.Context) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.restores = append(t.restores, undo)
}

// undo takes the fault away, the last thing first.
func (t *trial) undo(ctx context.Context) error { return runAll(ctx, &t.undoes) }

// runAll runs functions from the last to the first, once, also if ctx has ended.
func runAll(ctx context.Context, all *[]func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	var errs []error
	for ; len(*all) > 0; *all = (*all)[:len(*all)-1] {
		errs = append(errs, (*all)[len(*all)-1](ctx))
	}
	return errors.Join(errs...)
}

// try brings a fault once.
func (u *bench) try(ctx context.Context, f fault, repeat int) (o outcome, err error) {
	u.runs++
	t := &trial{bench: u, fault: f, run: u.runs, repeat: repeat, rng: rand.New(rand.NewPCG(u.Seed, uint64(u.runs)))}
	if err := u.ready(ctx); err != nil {
		return o, err
	}
	defer func() {
		err = errors.Join(err, t.undo(ctx), runAll(ctx, &t.restores))
		if (err != nil || !o.recovered || o.leaks.sum() > 0) && ctx.Err() == nil {
			u.spoilt = true
		}
	}()
	t.recorder = u.callbacks.record(t.run)
	if f.prepare != nil {
		if err := f.prepare(ctx, t); err != nil {
			return o, err
		}
	}
	if err := rig.Pause(ctx, time.Second); err != nil { // Connections of before end.
		return o, err
	}
	before, err := u.world.resources(ctx)
	if err != nil {
		return o, err
	}
	ends := u.world.ends()
	memory := u.world.watchMemory(ctx)
	h, begin, end, err := t.underLoad(ctx)
	most := memory()
	t.excess += max(0, most-maxMiB)
	if err != nil {
		return o, err
	}
	if err := h.write(u.history, f.name, t.run); err != nil {
		return o, fmt.Errorf("--history: %w", err)
	}
	if crashes := u.world.ends() - ends - t.expectEnds; crashes > 0 {
		t.say("the provider ended %d times by itself", crashes)
	}
	o = judge(h, f, begin, end)
	o.verdict.Wrong += t.broken
	o.memory = most
	o.leaks, err = u.world.settle(ctx, before)
	o.leaks.MiB += t.excess
	o.notes = t.notes
	return o, err
}

// ready waits until all functions are well, and starts all again if they do not come to be.
func (u *bench) ready(ctx context.Context) error {
	if !u.spoilt {
		err := u.world.awaitWell(ctx, u.functions, u.SLO, wellWithin)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	if err := u.world.restart(ctx, u.world.place); err != nil {
		return err
	}
	u.spoilt = false
	return u.world.awaitWell(ctx, u.functions, u.SLO, wellWithin)
}

// underLoad brings the fault while the load runs. begin and end are the fault's, from the
// beginning of the load.
func (t *trial) underLoad(ctx context.Context) (h *History, begin, end time.Duration, err error) {
	first, targets := t.sources(t.recorder, t.rates, nil)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var from, until time.Time
	brought := make(chan error, 1)
	go func() {
		err := rig.Pause(ctx, calm)
		if from = time.Now(); err == nil {
			err = t.fault.bring(ctx, t)
		}
		if until = time.Now(); err != nil {
			stop() // The result would not be what its name says.
		}
		brought <- err
	}()
	began, err := t.recorder.drive(ctx, first, targets, calm+t.fault.lasts+t.After, t.Seed+uint64(t.run))
	if err != nil {
		stop()
	}
	if failed := <-brought; failed != nil {
		return nil, 0, 0, failed
	}
	if err != nil {
		return nil, 0, 0, err
	}
	if t.fault.lasts == 0 {
		until = from
	}
	h = t.recorder.history(began)
	for i := range h.Requests {
		if r := &h.Requests[i]; !r.Unsent {
			t.bench.lags = append(t.bench.lags, r.Sent-r.Intended)
		}
	}
	return h, from.Sub(began), until.Sub(began), nil
}
