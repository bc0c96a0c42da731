package measuring

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
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
	lstm, err := zoo.Make("lstm-2365", 1)
	if err != nil {
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
	for _, op := range slices.Concat(extendedModel(t, lstm).Operators, extendedModel(t, asGRU(t, lstm)).Operators) {
		if op.Unknown {
			continue
		}
		if err := m.Operator(t.Context(), op, []int{1, 4}, func(r database.Row) error { rows[op.Type]++; return nil }); err != nil {
			t.Errorf("%s: %v", op.Type, err)
		}
	}
	if rows["LSTM"] < 2 || rows["GRU"] < 2 || runs == 0 {
		t.Errorf("%v after %d runs", rows, runs)
	}
}

// asGRU has a GRU, with three gates, in the place of each LSTM, with four.
func asGRU(t *testing.T, m *model.Model) *model.Model {
	t.Helper()
	file := filepath.Join(t.TempDir(), "lstm.onnx") // It has the weights in full.
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	m, err := model.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := proto.CloneOf(m.Proto())
	for _, n := range all.GetGraph().Node {
		if n.GetOpType() != "LSTM" {
			continue
		}
		n.OpType = proto.String("GRU")
		for _, w := range all.GetGraph().Initializer {
			if slices.Contains(n.Input[1:], w.GetName()) {
				w.Dims[1] = w.Dims[1] / 4 * 3
				w.RawData = w.RawData[:len(w.RawData)/4*3]
			}
		}
	}
	gru, err := model.FromProto(all)
	if err != nil {
		t.Fatal(err)
	}
	return gru
}
