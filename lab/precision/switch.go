package precision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
)

// Switch are the options of [RunSwitch].
type Switch struct {
	// Model is an architecture of the zoo and SLO its objective. Load is the part of a core
	// that the requests would take if fp32 answered them one by one.
	Model string
	SLO   time.Duration
	Load  float64
	// Times is how often each way goes up and down. After is how long requests come after the
	// last change.
	Times int
	After time.Duration
	// Profiling is how long to wait for the models' full profiles at most.
	Profiling time.Duration
}

// The ways to ask for more accuracy.
const (
	byFloor  = "floor"
	byHeader = "header"
)

// The accuracies that are asked, in percent: only fp32 has the high one.
const (
	low  = (quantisedAccuracy + 1) / 2
	high = (quantisedAccuracy + originalAccuracy) / 2
)

// A trial's load: int8 alone may answer until opens; the change up is at up, that down at down.
const (
	opens = 5 * time.Second
	up    = 20 * time.Second
	down  = 40 * time.Second
)

// RunSwitch changes what is asked of a function with two variants while it has a steady load at
// random times, and counts the requests that are late or lost. fp32 has to take over from int8,
// and back: because the deployment's accuracy rises, and because the requests ask for more.
func RunSwitch(ctx context.Context, o rig.Options, b Switch) (*report.Report, error) {
	if b.SLO <= 0 || b.Load <= 0 || b.Times < 1 || b.After < around {
		return nil, fmt.Errorf("--slo, --load and --times must be positive, and --after at least %v", around)
	}
	dir, err := os.MkdirTemp("", "faas-infer-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s, err := newSubject(ctx, o, b.Model, b.SLO, 8)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	at, err := o.Provider(ctx, filepath.Join(dir, "provider"), "--prepared", filepath.Join(dir, "prepared"))
	if err != nil {
		return nil, err
	}
	defer at.Stop()
	t, err := b.prepare(ctx, o, s, at)
	if err != nil {
		return nil, err
	}
	var all []trial
	for range b.Times {
		for _, way := range []string{byFloor, byHeader} {
			seen, err := b.trial(ctx, o, s, at, t, way, uint64(len(all)+1))
			if err != nil {
				return nil, err
			}
			all = append(all, *seen)
		}
	}
	r := report.New(fmt.Sprintf("bench switch --model %s --slo %v --load %v --times %d --after %v", b.Model, b.SLO, b.Load, b.Times, b.After), time.Now())
	r.Add("rate", t.Rate, "requests/s", fmt.Sprintf("would take %v cores in fp32, one by one", b.Load))
	addTrials(r, all)
	return r, nil
}

// prepare chooses the rate and the faster int8 form, and waits until the provider knows the
// times of both variants.
func (b Switch) prepare(ctx context.Context, o rig.Options, s *subject, at *rig.Deployed) (t load.Target, err error) {
	single := func(file string) (ms float64, err error) {
		var p *profiler.Profile
		if _, p, err = o.Models.Measure(ctx, file, 1, b.SLO); err != nil {
			return 0, err
		}
		return 1000 / highest(p.Measurements, b.SLO), nil
	}
	precise, err := single(s.File)
	if err != nil {
		return t, err
	}
	way, fastest := s.made[0], precise
	for _, m := range s.made {
		ms, err := single(m.File)
		if err != nil {
			return t, err
		}
		fmt.Fprintf(o.Log, "%s: one request takes %.3g ms in fp32, %.3g ms in int8 (%s)\n", s.Name, precise, ms, m.Way)
		if ms < fastest {
			way, fastest = m, ms
		}
	}
	if fastest == precise {
		return t, errors.New("int8 is not faster than fp32 on this machine: nothing would serve with it")
	}
	if err := s.bundles(at, way); err != nil {
		return t, err
	}
	if t, err = s.target(at); err != nil {
		return t, err
	}
	if err := b.deploy(ctx, at.DeployFunction, s, low, ""); err != nil {
		return t, err
	}
	if _, err := rig.One(ctx, t); err != nil {
		return t, err
	}
	fmt.Fprintf(o.Log, "%s: profiling\n", s.Name)
	t.Rate = b.Load * 1000 / precise
	return t, at.AwaitProfile(ctx, o.Log, b.Profiling)
}

// deploy deploys the function with an accuracy, and with one variant only if variant names it.
func (b Switch) deploy(ctx context.Context, by func(context.Context, types.FunctionDeployment) error, s *subject, accuracy int, variant string) error {
	a := s.annotations("com.openfaas.slo.accuracy", strconv.Itoa(accuracy))
	if variant != "" {
		a["com.openfaas.infer.variants"] = variant
	}
	return by(ctx, rig.Function(rig.FunctionName, both, a))
}

// trial sends requests and changes what is asked.
func (b Switch) trial(ctx context.Context, o rig.Options, s *subject, at *rig.Deployed, t load.Target, way string, seed uint64) (*trial, error) {
	if err := b.deploy(ctx, at.Update, s, low, quantised); err != nil {
		return nil, err
	}
	if _, err := rig.One(ctx, t); err != nil {
		return nil, err
	}
	var asks atomic.Bool
	t.HeaderOf = func(int) http.Header {
		if asks.Load() {
			return http.Header{"X-Infer-Accuracy": {strconv.Itoa(high)}}
		}
		return nil
	}
	change := func(accuracy int) error {
		if way == byHeader {
			asks.Store(accuracy == high)
			return nil
		}
		return b.deploy(ctx, at.Update, s, accuracy, "")
	}
	seen := &trial{way: way, slo: b.SLO}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began, failed := time.Now(), make(chan error, 1)
	go func() {
		failed <- steps(ctx, began, []step{
			{opens, func() error { return b.deploy(ctx, at.Update, s, low, "") }},
			{up, func() (err error) { seen.before, err = serving(ctx, at); return errors.Join(err, change(high)) }},
			{down, func() (err error) { seen.during, err = serving(ctx, at); return errors.Join(err, change(low)) }},
		})
	}()
	ran, err := load.Run(ctx, load.Options{Targets: []load.Target{t}, Duration: down + b.After, Seed: seed, Observe: func(one load.Observed) { seen.requests = append(seen.requests, one) }})
	if err := errors.Join(err, <-failed); err != nil {
		return nil, err
	}
	if seen.after, err = serving(ctx, at); err != nil {
		return nil, err
	}
	seen.lag = ran.Targets[0].Lag.P99
	fmt.Fprintln(o.Log, seen)
	fmt.Fprintf(o.Log, "late, from the change up: %s\n", seen.when())
	return seen, nil
}

// step is something to do at a time.
type step struct {
	at time.Duration
	do func() error
}

// steps does what is due, from a beginning.
func steps(ctx context.Context, began time.Time, all []step) error {
	for _, s := range all {
		if err := errors.Join(rig.Pause(ctx, time.Until(began.Add(s.at))), s.do()); err != nil {
			return err
		}
	}
	return nil
}

// serving returns the numbers of instances by variant.
func serving(ctx context.Context, at *rig.Deployed) (map[string]int, error) {
	status, text, err := rig.Get(ctx, http.DefaultClient, at.URL+"/system/variants/"+rig.FunctionName)
	if err != nil {
		return nil, err
	}
	var all []provider.Variant
	if err := json.Unmarshal(text, &all); status != http.StatusOK || err != nil {
		return nil, fmt.Errorf("GET /system/variants: %d %s", status, text)
	}
	count := map[string]int{}
	for _, v := range all {
		count[v.Name] = v.Instances
	}
	return count, nil
}
