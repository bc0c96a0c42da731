package onnxruntime

import (
	"context"
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

// measure loads a form and runs it.
func measure(f form) (measurement, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var m measurement
	times := loadTimes
	if f.save != "" {
		times = 1 // Each writes the whole model.
	}
	for i := 0; i < times; i++ {
		start := ThreadTime()
		e, err := open(f, 1)
		if err != nil {
			return measurement{}, err
		}
		took := ThreadTime() - start
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
	return m, nil
}

func (m *measurement) runs(e *Engine) error {
	two := e.signature.sample(2)
	outputs, err := e.Run(context.Background(), int(two[0].Shape[0]), two)
	if err != nil {
		return err
	}
	m.outputs = outputs
	one := e.signature.sample(1)
	begin := time.Now()
	for i := 0; i < runTimes && (i < 1 || time.Since(begin) < runBudget/2 || i < 2 && time.Since(begin) < runBudget); i++ {
		start := ThreadTime()
		if _, err := e.Run(context.Background(), 1, one); err != nil {
			return err
		}
		if took := ThreadTime() - start; i == 0 || took < m.run {
			m.run = took
		}
	}
	return nil
}

// ThreadTime returns the CPU time of the calling thread, on which an engine with one thread
// computes.
func ThreadTime() time.Duration { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

// clock reads a clock of the system.
func clock(id int32) time.Duration {
	var used unix.Timespec
	if err := unix.ClockGettime(id, &used); err != nil { // It fails only for wrong arguments.
		panic(err)
	}
	return time.Duration(used.Nano())
}

// Sample makes a batch of inputs that the model takes: one request for a model that takes one
// an execution, however many rows are asked for.
func (e *Engine) Sample(rows int) []tensor.Tensor { return e.signature.sample(rows) }

// Warm runs rows of made-up inputs and returns how long that took. The first run
// allocates activations and pages the weights in.
func (e *Engine) Warm(ctx context.Context, rows int) (time.Duration, error) {
	inputs := e.signature.sample(rows)
	start := time.Now()
	_, err := e.Run(ctx, int(inputs[0].Shape[0]), inputs)
	return time.Since(start), err
}
