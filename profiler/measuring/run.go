package measuring

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// runType is the pseudo-operator for the fixed cost of an execution, independent of its
// operators: the call, binding, and memory for the outputs.
const runType = "Run"

// Run is the pseudo-operator of a graph: its features are the sizes of the
// model's inputs and outputs.
func Run(g *operator.Graph) *operator.Operator {
	return &operator.Operator{Type: runType, Inputs: g.Inputs, Outputs: g.Outputs}
}

// widths are the widths, in floats, of the input with which Run is measured.
var widths = []int{1, 1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22}

// MeasureRun measures the rows of Run that the database lacks. It runs batches of one
// through a model of one Identity, in the engine as instances use it, and subtracts the
// Identity's own time.
func (m *Measurer) MeasureRun(ctx context.Context, have func(key string) bool, put func(database.Row) error) error {
	dir, err := os.MkdirTemp("", "faas-infer-run-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	identity, err := zoo.Make("identity", 1)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "model.onnx")
	if err := identity.WriteFile(file); err != nil {
		return err
	}
	engine, err := onnxruntime.Open(onnxruntime.Options{Model: file, Threads: 1})
	if err != nil {
		return err
	}
	defer engine.Close()
	single, err := onnxruntime.OpenSingle(identity, 0, 1)
	if err != nil {
		return err
	}
	defer single.Close()
	for _, width := range widths {
		shape := []operator.Dim{{PerRow: 1}, {Fixed: int64(width)}}
		operand := []operator.Operand{{Type: tensor.FP32, Shape: shape}}
		op := &operator.Operator{Type: runType, Inputs: operand, Outputs: operand}
		if have(op.Key()) {
			continue
		}
		whole, alone, err := m.run(ctx, engine, single, width)
		if err != nil {
			return fmt.Errorf("measure the cost of an execution: %w", err)
		}
		own := max(0, alone.Typical-m.calls.Of(1, 1))
		if err := put(database.Row{
			Operator: op.Key(), Family: op.Family(), Features: op.Features(1), Batch: 1, Millicores: 1000,
			Median: max(resolution, whole.Typical-own), P95: max(resolution, whole.P95-own), CPU: max(resolution, whole.CPU-own),
			Spread: whole.Spread, Runs: max(1, whole.Runs), Noisy: whole.Noisy || alone.Noisy, Engine: m.engine, Machine: m.machine, MeasuredAt: time.Now().UTC(),
		}); err != nil {
			return err
		}
	}
	return nil
}

// run measures the whole execution, and the operator alone.
func (m *Measurer) run(ctx context.Context, engine *onnxruntime.Engine, single *onnxruntime.Single, width int) (whole, alone Sample, err error) {
	in := []tensor.Tensor{{Name: engine.Inputs()[0].Name, Type: tensor.FP32, Shape: []int64{1, int64(width)}, Data: floats(width)}}
	whole, err = m.sampler.Take(ctx, m.budget, nil, func() error {
		_, err := engine.Run(ctx, 1, in)
		return err
	})
	if err != nil {
		return
	}
	if err = single.Bind(in, []tensor.Tensor{{Type: tensor.FP32, Shape: in[0].Shape}}); err != nil {
		return
	}
	alone, err = m.sampler.Take(ctx, m.budget, nil, single.Run)
	return
}
