package measuring

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/cop"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/operator"
	"github.com/faas-infer/faas-infer/profiler/regression"
)

// asGPU is the CPU's engine as an ideal GPU: a node of a model takes 10 µs and a launch 7.
type asGPU struct {
	*onnxruntime.Engine
	nodes int
}

func (e asGPU) Prepare(ctx context.Context, rows int, inputs []tensor.Tensor) error {
	_, err := e.Run(ctx, rows, inputs)
	return err
}
func (e asGPU) Repeat(context.Context) (profiler.DeviceTimes, error) { return e.Times(), nil }
func (e asGPU) Times() profiler.DeviceTimes {
	return profiler.DeviceTimes{In: 3, Compute: 7 + 10*float64(e.nodes), Out: 2}
}

func ideal(percent int) *OnGPU {
	return &OnGPU{
		Percent: percent, Engine: "engine cuda", Machine: "gpu", CPU: func() time.Duration { return 0 }, Window: time.Microsecond, MaxTime: time.Microsecond,
		Open: func(file string, _ int) (DeviceEngine, error) {
			m, err := model.ReadFile(file)
			if err != nil {
				return nil, err
			}
			e, err := onnxruntime.Open(onnxruntime.Options{Model: file, Threads: 1})
			return asGPU{e, len(m.Proto().GetGraph().GetNode())}, err
		},
	}
}

// Each operator of a model takes the time of one node, whatever the number of copies, and the
// model the sum.
func TestOperatorsOnGPU(t *testing.T) {
	engine(t)
	g := extended(t, "mnist")
	var db database.Database
	put := func(r database.Row) error { db.Add(r); return r.Validate() }
	for _, percent := range []int{50, 100} {
		m := ideal(percent)
		if err := m.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		near(t, "a launch", m.launch, 7)
		if err := m.Fixed(t.Context(), put); err != nil {
			t.Fatal(err)
		}
		fixed := m.Spent.Models
		for _, op := range g.Operators {
			if err := m.Operator(t.Context(), op, []int{1, 4}, put); err != nil {
				t.Fatal(err)
			}
			for _, r := range db.Lookup("engine cuda", "gpu", op.Key()) {
				if want := map[bool]float64{true: resolution, false: 10}[op.View]; math.Abs(r.Median-want) > 1e-9 || r.CPU != 0 {
					t.Errorf("%s: %+v", op.Type, r)
				}
			}
		}
		// Each operator is one model, whatever the number of batch sizes.
		moving := slices.DeleteFunc(slices.Clone(g.Operators), func(op *operator.Operator) bool { return op.View })
		if n := m.Spent.Models - fixed; n != len(moving) || fixed != 2+len(widths) {
			t.Errorf("%d models for %d operators, %d for the rest", n, len(moving), fixed)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	s := regression.NewShares(db.Rows("engine cuda", "gpu"))
	p, err := cop.Predict(g, s.On(70), cop.Options{Batches: []int{1, 2, 4}, Threads: []int{1}, GPU: 70, Engine: cop.ONNXRuntime, Run: Run(g), In: CopyIn(g), Out: CopyOut(g)})
	if err != nil || len(p.Missing)+len(p.Lacking) > 0 {
		t.Fatalf("%v, missing %v, lacking %v", err, p.Missing, p.Lacking)
	}
	for _, c := range p.Configs {
		nodes := 0.0
		for _, n := range g.Nodes {
			if !g.Operators[n.Operator].View {
				nodes++
			}
		}
		if c.In.Median < 2.9 || c.In.Median > 3.1 || c.Out.Median < 1.9 || c.Out.Median > 2.1 || c.Median < 10*nodes+5+c.Run.Median*0.99 {
			t.Errorf("b = %d: %v µs, in %v, out %v, run %v", c.Batch, c.Median, c.In.Median, c.Out.Median, c.Run.Median)
		}
	}
}

// extended is the graph of a zoo model that a GPU runs.
func extended(t *testing.T, name string) *operator.Graph {
	t.Helper()
	m, err := zoo.Make(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	return extendedModel(t, m)
}

// extendedModel is extended of a model.
func extendedModel(t *testing.T, m *model.Model) *operator.Graph {
	t.Helper()
	file, graph := filepath.Join(t.TempDir(), "model.onnx"), filepath.Join(t.TempDir(), "graph.onnx")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	if err := onnxruntime.SaveExtended(file, graph); err != nil {
		t.Fatal(err)
	}
	m, err := model.ReadGraph(graph)
	if err != nil {
		t.Fatal(err)
	}
	g, err := operator.Read(m)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A chain computes what its copies compute one after another.
func TestLinked(t *testing.T) {
	engine(t)
	operand := []operator.Operand{{Type: tensor.FP32, Shape: []operator.Dim{{PerRow: 1}, {Fixed: 3}}}}
	op := &operator.Operator{Type: "Sigmoid", Opset: 17, Inputs: operand, Outputs: operand}
	made, err := op.Model()
	if err != nil {
		t.Fatal(err)
	}
	n, through := copiesOnGPU(op, made, 8)
	if n != links || through != 0 {
		t.Errorf("%d copies through %d", n, through)
	}
	file := filepath.Join(t.TempDir(), "model.onnx")
	run := func(m *model.Model, in []tensor.Tensor) tensor.Tensor {
		if err := m.WriteFile(file); err != nil {
			t.Fatal(err)
		}
		e, err := onnxruntime.Open(onnxruntime.Options{Model: file, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		out, err := e.Run(context.Background(), 2, in)
		if err != nil || len(out) != 1 {
			t.Fatal(out, err)
		}
		out[0].Name = in[0].Name
		return out[0]
	}
	in, err := op.Samples(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := in[0]
	for range 3 {
		want = run(made, []tensor.Tensor{want})
	}
	if got := run(linked(made, 0, 3), in); string(got.Data) != string(want.Data) {
		t.Error("another answer")
	}
}
