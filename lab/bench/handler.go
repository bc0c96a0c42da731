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

// pythonModels makes the bundles that RunHandler measures.
//
//go:embed models.py
var pythonModels string

// Handler are the options of [RunHandler].
type Handler struct {
	// Throughput says how the MLP and the CNN are loaded; its Model is ignored.
	Throughput
	// Starts is the number of instance starts with and without a warm process.
	Starts int
	// Only are the parts to measure, all of [HandlerParts] if empty.
	Only []string
}

// The number of measured calls of the handler process, of tensors in a call, and of bytes
// in a tensor (1 MiB).
const (
	overheadCalls   = 200
	overheadTensors = 8
	overheadBytes   = 1 << 20
)

// RunHandler measures what the Python process beside an instance costs: an instance's start
// with and without a warm process, the memory of several processes together, and the time
// that a batch of large tensors takes beyond the handler's own. It also measures how much
// batches raise the rate of a small MLP and a small CNN that TensorFlow runs.
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

// parts are the parts of RunHandler, in order.
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

// HandlerParts lists the names of RunHandler's parts.
func HandlerParts() (names []string) {
	for _, part := range parts {
		names = append(names, part.name)
	}
	return names
}

// check refuses unknown parts.
func (p Handler) check() error {
	for _, name := range p.Only {
		if !slices.Contains(HandlerParts(), name) {
			return fmt.Errorf("--only: there is no part %q; the parts are %s", name, strings.Join(HandlerParts(), ", "))
		}
	}
	return nil
}

// starts times instances of the MLP from their start until they are ready, with and without
// a warm process in turn.
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

// overhead measures batches whose handler does nearly nothing and returns its own time.
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

// echoes times batches of requests with each rows as an instance runs them, without the
// handler's own time. It joins the inputs of several requests in the engine's memory. This
// takes as long as for an engine in the same process and is not timed. The input of a
// single request is copied there by the engine, which is timed.
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

// batches compares the highest rate within the objective in batches to that of one request
// at a time.
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
	table := profile.Table(p.MaxBatch, profiler.Share{CPU: 1000})
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
