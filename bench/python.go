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
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/report"
)

// pythonModels makes the bundles that RunPython measures.
//
//go:embed python_models.py
var pythonModels string

// Python is what a bench of Python's models is asked.
type Python struct {
	// Throughput says how the MLP and the CNN are loaded; its model does not count.
	Throughput
	// Starts is how many instances are started each way.
	Starts int
}

// Of the handler process's overhead: so many calls are measured, with so many
// tensors of 1 MiB each.
const (
	overheadCalls   = 200
	overheadTensors = 8
	overheadBytes   = 1 << 20
)

// RunPython measures what the process beside an instance that runs Python costs: an
// instance's start with a warm process and without, what a batch of large tensors
// takes beyond the handler itself, and what batches bring for a small MLP and a
// small CNN that TensorFlow runs.
func RunPython(ctx context.Context, o Options, p Python) (*report.Report, error) {
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
	if err := p.starts(ctx, o, dir, r); err != nil {
		return nil, fmt.Errorf("cold starts: %w", err)
	}
	if err := p.overhead(ctx, o, dir, r); err != nil {
		return nil, fmt.Errorf("overhead: %w", err)
	}
	for _, name := range []string{"mlp", "cnn"} {
		if err := p.batches(ctx, o, dir, name, r); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r, nil
}

// starts measures instances of the MLP from their start until they are ready, with
// and without a warm process in turn.
func (p Python) starts(ctx context.Context, o Options, dir string, r *report.Report) error {
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
			took, err := o.startInstance(ctx, prepared, way.warm, filepath.Join(dir, "start.sock"))
			if err != nil {
				return err
			}
			*way.took = append(*way.took, milliseconds(took))
		}
		fmt.Fprintf(o.Log, "start %d of %d: %.0f ms without a warm process, %.0f ms with\n", i+1, p.Starts, without[i], with[i])
	}
	r.Add("start.without_ms", median(without), "ms", fmt.Sprintf("from an instance's start to ready, %d starts", p.Starts))
	r.Add("start.with_ms", median(with), "ms", "the same, forked from a process that has TensorFlow imported")
	r.Add("ratio.with_over_without", median(with)/median(without), "ratio", "")
	r.Add("warm_process_ms", milliseconds(imported), "ms", "the warm process's own start, once per node and environment")
	return nil
}

func (o Options) startInstance(ctx context.Context, prepared, warm, socket string) (time.Duration, error) {
	began := time.Now()
	c, err := o.start("instance", "--prepared", prepared, "--name", functionName, "--warm", warm, "--listen", "unix://"+socket)
	if err != nil {
		return 0, err
	}
	defer c.stop()
	err = c.answersOver(ctx, socket)
	return time.Since(began), err
}

// overhead measures batches whose handler does nearly nothing and tells how long it
// took.
func (p Python) overhead(ctx context.Context, o Options, dir string, r *report.Report) error {
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
	}{{"in", "a batch of 8 × 1 MiB, small answers, less the handler's own time", 0}, {"both", "the same with answers of 8 × 1 MiB", 1}} {
		took, err := echoes(ctx, engine, way.first)
		if err != nil {
			return err
		}
		r.Add("overhead."+way.name+"_ms", median(took), "ms", way.note)
	}
	return nil
}

func echoes(ctx context.Context, engine *python.Engine, first byte) (took []float64, err error) {
	data := make([]byte, overheadTensors*overheadBytes)
	data[0] = first
	inputs := []tensor.Tensor{{Name: "x", Type: tensor.Uint8, Shape: []int64{overheadTensors, overheadBytes}, Data: data}}
	rows := make([]int, overheadTensors)
	for i := range rows {
		rows[i] = 1
	}
	for range overheadCalls {
		began := time.Now()
		outputs, failed, err := engine.RunRequests(ctx, rows, inputs)
		whole := time.Since(began)
		if err := errors.Join(append(failed, err)...); err != nil {
			return nil, err
		}
		own := math.Float64frombits(binary.LittleEndian.Uint64(outputs[0][1].Data))
		took = append(took, milliseconds(whole)-own/1000)
	}
	return took, nil
}

// batches compares the highest rates within the objective of batches and of
// requests one by one.
func (p Python) batches(ctx context.Context, o Options, dir, name string, r *report.Report) error {
	s := &subject{name: name, file: filepath.Join(dir, name, bundle.ManifestFile), dir: dir}
	var prepared string
	var profile *profiler.Profile
	fmt.Fprintf(o.Log, "measuring %s on core %d\n", name, p.Core)
	err := onCore(p.Core, func() (err error) {
		prepared, profile, err = o.Models.Measure(ctx, s.file, p.MaxBatch, p.SLO)
		return err
	})
	if err != nil {
		return err
	}
	if s.inputs, err = inputsOf(ctx, prepared); err != nil {
		return err
	}
	table := profile.Table(p.MaxBatch, 1000)
	if len(table) == 0 || table[0] > p.SLO {
		return fmt.Errorf("one request takes %v on one core: no rate meets an SLO of %v", table, p.SLO)
	}
	rates := map[string]float64{}
	for policy, key := range map[string]string{batching.SharedName: "batched", batching.OneToOneName: "one_to_one"} {
		found, err := p.policy(ctx, o, s, prepared, table, policy)
		if err != nil {
			return fmt.Errorf("policy %s: %w", policy, err)
		}
		rates[key] = found.rate
		r.Add(name+".max_rps."+key, found.rate, "requests/s", fmt.Sprintf("p99 %.1f ms, within %v %.2f %%", milliseconds(found.best.Latency.P99), p.SLO, 100*found.best.WithinSLO))
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
