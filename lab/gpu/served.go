package gpu

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
	"github.com/faas-infer/faas-infer/lab/rig"
)

// Served measures models behind a provider on a machine with a GPU, as users run them.
type Served struct {
	// Models are architectures of the zoo. Rates are the requests per second that each is
	// offered at the end of the ramp, in the same order.
	Models []string
	Rates  []float64
	// SLO is the objective of each.
	SLO time.Duration
	// Settle is the time from the deployments to the load, in which the provider measures the
	// models on the GPU. Ramp is how long the load rises, Hold how long it stays.
	Settle, Ramp, Hold time.Duration
	// Colds is the number of cold starts of the first model, Gap the time before each: a provider
	// prepares a process for the next start beside the work.
	Colds int
	Gap   time.Duration
	// Arguments are passed to the provider.
	Arguments []string
}

// Run deploys the models, offers each a rising and then a steady load, and starts the first
// from zero. It reports the requests within the objective and what instances hold.
func (s Served) Run(ctx context.Context, o rig.Options, r *report.Report) error {
	dir, err := os.MkdirTemp("", "faas-infer-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d, err := o.Provider(ctx, dir, s.Arguments...)
	if err != nil {
		return err
	}
	defer func() {
		d.Stop()
		s.logs(o, d)
	}()
	var targets []load.Target
	for n, name := range s.Models {
		t, err := s.deploy(ctx, o, d, name, r)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		t.Rate, t.Arrivals, t.SLO = s.Rates[n], load.Poisson, s.SLO
		t.Shape = func(at time.Duration) float64 { return min(1, 0.05+float64(at)/float64(max(1, s.Ramp))) }
		targets = append(targets, t)
	}
	select {
	case <-time.After(s.Settle):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.offer(ctx, o, d, targets, r); err != nil {
		return err
	}
	return s.cold(ctx, o, d, targets[0], r)
}

// logs passes on what the provider and its instances said, for people who look for the cause of a figure.
func (s Served) logs(o rig.Options, d *rig.Deployed) {
	for _, line := range lastLines(d.Said(), 40) {
		fmt.Fprintln(o.Log, "provider: "+line)
	}
	files, _ := filepath.Glob(filepath.Join(d.State, "local", "logs", "*", "*"))
	for _, file := range files {
		text, _ := os.ReadFile(file) // It may just have been removed.
		for _, line := range lastLines(string(text), 4) {
			fmt.Fprintln(o.Log, filepath.Base(file)+": "+line)
		}
	}
}

func lastLines(text string, n int) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[max(0, len(lines)-n):]
}

// deploy deploys a model and waits for its first answer.
func (s Served) deploy(ctx context.Context, o rig.Options, d *rig.Deployed, name string, r *report.Report) (load.Target, error) {
	subject, err := rig.NewSubject(name)
	if err != nil {
		return load.Target{}, err
	}
	defer subject.Close()
	if err := d.Bundle(subject, name+":latest"); err != nil {
		return load.Target{}, err
	}
	began := time.Now()
	if err := d.Deploy(ctx, name, name+":latest", s.SLO); err != nil {
		return load.Target{}, err
	}
	target, err := subject.Target(d.URL + "/function/" + name)
	if err != nil {
		return load.Target{}, err
	}
	if _, err := rig.One(ctx, target); err != nil {
		return load.Target{}, err
	}
	took := time.Since(began)
	fmt.Fprintf(o.Log, "%s answered %.1f s after its deployment\n", name, took.Seconds())
	r.Add("served."+name+".first_answer_s", took.Seconds(), "s", "profiled for the first time")
	return target, nil
}

// offer offers the load and reports each model's requests in time, with the shares that its
// instances have at the end.
func (s Served) offer(ctx context.Context, o rig.Options, d *rig.Deployed, targets []load.Target, r *report.Report) error {
	steady := make([][2]int, len(targets)) // Requests of the hold, and those in time.
	passed := s.newCourse()
	shares := make(chan map[string][2]int, 1)
	watching, end := context.WithCancel(ctx)
	defer end()
	go passed.watch(watching, d)
	time.AfterFunc(s.Ramp+s.Hold-500*time.Millisecond, func() { shares <- s.held(d) })
	result, err := load.Run(ctx, load.Options{
		Targets: targets, Duration: s.Ramp + s.Hold, Seed: 1, Progress: o.Log, MaxInFlight: 1 << 14, Timeout: 5 * time.Second,
		Observe: func(x load.Observed) {
			passed.saw(x)
			if x.At < s.Ramp {
				return
			}
			steady[x.Target][0]++
			if x.Good && x.Latency <= s.SLO {
				steady[x.Target][1]++
			}
		},
	})
	if err != nil {
		return err
	}
	held := <-shares
	end()
	passed.print(o.Log)
	for n, t := range result.Targets {
		name := "served." + s.Models[n]
		r.Add(name+".rps", t.Offered, "requests/s", fmt.Sprintf("offered; p50 %.1f ms, p99 %.1f ms; %v", rig.Milliseconds(t.Latency.P50), rig.Milliseconds(t.Latency.P99), t.Codes))
		r.Add(name+".within_slo_pct", 100*t.WithinSLO, "%", fmt.Sprintf("within %v, rise and all", s.SLO))
		r.Add(name+".held.within_slo_pct", 100*float64(steady[n][1])/float64(max(1, steady[n][0])), "%", fmt.Sprintf("in the last %v", s.Hold))
		r.Add(name+".gpu_pct", float64(held[s.Models[n]][0]), "%", "of the GPU, all instances")
		r.Add(name+".cpu_millicores", float64(held[s.Models[n]][1]), "millicores", "all instances")
	}
	return nil
}

// held returns the GPU share and CPU that each model's instances hold.
func (s Served) held(d *rig.Deployed) map[string][2]int {
	out := map[string][2]int{}
	records, _ := d.Records() // An instance that has just ended is not missed.
	for _, x := range records {
		name, _, _ := strings.Cut(x.Spec.Function, ".")
		out[name] = [2]int{out[name][0] + x.Spec.Config.GPU, out[name][1] + x.Spec.Config.CPU}
	}
	return out
}

// cold measures requests that find no instance.
func (s Served) cold(ctx context.Context, o rig.Options, d *rig.Deployed, t load.Target, r *report.Report) error {
	t.Shape = nil // One request is all.
	var times []float64
	for range s.Colds {
		if err := errors.Join(d.Scale(ctx, s.Models[0], 0), d.Available(ctx, s.Models[0], 0)); err != nil {
			return err
		}
		time.Sleep(s.Gap)
		took, err := rig.One(ctx, t)
		if err != nil {
			return err
		}
		times = append(times, rig.Milliseconds(took))
		fmt.Fprintf(o.Log, "cold start of %s: %.0f ms\n", s.Models[0], rig.Milliseconds(took))
	}
	if len(times) == 0 {
		return nil
	}
	slices.Sort(times)
	r.Add("cold.p50_ms", rig.Median(times), "ms", fmt.Sprintf("%s from zero instances, %d times; at most 400 is the aim", s.Models[0], len(times)))
	r.Add("cold.max_ms", times[len(times)-1], "ms", "")
	return nil
}
