package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/arrivals"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// Queue sets the measurement of functions that share instances.
type Queue struct {
	// Functions are spread evenly over Models. Each gets less than one request a second, by a part of its own
	// of the Azure Functions trace.
	Functions int
	Models    []string
	// Duration is how long requests are sent, once to functions that share and once to the same that do not.
	Duration time.Duration
	Seed     uint64
}

// DefaultQueue is what "bench sharing-queue" measures.
var DefaultQueue = Queue{Functions: 32, Models: []string{"mnist", "dssm", "textcnn", "lstm"}, Duration: 3 * time.Minute, Seed: 1}

// queueObjectives are those of the functions of one model, in turn.
var queueObjectives = []time.Duration{
	50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond,
	500 * time.Millisecond, time.Second, 1500 * time.Millisecond, 2 * time.Second,
}

// SharingQueue compares functions that share instances and batches with the same functions without that. It measures
// what the instances hold of the CPU for each request that is answered in time, their memory, and the requests within
// the objective. On a small machine not all functions without sharing find room.
func SharingQueue(ctx context.Context, o rig.Options, q Queue) (*report.Report, error) {
	if q.Functions < len(q.Models) || len(q.Models) == 0 || q.Duration <= 0 {
		return nil, errors.New("there must be a model, a function of each, and a duration above 0")
	}
	var subjects []*rig.Subject
	defer func() {
		for _, s := range subjects {
			s.Close()
		}
	}()
	for _, name := range q.Models {
		s, err := rig.NewSubject(name)
		if err != nil {
			return nil, err
		}
		subjects = append(subjects, s)
	}
	r := report.New("bench sharing-queue", time.Now())
	one, err := q.oneCopy(ctx, o, subjects)
	if err != nil {
		return nil, err
	}
	r.Add("one_copy.memory_mib", one, "MiB", "proportional set size of one instance of each model")
	way := map[string]sharedRun{}
	for _, share := range []string{"none", "namespace"} {
		fmt.Fprintf(o.Log, "%d functions of %d models, share: %s\n", q.Functions, len(q.Models), share)
		got, err := q.measure(ctx, o, subjects, share)
		if err != nil {
			return nil, err
		}
		way[share] = got
		prefix := map[string]string{"none": "unshared.", "namespace": "shared."}[share]
		r.Add(prefix+"core_s_per_request", got.cores, "core s", "CPU that the instances held over the time, for each request answered in time")
		r.Add(prefix+"used_core_s_per_request", got.used, "core s", "CPU that the instances used, for each request answered in time")
		r.Add(prefix+"memory_mib", got.memory, "MiB", "proportional set size of all instances, mean")
		r.Add(prefix+"instances", got.instances, "instances", "mean")
		r.Add(prefix+"holders", float64(len(got.holders)), "functions and pools", "that held CPU; the log names them")
		r.Add(prefix+"within_slo_pct", got.within, "%", fmt.Sprintf("of %d requests", got.requests))
		r.Add(prefix+"worst_within_slo_pct", got.worst, "%", "of the function with the fewest")
	}
	r.Add("core_s_per_request.shared_over_unshared", way["namespace"].cores/way["none"].cores, "×", "aim ≤ 0.35")
	r.Add("used_core_s_per_request.shared_over_unshared", way["namespace"].used/way["none"].used, "×", "")
	r.Add("memory.over_one_copy", way["namespace"].memory/one, "×", "of one instance for each model; aim ≤ 1.3")
	r.Add("within_slo_pct", way["namespace"].within, "%", "aim ≥ 99")
	return r, nil
}

// holder is a function or a pool that held something of the CPU.
type holder struct {
	name string
	// cores is the mean over the time. members are the functions that it answers for.
	cores   float64
	members []string
}

// holders lists what held something of the CPU, by what the functions say of their sharing.
func (h *heldOver) holders(ctx context.Context, d *rig.Deployed, targets []load.Target) (all []holder, err error) {
	members := map[string][]string{}
	for _, t := range targets {
		s, err := d.Status(ctx, t.Name)
		if err != nil {
			return nil, err
		}
		at := t.Name + "." + s.Namespace
		if s.Annotations != nil {
			if says, is := strings.CutPrefix((*s.Annotations)["com.openfaas.infer.sharing"], "shares the instances of "); is {
				at, _, _ = strings.Cut(says, " ")
			}
		}
		members[at] = append(members[at], fmt.Sprintf("%s %v", t.Name, t.SLO))
	}
	for _, name := range slices.Sorted(maps.Keys(h.by)) {
		if cores := h.by[name]; cores > 0 {
			all = append(all, holder{name: name, cores: cores, members: members[name]})
		}
	}
	return all, nil
}

// sharedRun is what one way of running the functions took.
type sharedRun struct {
	cores, used, memory, instances, within, worst float64
	requests                                      int
	holders                                       []holder
}

// measure runs the functions once.
func (q Queue) measure(ctx context.Context, o rig.Options, subjects []*rig.Subject, share string) (got sharedRun, err error) {
	dir, err := os.MkdirTemp("", "faas-infer-queue-")
	if err != nil {
		return got, err
	}
	defer os.RemoveAll(dir)
	d, err := o.Provider(ctx, dir)
	if err != nil {
		return got, err
	}
	defer d.Stop()
	targets, err := q.deploy(ctx, d, subjects, share, 0)
	if err != nil {
		return got, err
	}
	if err := q.settle(ctx, targets); err != nil {
		return got, err
	}
	began, stop := time.Now(), make(chan struct{})
	seen := make(chan heldOver)
	go func() { seen <- watchHeld(ctx, d, stop) }()
	good, all := make([]int, len(targets)), make([]int, len(targets))
	_, err = load.Run(ctx, load.Options{Targets: targets, Duration: q.Duration, Seed: q.Seed, Observe: func(x load.Observed) {
		all[x.Target]++
		if x.Good && x.Latency <= targets[x.Target].SLO {
			good[x.Target]++
		}
	}})
	close(stop)
	held := <-seen
	if err = errors.Join(err, held.err); err != nil {
		return got, err
	}
	if got.holders, err = held.holders(ctx, d, targets); err != nil {
		return got, err
	}
	for _, h := range got.holders {
		fmt.Fprintf(o.Log, "  %s held %.2f cores for %d functions: %s\n", h.name, h.cores, len(h.members), strings.Join(h.members, ", "))
	}
	within := 0
	got.worst = 100
	for i := range targets {
		got.requests, within = got.requests+all[i], within+good[i]
		if all[i] > 0 {
			got.worst = min(got.worst, 100*float64(good[i])/float64(all[i]))
		}
	}
	took, served := time.Since(began).Seconds(), float64(max(1, within))
	got.within = 100 * float64(within) / float64(max(1, got.requests))
	got.cores, got.used = held.cores*took/served, held.used*took/served
	got.memory, got.instances = held.memory, held.instances
	return got, nil
}

// deploy deploys the functions, each with at most some instances (0 for any number), and returns their loads.
func (q Queue) deploy(
	ctx context.Context, d *rig.Deployed, subjects []*rig.Subject, share string, instances int,
) (targets []load.Target, err error) {
	trace, err := arrivals.OpenTrace("azure-7d")
	if err != nil {
		return nil, err
	}
	for _, s := range subjects {
		if err := d.Bundle(s, s.Name+":latest"); err != nil {
			return nil, err
		}
	}
	for i := range q.Functions {
		s, name := subjects[i%len(subjects)], fmt.Sprintf("f%d", i)
		slo := queueObjectives[i/len(subjects)%len(queueObjectives)]
		f := rig.Function(name, s.Name+":latest", map[string]string{
			"com.openfaas.slo.latency": slo.String(), "com.openfaas.infer.share": share,
		})
		if instances > 0 {
			f.Labels = &map[string]string{"com.openfaas.scale.max": strconv.Itoa(instances)}
		}
		if err := d.DeployFunction(ctx, f); err != nil {
			return nil, err
		}
		target, err := s.Target(d.URL + "/function/" + name)
		if err != nil {
			return nil, err
		}
		target.Name, target.SLO, target.Arrivals, target.Rate = name, slo, load.Poisson, 1
		target.Shape = q.shape(trace, i)
		targets = append(targets, target)
	}
	return targets, nil
}

// shape is the load of the i-th function, as a part of one request per second: minutes of a column of the trace from
// a place of its own, divided by the most in one of them.
func (q Queue) shape(trace *arrivals.Trace, i int) func(at time.Duration) float64 {
	counts := trace.Columns[i%len(trace.Columns)].Counts
	minutes := int(q.Duration/time.Minute) + 1
	from := i * len(counts) / q.Functions
	for tries := 0; tries < len(counts); tries++ { // A part with requests.
		if sum(counts, from, minutes) > 0 {
			break
		}
		from++
	}
	most := 0.0
	for m := range minutes {
		most = max(most, counts[(from+m)%len(counts)])
	}
	return func(at time.Duration) float64 { return counts[(from+int(at/time.Minute))%len(counts)] / most }
}

func sum(counts []float64, from, n int) (total float64) {
	for m := range n {
		total += counts[(from+m)%len(counts)]
	}
	return total
}

// settle sends each function requests until its model's times are known and it has answered.
func (q Queue) settle(ctx context.Context, targets []load.Target) error {
	for _, t := range targets {
		t.Rate, t.Shape, t.SLO = 1, nil, 0
		for tries := 0; ; tries++ {
			ok := false
			_, err := load.Run(ctx, load.Options{Targets: []load.Target{t}, Duration: time.Second, Timeout: 2 * time.Minute, Observe: func(x load.Observed) { ok = ok || x.Good }})
			if err != nil {
				return err
			}
			if ok {
				break
			}
			if tries == 60 {
				return fmt.Errorf("%s does not answer", t.Name)
			}
		}
	}
	return rig.Pause(ctx, 10*time.Second)
}

// heldOver is what instances held and used, as a mean over time.
type heldOver struct {
	cores, used, memory, instances float64
	// by is cores by function.
	by  map[string]float64
	err error
}

// watchHeld looks at the instances twice a second until stop.
func watchHeld(ctx context.Context, d *rig.Deployed, stop <-chan struct{}) (h heldOver) {
	looks := 0.0
	h.by = map[string]float64{}
	for {
		used, err := heldCPU(ctx, d, h.by)
		if err != nil {
			h.err = err
			return h
		}
		h.used += used
		memory, n := instanceMemory(d)
		h.memory, h.instances = h.memory+memory, h.instances+n
		looks++
		select {
		case <-stop:
			for name := range h.by {
				h.by[name] /= looks
				h.cores += h.by[name]
			}
			h.used, h.memory, h.instances = h.used/looks, h.memory/looks, h.instances/looks
			return h
		case <-ctx.Done():
			h.err = ctx.Err()
			return h
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// heldCPU adds what the provider's metrics say that each function holds of the CPU to held, and returns what all use, in
// cores.
func heldCPU(ctx context.Context, d *rig.Deployed, held map[string]float64) (used float64, err error) {
	_, text, err := rig.Get(ctx, http.DefaultClient, d.URL+"/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		rest, allocated := strings.CutPrefix(line, `faas_infer_allocated_cpu_cores{function="`)
		if !allocated {
			var is bool
			if rest, is = strings.CutPrefix(line, `faas_infer_used_cpu_cores{function="`); !is {
				continue
			}
		}
		function, value, _ := strings.Cut(rest, `"} `)
		x, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return 0, fmt.Errorf("metric %q: %w", line, err)
		}
		if allocated {
			held[function] += x
		} else {
			used += x
		}
	}
	return used, nil
}

// instanceMemory returns the memory of all instances in MiB, and their number. Each shared page is divided among the
// processes that map it.
func instanceMemory(d *rig.Deployed) (all, n float64) {
	records, err := d.Records()
	if err != nil {
		return 0, 0
	}
	for _, in := range records {
		mapped, err := rig.Mapped(in.Process.PID)
		if err != nil {
			continue // It has ended.
		}
		all, n = all+mapped["Pss"], n+1
	}
	return all, n
}

// oneCopy returns the memory of one instance of each model, in MiB.
func (q Queue) oneCopy(ctx context.Context, o rig.Options, subjects []*rig.Subject) (memory float64, err error) {
	dir, err := os.MkdirTemp("", "faas-infer-queue-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	d, err := o.Provider(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer d.Stop()
	q.Functions = len(subjects)
	targets, err := q.deploy(ctx, d, subjects, "none", 1)
	if err != nil {
		return 0, err
	}
	if err := q.settle(ctx, targets); err != nil {
		return 0, err
	}
	for tries := 0; ; tries++ {
		memory, n := instanceMemory(d)
		if int(n) == len(subjects) {
			return memory, nil
		}
		if tries == 60 {
			return 0, fmt.Errorf("%v instances run for %d functions of which each may have one", n, len(subjects))
		}
		if err := rig.Pause(ctx, time.Second); err != nil {
			return 0, err
		}
	}
}
