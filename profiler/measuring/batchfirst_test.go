package measuring

import (
	"context"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/database"
)

// onCPU is an engine on the CPU in the place of one on a GPU. Like that, it takes only models whose
// inputs and outputs have the batch first.
type onCPU struct {
	*onnxruntime.Engine
	runs *int
}

func (e onCPU) Prepare(ctx context.Context, rows int, inputs []tensor.Tensor) error {
	_, err := e.Engine.Run(ctx, rows, inputs)
	*e.runs++
	return err
}
func (e onCPU) Repeat(context.Context) (profiler.DeviceTimes, error) { return e.Times(), nil }
func (e onCPU) Times() profiler.DeviceTimes                          { return profiler.DeviceTimes{Compute: 50} }

// Recurrent operators and those around them, whose batch is the second dimension, are measured alone.
func TestRecurrentOnGPU(t *testing.T) {
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	runs, rows := 0, map[string]int{}
	m := &OnGPU{
		Percent: 50, Engine: "e", Machine: "m", CPU: func() time.Duration { return 0 }, Window: time.Millisecond, MaxTime: 10 * time.Millisecond, directory: t.TempDir(),
		Open: func(file string, _ int) (DeviceEngine, error) {
			e, err := onnxruntime.Open(onnxruntime.Options{Model: file, Threads: 1})
			return onCPU{e, &runs}, err
		},
	}
	for _, op := range extended(t, "lstm-2365").Operators {
		if op.Unknown {
			continue
		}
		if err := m.Operator(t.Context(), op, []int{1, 4}, func(r database.Row) error { rows[op.Type]++; return nil }); err != nil {
			t.Errorf("%s: %v", op.Type, err)
		}
	}
	if rows["LSTM"] < 2 || runs == 0 {
		t.Errorf("%v after %d runs", rows, runs)
	}
}
