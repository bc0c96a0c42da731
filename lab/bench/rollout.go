package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/provider"
)

// Rollout measures what gradual rollouts cost the clients of a function.
type Rollout struct {
	// Rollouts is their number. Each Every-th has a fault.
	Rollouts, Every int
	// Rate is the load in requests/s, and SLO the function's objective.
	Rate float64
	SLO  time.Duration
	// Each is the longest time of one rollout, and Start that until a candidate's first instance is ready.
	Each, Start time.Duration
	// CPU is the most that an instance has of a core, as in "400m", "" for no limit.
	CPU string
}

// rolloutPlace is where the revisions run: a machine or a cluster.
type rolloutPlace struct {
	// provider has only its URL.
	provider *rig.Deployed
	// image is the present model's, other that of one with other weights.
	image, other string
	// target is the load of the function.
	target load.Target
	// processes lists the processes of a function's instances, by the function's name, and pause is the time from one
	// list to the next.
	processes func(function string) []int
	pause     time.Duration
	log       io.Writer
	// settled waits until nothing of an earlier candidate is left, nil for nothing.
	settled func(ctx context.Context) error
}

// fault is what is wrong with a candidate.
type fault string

// The faults, one after the other.
const (
	noFault      fault = ""
	faultCrash   fault = "crash"   // its instances are killed as soon as they are seen
	faultHang    fault = "hang"    // they are stopped before they are ready
	faultSlow    fault = "slow"    // they run a tenth of the time
	faultAnswers fault = "answers" // its model has other weights
)

var faults = []fault{faultCrash, faultHang, faultSlow, faultAnswers}

// ended is how one rollout ended.
type ended struct {
	fault    fault
	over     bool // within Each
	promoted bool
	took     time.Duration
	// served is the number of clients' requests that the candidate was last seen to have had.
	served int64
	// why is the provider's reason.
	why  string
	load load.TargetResult
}

// The images of the bench: the present model, and one with other weights.
const (
	rolloutImage = "rollout:latest"
	otherImage   = "rollout:other"
	// otherSeed makes the other weights.
	otherSeed = 2
)

// RunRollout deploys later revisions of a function on this machine under load, one after the other.
func RunRollout(ctx context.Context, o rig.Options, b Rollout) (*report.Report, error) {
	s, err := rig.NewSubject("mnist")
	if err != nil {
		return nil, err
	}
	defer s.Close()
	d, err := o.Provider(ctx, s.Dir)
	if err != nil {
		return nil, err
	}
	defer d.Stop()
	if err := d.Bundle(s, rolloutImage); err != nil {
		return nil, err
	}
	other, err := zoo.Make("mnist", otherSeed)
	if err != nil {
		return nil, err
	}
	if _, err := bundle.Write(filepath.Join(d.State, "bundles"), otherImage, bundle.Manifest{}, other); err != nil {
		return nil, err
	}
	target, err := s.JSONTarget(d.URL + "/function/" + rig.FunctionName)
	if err != nil {
		return nil, err
	}
	name := provider.FullName(rig.FunctionName+provider.CandidateSuffix, provider.DefaultNamespace)
	return b.run(ctx, rolloutPlace{
		provider: d, image: rolloutImage, other: otherImage, target: target, pause: 2 * time.Millisecond, log: o.Log,
		processes: func(string) (pids []int) {
			records, _ := d.Records() // One that is being written is read the next time.
			for _, r := range records {
				if r.Spec.Function == name && r.Process.PID > 1 {
					pids = append(pids, r.Process.PID)
				}
			}
			return pids
		},
	})
}

// run deploys later revisions at a place.
func (b Rollout) run(ctx context.Context, p rolloutPlace) (*report.Report, error) {
	present, next := 4, 8 // Revisions differ in the largest batch.
	if err := b.deploy(ctx, p, p.image, present, false); err != nil {
		return nil, err
	}
	p.target.Rate, p.target.SLO = b.Rate, b.SLO
	if _, err := rig.One(ctx, p.target); err != nil {
		return nil, err
	}
	fmt.Fprintln(p.log, "measuring without rollouts")
	alone, err := load.Run(ctx, load.Options{Targets: []load.Target{p.target}, Duration: min(b.Each, 20*time.Second)})
	if err != nil {
		return nil, err
	}
	var all []ended
	for i := range b.Rollouts {
		e, err := b.one(ctx, p, i, next)
		if err != nil {
			return b.report(alone.Targets[0], all), err
		}
		first := ""
		for reason, n := range e.load.Reasons {
			first += fmt.Sprintf(" [%d × %q]", n, reason)
		}
		if e.load.FirstError != nil {
			first += fmt.Sprintf(" (%v)", e.load.FirstError)
		}
		fmt.Fprintf(p.log, "%d of %d: fault %q, promoted %v after %.1f s, %d of %d requests good, %.2f %% in time, %d by the candidate, answers %v, %d without one%s: %s\n",
			i+1, b.Rollouts, e.fault, e.promoted, e.took.Seconds(), e.load.Good, e.load.Requests, 100*e.load.WithinSLO, e.served, e.load.Codes,
			e.load.Failed+e.load.Dropped, first, e.why)
		if all = append(all, e); e.promoted {
			present, next = next, present
		}
	}
	return b.report(alone.Targets[0], all), nil
}

// deploy deploys an image with a largest batch, gradually if canary is set.
func (b Rollout) deploy(ctx context.Context, p rolloutPlace, image string, batch int, canary bool) error {
	settings := map[string]string{"com.openfaas.slo.latency": b.SLO.String(), "com.openfaas.infer.max-batch": strconv.Itoa(batch)}
	if canary {
		settings["com.openfaas.infer.canary"] = "50"
		settings["com.openfaas.infer.canary-mirror"] = "20"
		settings["com.openfaas.infer.canary-margin"] = "5"
		settings["com.openfaas.infer.canary-timeout"] = b.Start.String()
	}
	f := rig.Function(rig.FunctionName, image, settings)
	if b.CPU != "" {
		f.Limits = rig.CPU(b.CPU)
	}
	return p.provider.DeployFunction(ctx, f)
}

// one lets a revision with a largest batch take over, or fail to, under load.
func (b Rollout) one(ctx context.Context, p rolloutPlace, i, batch int) (ended, error) {
	e := ended{}
	image := p.image
	if b.Every > 0 && i%b.Every == b.Every-1 {
		e.fault = faults[i/b.Every%len(faults)]
	}
	if e.fault == faultAnswers {
		image = p.other
	}
	if p.settled != nil {
		if err := p.settled(ctx); err != nil {
			return e, err
		}
	}
	before, err := rolloutOf(ctx, p.provider)
	if err != nil {
		return e, err
	}
	sending, stopSending := context.WithCancel(ctx)
	defer stopSending()
	loaded, failed := make(chan *load.Result, 1), make(chan error, 1)
	go func() {
		r, err := load.Run(ctx, load.Options{Targets: []load.Target{p.target}, Duration: b.Each + 10*time.Second, Until: sending})
		loaded <- r
		failed <- err
	}()
	harming, stopHarming := context.WithCancel(ctx)
	defer stopHarming()
	if e.fault != noFault {
		harmed := make(chan struct{})
		defer func() {
			stopHarming()
			<-harmed
		}()
		go func() {
			defer close(harmed)
			p.harm(harming, e.fault)
		}()
	}
	began := time.Now()
	if err := b.deploy(ctx, p, image, batch, true); err != nil {
		return e, err
	}
	now := before
	for time.Since(began) < b.Each && !e.over {
		if err := rig.Pause(ctx, 50*time.Millisecond); err != nil {
			return e, err
		}
		if now, err = rolloutOf(ctx, p.provider); err != nil {
			return e, err
		}
		if now.Rollout != nil {
			e.served = now.Rollout.Served
		}
		e.over = now.Rollout == nil && now.Last != nil && (before.Last == nil || now.Last.Revision != before.Last.Revision)
	}
	e.took, e.promoted = time.Since(began), e.over && now.Last.Promoted
	if e.over {
		e.why = now.Last.Why
	}
	stopHarming()
	if err := rig.Pause(ctx, time.Second); err != nil { // The hand-over is a part of it.
		return e, err
	}
	stopSending()
	r := <-loaded
	if err := <-failed; err != nil {
		return e, err
	}
	e.load = r.Targets[0]
	return e, nil
}

// rolloutOf reads how the rollout of the function does.
func rolloutOf(ctx context.Context, d *rig.Deployed) (s provider.RolloutStatus, err error) {
	status, text, err := rig.Get(ctx, http.DefaultClient, d.URL+"/system/rollout/"+rig.FunctionName)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the provider answered %d: %s", status, text)
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}

// harm does to the candidate's instances what a fault says, until ctx ends.
func (p rolloutPlace) harm(ctx context.Context, what fault) {
	each := func(signal syscall.Signal) {
		for _, pid := range p.processes(rig.FunctionName + provider.CandidateSuffix) {
			_ = syscall.Kill(pid, signal) // It may have ended.
		}
	}
	for began := time.Now(); ctx.Err() == nil; _ = rig.Pause(ctx, p.pause) {
		switch what {
		case faultCrash:
			each(syscall.SIGKILL)
		case faultHang:
			each(syscall.SIGSTOP)
		case faultSlow:
			if time.Since(began)%time.Second < 900*time.Millisecond { // Instances that start meanwhile are slow, too.
				each(syscall.SIGSTOP)
			} else {
				each(syscall.SIGCONT)
			}
		default:
			return
		}
	}
	each(syscall.SIGCONT)
}

// report adds up all rollouts.
func (b Rollout) report(alone load.TargetResult, all []ended) *report.Report {
	r := report.New("bench rollout", time.Now())
	var requests, slow, slowServed, calm, late, lost, errors, harmed, good, faulty, falsePromotions, falseRollbacks, undecided int
	var promote []float64
	rollback := 0.0
	for _, e := range all {
		missed := e.load.Requests - int(e.load.WithinSLO*float64(e.load.Requests)+0.5)
		requests += e.load.Requests
		lost += e.load.Failed + e.load.Dropped
		for code, n := range e.load.Codes {
			if code >= http.StatusInternalServerError {
				errors += n
			}
		}
		if e.fault == faultSlow {
			slow += e.load.Requests
			harmed += missed
			slowServed += int(e.served)
		}
		switch {
		case !e.over:
			undecided++
		case e.fault == noFault && !e.promoted:
			falseRollbacks++
		case e.fault != noFault && e.promoted:
			falsePromotions++
		case e.promoted:
			promote = append(promote, e.took.Seconds())
		default:
			rollback = max(rollback, e.took.Seconds())
		}
		if e.fault == noFault {
			good++
			late += missed
			calm += e.load.Requests
		} else {
			faulty++
		}
	}
	share := func(n, of int) float64 {
		if of == 0 {
			return 0
		}
		return 100 * float64(n) / float64(of)
	}
	r.Add("rollouts", float64(len(all)), "", fmt.Sprintf("%d of them with a fault, under %.0f requests/s, SLO %v", faulty, b.Rate, b.SLO))
	r.Add("requests", float64(requests), "requests", "while rollouts were in progress")
	r.Add("lost", float64(lost), "requests", "without an answer; to reach: 0")
	r.Add("extra_5xx", float64(errors), "requests", "answered 5xx; to reach: 0")
	r.Add("alone_missed_pct", 100*(1-alone.WithinSLO), "%", "not in time without a rollout")
	if slow > 0 {
		r.Add("harmed_pct", share(harmed, slow), "%", "not in time during the rollouts of slow candidates; to reach: 0.1")
		r.Add("slow_served", float64(slowServed), "requests", "of clients that slow candidates had at all")
	}
	r.Add("calm_missed_pct", share(late, calm), "%", "not in time during the rollouts without a fault")
	r.Add("rollback_s", rollback, "s", "the longest from the deployment until the candidate is removed; to reach: 5")
	if len(promote) > 0 {
		r.Add("promote_s", rig.Median(promote), "s", "the median from the deployment until the revision took over")
	}
	r.Add("false_promotions", float64(falsePromotions), "", "candidates with a fault that took over; to reach: 0")
	r.Add("false_rollbacks_pct", share(falseRollbacks, good), "%", "of the candidates without a fault; to reach: 1")
	r.Add("undecided", float64(undecided), "", fmt.Sprintf("not over after %v", b.Each))
	return r
}
