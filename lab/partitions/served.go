package partitions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/papers/gillis/partitioning"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// Served measures cut models behind a provider, as users run them.
type Served struct {
	// Steps are the names of what is measured, see [Steps].
	Steps []string
	// Requests is how often a way is asked.
	Requests int
	// Fast and Large are models of the zoo: one that two instances answer faster than one, and
	// one that fits into no instance. Limit is the memory of an instance of the large one.
	Fast, Large, Limit string
	// Layers are the numbers of layers of the recurrent networks, cut and whole.
	Layers [2]int
}

// steps are the parts of the benchmark, in their order.
var steps = []struct {
	name string
	run  func(*served, context.Context) error
}{
	{"fast", (*served).fast}, {"large", (*served).large}, {"rnn", (*served).rnn},
}

// Steps lists the names of the steps.
func Steps() (names []string) {
	for _, s := range steps {
		names = append(names, s.name)
	}
	return names
}

// Run measures the steps with a provider each.
func (b Served) Run(ctx context.Context, o rig.Options, r *report.Report) error {
	if err := onnxruntime.Load(""); err != nil {
		return err
	}
	for _, step := range steps {
		for _, name := range b.Steps {
			if name != step.name {
				continue
			}
			s := &served{Served: b, Options: o, report: r, client: map[string]*asked{}}
			if err := s.with(ctx, step.run); err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
		}
	}
	return nil
}

// served is one step with its provider.
type served struct {
	Served
	rig.Options
	report *report.Report
	*rig.Deployed
	dir    string
	client map[string]*asked
}

func (s *served) with(ctx context.Context, run func(*served, context.Context) error) (err error) {
	if s.dir, err = os.MkdirTemp("", "faas-infer-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	// All cores are for instances, as on a node beside the provider's.
	cores := make([]string, numCPU())
	for i := range cores {
		cores[i] = strconv.Itoa(i)
	}
	if s.Deployed, err = s.Provider(ctx, s.dir, "--cores", strings.Join(cores, ",")); err != nil {
		return err
	}
	defer s.Stop()
	defer func() {
		for _, a := range s.client {
			a.Close()
		}
	}()
	return run(s, ctx)
}

// asked is a function that is asked for answers.
type asked struct {
	*upstream.OpenInference
	inputs  []tensor.Tensor
	outputs []tensor.Info
	answer  []tensor.Tensor
}

// ask sends a request, and keeps the answer.
func (a *asked) ask(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	answer, err := a.Infer(ctx, 1, a.inputs, a.outputs)
	if err != nil {
		return 0, err
	}
	a.answer = answer
	return time.Since(began), nil
}

// deploy deploys a model of the zoo and waits for the first answer.
func (s *served) deploy(ctx context.Context, name string, subject *rig.Subject, slo time.Duration, limits types.FunctionResources, annotations map[string]string) (*asked, error) {
	image := name + ":latest"
	if err := s.Bundle(subject, image); err != nil {
		return nil, err
	}
	all := map[string]string{"com.openfaas.slo.latency": slo.String(), "com.openfaas.infer.max-batch": "1"}
	for k, v := range annotations {
		all[k] = v
	}
	f := rig.Function(name, image, all)
	if f.Limits = &limits; annotations == nil {
		f.Requests = rig.CPU(limits.CPU) // Otherwise the cheapest share would do.
	}
	fmt.Fprintf(s.Log, "%s: deploying\n", name)
	if err := s.DeployFunction(ctx, f); err != nil {
		return nil, err
	}
	a := &asked{OpenInference: upstream.NewOpenInference(s.URL+"/function/"+name, name)}
	s.client[name] = a
	var err error
	if a.inputs, err = subject.Samples(1); err != nil {
		return nil, err
	}
	return a, s.first(ctx, a)
}

// first waits for the first answer: a model that is cut answers once its plan is known.
func (s *served) first(ctx context.Context, a *asked) error {
	const patience = 15 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		var err error
		if _, a.outputs, err = a.Signature(ctx); err == nil {
			_, err = a.ask(ctx)
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-s.Exited():
			return errors.New("the provider exited")
		case <-time.After(time.Second):
		}
	}
}

// awaitParts waits until all ways to cut the model are known, members of one of them serve and a set
// answers. The first way that is ready serves while the others are prepared, and the quickest
// replaces it.
func (s *served) awaitParts(ctx context.Context, a *asked, members int) ([]rig.InstanceRecord, error) {
	const patience, steady = 15 * time.Minute, 10
	stays := 0
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Second) {
		planning, err := s.planning(ctx, "parts")
		if err != nil {
			return nil, err
		}
		if planning { // Requests would take the cores that it needs.
			continue
		}
		if _, err := a.ask(ctx); err != nil && ctx.Err() != nil {
			return nil, err
		}
		records, err := s.Records()
		if err != nil {
			return nil, err
		}
		n, ways := 0, map[string]bool{}
		for _, r := range records {
			if r.Spec.Set != "" && r.Process.PID > 0 {
				n, ways[r.Spec.Artefact.Name] = n+1, true
			}
		}
		if n < members || n != len(records) || len(ways) != 1 {
			stays = 0
		} else if stays++; stays > steady {
			return records, nil
		}
	}
	return nil, fmt.Errorf("no set of %d members serves after %v", members, patience)
}

// planning reports whether a function's status says that more ways to cut its model are to come.
func (s *served) planning(ctx context.Context, name string) (bool, error) {
	status, err := s.Status(ctx, name)
	if err != nil {
		return false, err
	}
	return status.Annotations != nil && strings.Contains((*status.Annotations)[annotation.InferPlan], "being planned"), nil
}

// median asks a number of times and returns the median in ms.
func (s *served) median(ctx context.Context, a *asked, requests int) (float64, error) {
	var ms []float64
	for range requests {
		took, err := a.ask(ctx)
		if err != nil {
			return 0, err
		}
		ms = append(ms, rig.Milliseconds(took))
	}
	return rig.Median(ms), nil
}

// core is an instance of one core.
func core(memory string) types.FunctionResources {
	return types.FunctionResources{CPU: "1000m", Memory: memory}
}

// fast compares a model on one instance of one core with one that is cut over two, starts the
// set from zero, and kills its workers.
func (s *served) fast(ctx context.Context) error {
	subject, err := rig.NewSubject(s.Fast)
	if err != nil {
		return err
	}
	defer subject.Close()
	whole, err := s.deploy(ctx, "whole", subject, 20*time.Second, core(""), nil)
	if err != nil {
		return err
	}
	if err := s.settled(ctx, "whole"); err != nil {
		return err
	}
	alone, err := s.median(ctx, whole, s.Requests)
	if err != nil {
		return err
	}
	if err := s.Remove(ctx, "whole"); err != nil {
		return err
	}
	parts, err := s.deploy(ctx, "parts", subject, 20*time.Second, core(""), map[string]string{"com.openfaas.infer.partition": "latency", "com.openfaas.infer.partition-instances": "2"})
	if err != nil {
		return err
	}
	if _, err := s.awaitParts(ctx, parts, 2); err != nil {
		return err
	}
	if _, err := s.median(ctx, parts, 3); err != nil { // Caches are cold.
		return err
	}
	together, err := s.median(ctx, parts, s.Requests)
	if err != nil {
		return err
	}
	_, off := partitioning.Difference(parts.answer, whole.answer)
	s.report.Add("served.whole_ms."+s.Fast, alone, "ms", "median through the provider, one instance of one core")
	s.report.Add("served.parts_ms."+s.Fast, together, "ms", "median through the provider, two instances of one core")
	s.report.Add("served.speedup."+s.Fast, alone/together, "", "")
	s.report.Add("served.rel_diff."+s.Fast, off, "", "")
	if err := s.cold(ctx, parts, together); err != nil {
		return err
	}
	return s.killed(ctx, parts)
}

// settled waits until the function's profile is a full one, so nothing is measured beside.
func (s *served) settled(ctx context.Context, name string) error {
	for began := time.Now(); time.Since(began) < 10*time.Minute; time.Sleep(time.Second) {
		value, err := s.FunctionMetric(ctx, "provisional_profile", name)
		if err != nil || value == 0 {
			return err
		}
	}
	return fmt.Errorf("%s has a provisional profile after ten minutes", name)
}

// cut deploys a model that may be cut, with the whole too large for an instance or not.
func (s *served) cut(ctx context.Context, subject *rig.Subject, memory string, members int) (*asked, []rig.InstanceRecord, error) {
	a, err := s.deploy(ctx, "parts", subject, time.Minute, core(memory), map[string]string{"com.openfaas.infer.partition": "latency", "com.openfaas.infer.partition-instances": "8"})
	if err != nil {
		return nil, nil, err
	}
	records, err := s.awaitParts(ctx, a, members)
	return a, records, err
}

// cold measures first answers from zero instances against the members' own starts.
func (s *served) cold(ctx context.Context, a *asked, warm float64) error {
	var over, cold []float64
	const starts = 7
	for range starts {
		if err := errors.Join(s.Scale(ctx, "parts", 0), s.Available(ctx, "parts", 0)); err != nil {
			return err
		}
		took, err := a.ask(ctx)
		if err != nil {
			return err
		}
		records, err := s.Records()
		if err != nil {
			return err
		}
		slowest := time.Duration(0)
		for _, r := range records {
			slowest = max(slowest, r.ReadyAt.Sub(r.StartedAt))
		}
		if slowest <= 0 {
			return errors.New("the records do not say how long the members took to start")
		}
		first := rig.Milliseconds(took) - warm
		cold, over = append(cold, first), append(over, first/rig.Milliseconds(slowest))
	}
	s.report.Add("cold.first_ms."+s.Fast, rig.Median(cold), "ms", fmt.Sprintf("first answer of a set from zero less a warm answer, median of %d", starts))
	s.report.Add("cold.over_slowest", rig.Median(over), "", "of that over the slowest member's own start")
	return nil
}

// killed kills a worker every second while a client asks.
func (s *served) killed(ctx context.Context, a *asked) error {
	if _, err := a.ask(ctx); err != nil {
		return err
	}
	right := a.answer
	const lasts = 30 * time.Second
	requests, unanswered, wrong, kills := 0, 0, 0, 0
	killing, end := context.WithTimeout(ctx, lasts)
	defer end()
	var killer sync.WaitGroup
	killer.Go(func() { kills = s.killWorkers(killing) })
	for killing.Err() == nil {
		requests++
		if _, err := a.ask(ctx); err != nil {
			unanswered++
			fmt.Fprintf(s.Log, "killed: %v\n", err)
			continue
		}
		if _, off := partitioning.Difference(a.answer, right); off > 1e-5 {
			wrong++
		}
	}
	killer.Wait()
	note := fmt.Sprintf("of %d requests, while %d workers were killed", requests, kills)
	s.report.Add("killed.unanswered", float64(unanswered), "", note)
	s.report.Add("killed.wrong", float64(wrong), "", note)
	return nil
}

// killWorkers kills a worker every second until ctx ends, and returns how many.
func (s *served) killWorkers(ctx context.Context) (kills int) {
	tick := time.Tick(time.Second)
	for {
		select {
		case <-ctx.Done():
			return kills
		case <-tick:
		}
		records, _ := s.Records() // A record may be half gone.
		for _, r := range records {
			if r.Spec.Member > 0 && r.Process.PID > 0 && syscall.Kill(r.Process.PID, syscall.SIGKILL) == nil {
				kills++
				break
			}
		}
	}
}

// rnn compares the time of a layer in a recurrent network that is cut and in one that is not
// (Fig. 12).
func (s *served) rnn(ctx context.Context) error {
	perLayer := func(layers int, cut bool) (float64, error) {
		subject, err := rig.NewSubject(fmt.Sprintf("rnn-%d", layers))
		if err != nil {
			return 0, err
		}
		defer subject.Close()
		var a *asked
		if cut {
			a, _, err = s.cut(ctx, subject, s.Limit, 2)
		} else {
			a, err = s.deploy(ctx, "whole", subject, time.Minute, core(""), nil)
			err = errors.Join(err, s.settled(ctx, "whole"))
		}
		if err != nil {
			return 0, err
		}
		if _, err := s.median(ctx, a, 2); err != nil {
			return 0, err
		}
		ms, err := s.median(ctx, a, s.Requests)
		return ms / float64(layers), errors.Join(err, s.Remove(ctx, map[bool]string{true: "parts", false: "whole"}[cut]))
	}
	whole, err := perLayer(s.Layers[1], false)
	if err != nil {
		return err
	}
	cut, err := perLayer(s.Layers[0], true)
	if err != nil {
		return err
	}
	s.report.Add("rnn.whole_ms_per_layer", whole, "ms", fmt.Sprintf("rnn-%d whole", s.Layers[1]))
	s.report.Add("rnn.cut_ms_per_layer", cut, "ms", fmt.Sprintf("rnn-%d in instances of %s", s.Layers[0], s.Limit))
	s.report.Add("rnn.slope_ratio", cut/whole, "", "ms a layer, cut over whole (Fig. 12)")
	return nil
}

// peak is a process's highest resident set in bytes.
func peak(pid int) int64 {
	kib, err := rig.StatusField(pid, "VmHWM")
	if err != nil {
		return 0
	}
	return int64(kib) * 1024
}

// children lists the processes below a process, itself included.
func children(root int) (all []int) {
	parents := map[int]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // It has ended.
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			parents[pid] = parent
		}
	}
	for pid := range parents {
		for p, ok := pid, true; ok; p, ok = parents[p] {
			if p == root {
				all = append(all, pid)
				break
			}
		}
	}
	return all
}
