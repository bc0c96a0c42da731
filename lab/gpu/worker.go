package gpu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/instance/cuda"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
)

// Work is the work of one process on its share of a GPU.
type Work struct {
	// Model is a model file; "" is a kernel of multiply-adds.
	Model string
	// Batch is the number of requests in one execution of the model.
	Batch int
	// Each is how long the process works.
	Each time.Duration
	// CPU runs the model on the CPU, to try the bench without a GPU.
	CPU bool
	// Plain runs without CUDA graphs, and Exhaustive tries all algorithms of convolutions: see
	// [cuda.Options].
	Plain, Exhaustive bool
	// Check compares the answers with the CPU's.
	Check bool
	// Copies is where the model optimised for the GPU is kept, "" for nowhere.
	Copies string
	// Standby warms the process up before it opens the model, as one that stands by.
	Standby bool
	// Limit is the time of an execution up to which it counts in [Outcome.Within], 0 for any.
	Limit time.Duration
}

// Outcome is the result of a process's work.
type Outcome struct {
	// SMs is the number of multiprocessors that a kernel could use.
	SMs int `json:"sms,omitzero"`
	// GFLOPS is the computation rate of a kernel.
	GFLOPS float64 `json:"gflops,omitzero"`
	// Runs is the number of executions, Within that of those that took no longer than the limit.
	// Median and P99 are their times in ms.
	Runs   int     `json:"runs"`
	Within int     `json:"within"`
	Median float64 `json:"median_ms"`
	P99    float64 `json:"p99_ms"`
	// Copies and computation on the device in µs, medians, and the process's CPU time per run.
	In      float64 `json:"in_us,omitzero"`
	Compute float64 `json:"compute_us,omitzero"`
	Out     float64 `json:"out_us,omitzero"`
	CPU     float64 `json:"cpu_us,omitzero"`
	// Memory is what the engine holds of the device, without the CUDA context.
	Memory int64 `json:"memory_bytes,omitzero"`
	// Weights says where the model's large weights are.
	Weights cuda.Weights `json:"weights"`
	// Own and Mapped are what the process holds of the host's memory in bytes: without and with a file
	// behind it, such as libraries and mapped weights.
	Own    int64 `json:"own_bytes"`
	Mapped int64 `json:"mapped_bytes"`
	// Graphs says whether runs launch CUDA graphs, WhyNot why they do not.
	Graphs bool   `json:"graphs"`
	WhyNot string `json:"why_not,omitzero"`
	// Difference is the largest difference to the CPU's answers, next to the largest number of
	// each output.
	Difference *float64 `json:"difference,omitzero"`
	// Nodes are the numbers of nodes by type of the graph of each batch size.
	Nodes map[int]map[string]int `json:"nodes,omitempty"`
	// Warm is how long the process warmed up in ms, if it did. First is the time in ms from then, which
	// is that of an order to a standby, to the first answer of one row.
	Warm  float64 `json:"warm_ms,omitzero"`
	First float64 `json:"first_answer_ms,omitzero"`
	// Load is how long the engine's opening took in ms. Stages are its parts, and those of the
	// preparation after it.
	Load   float64      `json:"load_ms,omitzero"`
	Stages []cuda.Stage `json:"stages,omitempty"`
	// During are the times in ms of single runs of the batch from the opening to the end of the
	// preparation: their number, median and maximum.
	During *During `json:"during,omitempty"`
}

// During are runs outside the engine's preparation, with their times in ms.
type During struct {
	Runs   int     `json:"runs"`
	Median float64 `json:"median_ms"`
	Most   float64 `json:"most_ms"`
}

// ready is the line that a process writes when it waits for the start.
const ready = "ready"

// task is work that can be repeated. run returns the number of floating-point operations, 0 for
// a model.
type task struct {
	run   func(context.Context) (float64, error)
	close func()
	// engine is set for a model on the GPU.
	engine *cuda.Engine
	inputs []tensor.Tensor
	sms    int
	// warm and first are as in Outcome.
	warm, first time.Duration
}

// Do warms up, writes ready, waits for a line, works, and writes the outcome as JSON. The
// line starts several processes at the same time. The end of in starts it, too.
func (w Work) Do(ctx context.Context, in io.Reader, out io.Writer) error {
	t, err := w.open()
	if err != nil {
		return err
	}
	defer t.close()
	during, err := t.prepare(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, ready); err != nil {
		return err
	}
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("wait for the start: %w", err)
	}
	o, err := w.measure(ctx, t)
	if err != nil {
		return err
	}
	o.During = during
	if err := w.describe(ctx, t, &o); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(o)
}

// prepare runs until the engine has prepared all batch sizes, and three times in any case.
func (t *task) prepare(ctx context.Context) (*During, error) {
	var times []float64
	for {
		done := t.engine == nil
		if !done {
			now, cancel := context.WithCancel(ctx)
			cancel()
			done = t.engine.Wait(now) == nil
		}
		if done && len(times) >= 3 {
			break
		}
		at := time.Now()
		if _, err := t.run(ctx); err != nil {
			return nil, err
		}
		times = append(times, float64(time.Since(at))/float64(time.Millisecond))
	}
	if t.engine == nil {
		return nil, nil
	}
	return &During{Runs: len(times), Median: profiler.Quantile(times, 0.5), Most: slices.Max(times)}, nil
}

// measure repeats the task.
func (w Work) measure(ctx context.Context, t *task) (o Outcome, err error) {
	var times, in, compute, result []float64
	operations, begin, before := 0.0, time.Now(), processorTime()
	for time.Since(begin) < w.Each && ctx.Err() == nil {
		at := time.Now()
		n, err := t.run(ctx)
		if err != nil {
			return o, err
		}
		operations += n
		if w.Limit == 0 || time.Since(at) <= w.Limit {
			o.Within++
		}
		times = append(times, float64(time.Since(at))/float64(time.Millisecond))
		if t.engine != nil {
			on := t.engine.Times()
			in, compute, result = append(in, on.In), append(compute, on.Compute), append(result, on.Out)
		}
	}
	if len(times) == 0 {
		return o, fmt.Errorf("no execution finished: %w", context.Cause(ctx))
	}
	o.CPU = float64(processorTime()-before) / float64(time.Microsecond) / float64(len(times))
	o.GFLOPS = operations / time.Since(begin).Seconds() / 1e9
	o.SMs, o.Runs, o.Median, o.P99 = t.sms, len(times), profiler.Quantile(times, 0.5), profiler.Quantile(times, 0.99)
	if t.engine != nil {
		o.In, o.Compute, o.Out = profiler.Quantile(in, 0.5), profiler.Quantile(compute, 0.5), profiler.Quantile(result, 0.5)
	}
	return o, nil
}

// describe adds what the engine says of itself.
func (w Work) describe(ctx context.Context, t *task, o *Outcome) (err error) {
	if t.engine == nil {
		return nil
	}
	o.Graphs, o.WhyNot, o.Nodes = t.engine.Graphs(), t.engine.WhyNot(), t.engine.Nodes()
	o.Weights = t.engine.Weights()
	o.Warm, o.First = milliseconds(t.warm), milliseconds(t.first)
	o.Load, o.Stages = milliseconds(t.engine.Opened()), t.engine.Stages()
	o.Own, o.Mapped = resident()
	if o.Memory, err = t.engine.Memory(); err != nil || !w.Check {
		return err
	}
	difference, err := w.compare(ctx, t)
	o.Difference = &difference
	return err
}

// compare runs the model on the CPU, too, and returns the largest difference.
func (w Work) compare(ctx context.Context, t *task) (most float64, err error) {
	got, err := t.engine.Run(ctx, w.Batch, t.inputs)
	if err != nil {
		return 0, err
	}
	e, err := openCPU(w.Model)
	if err != nil {
		return 0, err
	}
	defer e.Close()
	want, err := e.Run(ctx, w.Batch, t.inputs)
	if err != nil {
		return 0, err
	}
	for i := range want {
		most = max(most, cuda.Difference(got[i], want[i]))
	}
	return most, nil
}

// processorTime is the CPU time of the process.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// resident returns the process's memory in bytes, without and with files behind it.
func resident() (own, mapped int64) {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		var kib int64
		if _, err := fmt.Sscan(value, &kib); err != nil {
			continue
		}
		switch name {
		case "RssAnon":
			own = kib << 10
		case "RssFile":
			mapped = kib << 10
		}
	}
	return own, mapped
}

func openCPU(file string) (*onnxruntime.Engine, error) {
	if err := onnxruntime.Load(""); err != nil {
		return nil, err
	}
	return onnxruntime.Open(onnxruntime.Options{Model: file, Threads: 1})
}

// open prepares the work.
func (w Work) open() (*task, error) {
	if w.Model != "" {
		return w.openModel()
	}
	b, err := cuda.OpenBurner()
	if err != nil {
		return nil, err
	}
	const rounds = 20_000 // A few milliseconds on a whole GPU.
	run := func(context.Context) (float64, error) { return b.Run(rounds) }
	return &task{run: run, close: b.Close, sms: b.SMs}, nil
}

func (w Work) openModel() (*task, error) {
	m, err := model.ReadOutline(w.Model)
	if err != nil {
		return nil, err
	}
	inputs, err := m.SampleInputs(w.Batch, 1)
	if err != nil {
		return nil, err
	}
	content := "" // Like a provider, know it before.
	if w.Copies != "" {
		if content, err = model.ContentHash(w.Model); err != nil {
			return nil, err
		}
	}
	t := &task{inputs: inputs}
	if w.CPU {
		engine, err := openCPU(w.Model)
		if err != nil {
			return nil, err
		}
		return t.with(engine, w.Batch), nil
	}
	began := time.Now()
	if w.Standby {
		if err := cuda.Warm(""); err != nil {
			return nil, err
		}
		t.warm = time.Since(began)
		began = time.Now()
	}
	o := cuda.Options{Model: w.Model, MaxBatch: w.Batch, Plain: w.Plain, Exhaustive: w.Exhaustive, Copies: w.Copies, Content: content}
	if t.engine, err = cuda.Open(o); err != nil {
		return nil, err
	}
	t.with(t.engine, w.Batch)
	one, err := m.SampleInputs(1, 1)
	if err == nil {
		_, err = t.engine.Run(context.Background(), 1, one)
	}
	t.first = time.Since(began)
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// with makes the task run batches of an engine.
func (t *task) with(engine interface {
	Run(context.Context, int, []tensor.Tensor) ([]tensor.Tensor, error)
	Close() error
}, batch int) *task {
	t.close = func() { _ = engine.Close() } // The process ends after this.
	t.run = func(ctx context.Context) (float64, error) {
		_, err := engine.Run(ctx, batch, t.inputs)
		return 0, err
	}
	return t
}
