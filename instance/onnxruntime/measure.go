package onnxruntime

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// measurement holds the costs of one form of a model, and its outputs.
type measurement struct {
	// load and run are CPU times, the minimum of several tries: other work on the
	// machine can only add to them.
	load, run time.Duration
	outputs   []tensor.Tensor
}

const (
	loadTimes = 3
	// longLoad is the CPU time of a load above which one measurement is enough: other
	// work hardly changes it.
	longLoad = 200 * time.Millisecond
	runTimes = 8
	// runBudget ends the runs of large models early.
	runBudget = 400 * time.Millisecond
	// manyWeights is the size of weights in bytes above which instances should always
	// share them.
	manyWeights = 64 << 20
	// slower is the factor up to which a slower form still counts as equally fast. Two
	// equal forms differ by less on a busy machine.
	slower = 1.25
	// sooner and soonerAtLeast say how much sooner a form must load to replace one that
	// shares more memory: by this factor and by this time.
	sooner        = 1.5
	soonerAtLeast = 10 * time.Millisecond
	// tolerance is the maximum difference between the outputs of a prepared model and
	// of the original one: relative for values above 1, absolute below.
	tolerance = 1e-4
)

// better reports whether m replaces the form kept so far, which shares more memory. It
// does if that one runs clearly slower, or if m is about as fast and loads much sooner.
func (m measurement) better(than measurement) bool {
	if float64(than.run) > slower*float64(m.run) {
		return true
	}
	return float64(m.run) <= slower*float64(than.run) &&
		float64(than.load) > sooner*float64(m.load) && than.load-m.load > soonerAtLeast
}

// settled reports whether the packed form in dir is final without a look at ONNX
// Runtime's own format. It is if the form runs at full speed and its weights are large
// enough that instances should share them. Writing a large model once more would take
// seconds, while a client waits for it.
func (m measurement) settled(plain measurement, dir string) bool {
	info, err := os.Stat(filepath.Join(dir, weightsFile))
	return err == nil && info.Size() >= manyWeights && float64(m.run) <= slower*float64(plain.run)
}

// measure loads a form and runs it. With a reference, it fails if the outputs differ
// from the reference's.
func measure(f form, reference *measurement) (measurement, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var m measurement
	times := loadTimes
	if f.save != "" {
		times = 1 // Each writes the whole model.
	}
	for i := 0; i < times; i++ {
		start := processorTime()
		e, err := open(f, 1)
		if err != nil {
			return measurement{}, err
		}
		took := processorTime() - start
		if i == 0 || took < m.load {
			m.load = took
		}
		if took > longLoad {
			times = i + 1
		}
		if i == times-1 {
			err = m.runs(e)
		}
		e.Close()
		if err != nil {
			return measurement{}, err
		}
	}
	if reference != nil {
		return m, same(reference.outputs, m.outputs)
	}
	return m, nil
}

func (m *measurement) runs(e *Engine) error {
	const rows = 2
	outputs, err := e.Run(context.Background(), rows, sample(e.Inputs(), rows))
	if err != nil {
		return err
	}
	m.outputs = outputs
	one := sample(e.Inputs(), 1)
	begin := time.Now()
	for i := 0; i < runTimes && (i < 1 || time.Since(begin) < runBudget/2 || i < 2 && time.Since(begin) < runBudget); i++ {
		start := processorTime()
		if _, err := e.Run(context.Background(), 1, one); err != nil {
			return err
		}
		if took := processorTime() - start; i == 0 || took < m.run {
			m.run = took
		}
	}
	return nil
}

// processorTime returns the CPU time of the calling thread, on which an engine with one
// thread computes.
func processorTime() time.Duration {
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used); err != nil { // It fails only for wrong arguments.
		panic(err)
	}
	return time.Duration(used.Nano())
}

// freeDimension is the size that sample gives to dynamic dimensions other than the
// batch.
const freeDimension = 16

// sample makes inputs that any model takes: real numbers in [0,1), and 0 or 1 for
// integers, which may be masks or indices. Strings are these digits.
func sample(inputs []tensor.Info, rows int) []tensor.Tensor {
	random := rand.New(rand.NewPCG(1, 2))
	out := make([]tensor.Tensor, len(inputs))
	for i, in := range inputs {
		shape := append([]int64{int64(rows)}, in.Shape[1:]...)
		n := 1
		for j := range shape {
			if shape[j] < 0 {
				shape[j] = freeDimension
			}
			n *= int(shape[j])
		}
		var data []byte
		for range n {
			data = in.Type.Append(data, sampled(in.Type, random))
		}
		out[i] = tensor.Tensor{Name: in.Name, Type: in.Type, Shape: shape, Data: data}
	}
	return out
}

// sampled is one element of a sample.
func sampled(t tensor.Type, random *rand.Rand) float64 {
	switch t {
	case tensor.FP32:
		return float64(random.Float32())
	case tensor.FP64:
		return random.Float64()
	case tensor.FP16, tensor.BF16:
		return 0.5 * float64(random.IntN(2))
	}
	return float64(random.IntN(2))
}

// same compares two runs' outputs.
func same(want, got []tensor.Tensor) error {
	for i := range want {
		if len(got[i].Data) != len(want[i].Data) {
			return fmt.Errorf("output %q has %d bytes, but the original model's has %d",
				want[i].Name, len(got[i].Data), len(want[i].Data))
		}
		size := want[i].Type.Size()
		if size == 0 && !bytes.Equal(want[i].Data, got[i].Data) {
			return fmt.Errorf("output %q has other strings than the original model's", want[i].Name)
		}
		for at := 0; size > 0 && at < len(want[i].Data); at += size {
			w, g := want[i].Type.Number(want[i].Data[at:]), want[i].Type.Number(got[i].Data[at:])
			if !near(w, g) {
				return fmt.Errorf("output %q differs from the model's own: %g, not %g", want[i].Name, g, w)
			}
		}
	}
	return nil
}

func near(w, g float64) bool {
	if math.IsNaN(w) || math.IsInf(w, 0) {
		return g == w || math.IsNaN(g) && math.IsNaN(w)
	}
	return math.Abs(w-g) <= tolerance*math.Max(1, math.Abs(w))
}

// Warm runs rows of made-up inputs and returns how long that took. The first run
// allocates activations and pages the weights in.
func (e *Engine) Warm(ctx context.Context, rows int) (time.Duration, error) {
	inputs := sample(e.Inputs(), rows)
	start := time.Now()
	_, err := e.Run(ctx, rows, inputs)
	return time.Since(start), err
}
