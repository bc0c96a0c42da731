package bench

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
)

// pythonModels makes the bundles that Run measures.
//
//go:embed models.py
var pythonModels string

// Handler is what a bench of Python's models is asked.
type Handler struct {
	// Throughput says how the MLP and the CNN are loaded; its model does not count.
	Throughput
	// Starts is how many instances are started each way.
	Starts int
	// Only are the parts that are measured, all of [HandlerParts] if empty.
	Only []string
}

// Of the handler process's overhead: so many calls are measured, with so many
// tensors of 1 MiB each.
const (
	overheadCalls   = 200
	overheadTensors = 8
	overheadBytes   = 1 << 20
)

// RunHandler measures what the process beside an instance that runs Python costs: an
// instance's start with a warm process and without, what several processes hold
// together, what a batch of large tensors takes beyond the handler itself, and what batches bring for a small MLP and a
// small CNN that TensorFlow runs.
func RunHandler(ctx context.Context, o rig.Options, p Handler) (*report.Report, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "faas-infer-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	fmt.Fprintln(o.Log, "making the models with TensorFlow")
	env, err := environment.Ensure(ctx, bundle.EngineTensorFlow, "")
	if err != nil {
		return nil, err
	}
	if text, err := exec.CommandContext(ctx, env.Python, "-c", pythonModels, dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make the models: %w: %s", err, text)
	}
	r := report.New("bench python", time.Now())
	for _, part := range parts {
		if len(p.Only) > 0 && !slices.Contains(p.Only, part.name) {
			continue
		}
		if err := part.measure(p, ctx, o, dir, r); err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return r, nil
}

// parts are what Run measures, in order.
var parts = []struct {
	name    string
	measure func(p Handler, ctx context.Context, o rig.Options, dir string, r *report.Report) error
}{
	{"starts", Handler.starts}, {"memory", Handler.memory}, {"overhead", Handler.overhead},
	{"mlp", func(p Handler, ctx context.Context, o rig.Options, dir string, r *report.Report) error {
		return p.batches(ctx, o, dir, "mlp", r)
	}},
	{"cnn", func(p Handler, ctx context.Context, o rig.Options, dir string, r *report.Report) error {
		return p.batches(ctx, o, dir, "cnn", r)
	}},
}

// HandlerParts names what Run measures.
func HandlerParts() (names []string) {
	for _, part := range parts {
		names = append(names, part.name)
	}
	return names
}

// check refuses parts that there are not.
func (p Handler) check() error {
	for _, name := range p.Only {
		if !slices.Contains(HandlerParts(), name) {
			return fmt.Errorf("there is no part %q to measure; they are %s", name, strings.Join(HandlerParts(), ", "))
		}
	}
	return nil
}

// starts measures instances of the MLP from their start until they are ready, with
// and without a warm process in turn.
func (p Handler) starts(ctx context.Context, o rig.Options, dir string, r *report.Report) error {
	prepared, err := o.Models.Prepare(ctx, filepath.Join(dir, "mlp", bundle.ManifestFile))
	if err != nil {
		return err
	}
	read, err := python.Read(prepared)
	if err != nil {
		return err
	}
	warm, err := python.NewWarmth(filepath.Join(dir, "warm"), zerolog.Nop())
	if err != nil {
		return err
	}
	defer warm.Close()
	began := time.Now()
	ready, err := warm.Keep(read)
	if err != nil {
		return err
	}
	<-ready
	imported := time.Since(began)
	var with, without []float64
	for i := range p.Starts {
		for _, way := range []struct {
			warm string
			took *[]float64
		}{{"", &without}, {warm.Dir(), &with}} {
			took, err := startInstance(ctx, o, prepared, way.warm, filepath.Join(dir, "start.sock"))
			if err != nil {
				return err
			}
			*way.took = append(*way.took, rig.Milliseconds(took))
		}
		fmt.Fprintf(o.Log, "start %d of %d: %.0f ms without a warm process, %.0f ms with\n", i+1, p.Starts, without[i], with[i])
	}
	r.Add("start.without_ms", rig.Median(without), "ms", fmt.Sprintf("from an instance's start to ready, %d starts", p.Starts))
	r.Add("start.with_ms", rig.Median(with), "ms", "the same, forked from a process that has TensorFlow imported")
	r.Add("ratio.with_over_without", rig.Median(with)/rig.Median(without), "ratio", "")
	r.Add("warm_process_ms", rig.Milliseconds(imported), "ms", "the warm process's own start, once per node and environment")
	return nil
}

func startInstance(ctx context.Context, o rig.Options, prepared, warm, socket string) (time.Duration, error) {
	began := time.Now()
	c, err := o.Start("instance", "--prepared", prepared, "--name", rig.FunctionName, "--warm", warm, "--listen", "unix://"+socket)
	if err != nil {
		return 0, err
	}
	defer c.Stop()
	err = c.AnswersOver(ctx, socket)
	return time.Since(began), err
}

// overhead measures batches whose handler does nearly nothing and tells how long it
// took.
func (p Handler) overhead(ctx context.Context, o rig.Options, dir string, r *report.Report) error {
	prepared, err := o.Models.Prepare(ctx, filepath.Join(dir, "echo", bundle.ManifestFile))
	if err != nil {
		return err
	}
	read, err := python.Read(prepared)
	if err != nil {
		return err
	}
	engine, err := python.Open(ctx, python.Options{Prepared: read, Threads: 1, Logger: zerolog.Nop()})
	if err != nil {
		return err
	}
	defer engine.Close()
	for _, way := range []struct {
		name, note string
		first      byte
		rows       int
	}{
		{"in", "a batch of 8 requests of 1 MiB, small answers, less the handler's own time", 0, 1},
		{"both", "the same with answers of 8 × 1 MiB", 1, 1},
		{"alone", "one request of 8 × 1 MiB and such an answer", 1, overheadTensors},
	} {
		took, err := echoes(ctx, engine, way.first, way.rows)
		if err != nil {
			return err
		}
		r.Add("overhead."+way.name+"_ms", rig.Median(took), "ms", way.note)
	}
	return nil
}

// echoes times batches of requests with so many rows each as an instance runs them:
// it puts the inputs of several requests together in the engine's memory, which takes
// as long as to do so for an engine in the same process and is not counted, and has a
// single request's copied there.
func echoes(ctx context.Context, engine *python.Engine, first byte, each int) (took []float64, err error) {
	body := make([]byte, overheadTensors*overheadBytes)
	body[0] = first
	rows := slices.Repeat([]int{each}, overheadTensors/each)
	for range overheadCalls {
		data, release := body, func() {}
		if len(rows) > 1 {
			if data, release = engine.Lend(len(body)); data == nil {
				return nil, errors.New("the engine lends no memory")
			}
			copy(data, body)
		}
		inputs := []tensor.Tensor{{Name: "x", Type: tensor.Uint8, Shape: []int64{overheadTensors, overheadBytes}, Data: data}}
		began := time.Now()
		outputs, failed, returned, err := engine.RunLent(ctx, rows, inputs)
		whole := time.Since(began)
		release()
		if err := errors.Join(append(failed, err)...); err != nil {
			return nil, err
		}
		own := math.Float64frombits(binary.LittleEndian.Uint64(outputs[0][1].Data))
		returned()
		took = append(took, rig.Milliseconds(whole)-own/1000)
	}
	return took, nil
}

// batches compares the highest rates within the objective of batches and of
// requests one by one.
func (p Handler) batches(ctx context.Context, o rig.Options, dir, name string, r *report.Report) error {
	s := &rig.Subject{Name: name, File: filepath.Join(dir, name, bundle.ManifestFile), Dir: dir}
	var prepared string
	var profile *profiler.Profile
	fmt.Fprintf(o.Log, "measuring %s on core %d\n", name, p.Core)
	err := rig.RunOnCore(p.Core, func() (err error) {
		prepared, profile, err = o.Models.Measure(ctx, s.File, p.MaxBatch, p.SLO)
		return err
	})
	if err != nil {
		return err
	}
	if s.Inputs, err = inputsOf(ctx, prepared); err != nil {
		return err
	}
	table := profile.Table(p.MaxBatch, 1000)
	if len(table) == 0 || table[0] > p.SLO {
		return fmt.Errorf("one request takes %v on one core: no rate meets an SLO of %v", table, p.SLO)
	}
	rates := map[string]float64{}
	for policy, key := range map[string]string{batching.SharedName: "batched", batching.OneToOneName: "one_to_one"} {
		found, err := p.Policy(ctx, o, s, prepared, table, policy)
		if err != nil {
			return fmt.Errorf("policy %s: %w", policy, err)
		}
		rates[key] = found.Rate
		r.Add(name+".max_rps."+key, found.Rate, "requests/s", fmt.Sprintf("p99 %.1f ms, within %v %.2f %%", rig.Milliseconds(found.Best.Latency.P99), p.SLO, 100*found.Best.WithinSLO))
	}
	r.Add(name+".ratio.batched_over_one_to_one", rates["batched"]/rates["one_to_one"], "ratio", "")
	return nil
}

func inputsOf(ctx context.Context, prepared string) ([]tensor.Info, error) {
	read, err := python.Read(prepared)
	if err != nil {
		return nil, err
	}
	engine, err := python.Open(ctx, python.Options{Prepared: read, Threads: 1, Logger: zerolog.Nop()})
	if err != nil {
		return nil, err
	}
	return engine.Inputs(), engine.Close()
}
