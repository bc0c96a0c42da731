package measuring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// DeviceEngine runs one model on the share of a GPU that this process has, in batches of the
// size that was prepared last.
type DeviceEngine interface {
	// Prepare prepares a batch size and copies the inputs to the GPU. Repeat computes these
	// once more, without copies.
	Prepare(ctx context.Context, rows int, inputs []tensor.Tensor) error
	Repeat(ctx context.Context) (profiler.DeviceTimes, error)
	Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error)
	// Times are those of the last run.
	Times() profiler.DeviceTimes
	Close() error
}

// OnGPU measures operators on the share of a GPU that this process has. An operator runs as a
// chain of copies in one model, which the engine launches at once as a CUDA graph, as in its
// model. Only the time on the GPU counts; the rest is in the rows of Run and of the copies.
type OnGPU struct {
	// Percent is the share. Engine and Machine go into the rows.
	Percent         int
	Engine, Machine string
	// Open opens a model for batches up to maxBatch.
	Open func(file string, maxBatch int) (DeviceEngine, error)
	// Spent adds up the time of the parts of the work, for people.
	Spent Spent
	// CPU is the processor time that this process has used so far.
	CPU func() time.Duration
	// Window and MaxTime are those of [profiler.DevicePlan].
	Window, MaxTime time.Duration

	directory string
	// launch is the time in µs on the GPU of a model that computes nothing.
	launch float64
}

// Spent says how many models were opened and how long the parts took: to make the models and
// their inputs, to open them, to prepare batches, and to measure these.
type Spent struct {
	Models                           int
	Making, Opening, Preparing, Runs time.Duration
}

// String implements [fmt.Stringer].
func (s Spent) String() string {
	return fmt.Sprintf("%d models: making %.1f s, opening %.1f s, preparing %.1f s, runs %.1f s",
		s.Models, s.Making.Seconds(), s.Opening.Seconds(), s.Preparing.Seconds(), s.Runs.Seconds())
}

// took adds the time since a moment to a part, and returns the time now.
func took(part *time.Duration, since time.Time) time.Time {
	now := time.Now()
	*part += now.Sub(since)
	return now
}

const (
	// links is the number of copies in a chain, fewLinks that of copies side by side. Their
	// weights have at most maxLinked bytes together, about twice a GPU's cache, and their
	// outputs maxOutputs.
	links, fewLinks       = 8, 4
	maxLinked, maxOutputs = 96 << 20, 64 << 20
)

// Begin measures the cost of a launch. Close frees what Begin takes.
func (m *OnGPU) Begin(ctx context.Context) (err error) {
	if m.directory, err = os.MkdirTemp("", "faas-infer-gpu-operators-"); err != nil {
		return err
	}
	one, err := m.elementwise(ctx, 1, 1)
	if err != nil {
		return err
	}
	chain, err := m.elementwise(ctx, 1, links)
	if err != nil {
		return err
	}
	if chain.Compute == 0 {
		return errors.New("the engine does not say how long it computes on the GPU")
	}
	each := max(0, (chain.Compute-one.Compute)/(links-1))
	m.launch = max(0, one.Compute-each)
	return nil
}

// Close removes the models that were made.
func (m *OnGPU) Close() error { return os.RemoveAll(m.directory) }

// elementwise measures a chain of Sigmoid operators on width numbers.
func (m *OnGPU) elementwise(ctx context.Context, width int64, length int) (profiler.Measurement, error) {
	operand := []operator.Operand{{Type: tensor.FP32, Shape: []operator.Dim{{PerRow: 1}, {Fixed: width}}}}
	op := &operator.Operator{Type: "Sigmoid", Opset: 17, Inputs: operand, Outputs: operand}
	made, err := op.Model()
	if err != nil {
		return profiler.Measurement{}, err
	}
	all, err := m.measure(ctx, op, linked(made, 0, length), []int{1}, length == 1)
	if err != nil {
		return profiler.Measurement{}, err
	}
	return all[0], nil
}

// Fixed measures the rows of Run, which is the host's part of an execution and the launch, and
// of the copies to the GPU and back, by bytes.
func (m *OnGPU) Fixed(ctx context.Context, put func(database.Row) error) error {
	for _, width := range widths {
		t, err := m.elementwise(ctx, int64(width), 1)
		if err != nil {
			return fmt.Errorf("the cost of an execution: %w", err)
		}
		operand := []operator.Operand{{Type: tensor.FP32, Shape: []operator.Dim{{PerRow: 1}, {Fixed: int64(width)}}}}
		host := max(resolution, t.Median-t.In-t.Compute-t.Out)
		for _, r := range []struct {
			op     *operator.Operator
			us, of float64
		}{
			{&operator.Operator{Type: runType, Inputs: operand, Outputs: operand}, host + m.launch, t.CPU},
			{&operator.Operator{Type: copyInType, Inputs: operand}, t.In, 0},
			{&operator.Operator{Type: copyOutType, Outputs: operand}, t.Out, 0},
		} {
			us := max(resolution, r.us)
			row := m.row(r.op, 1, us, us+max(0, t.P95-t.Median), t.Runs)
			row.CPU = r.of
			if err := put(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyInType and copyOutType are the pseudo-operators for the copies of a model's inputs to a
// GPU and of its outputs back.
const copyInType, copyOutType = "CopyIn", "CopyOut"

// CopyIn is the pseudo-operator of the copy of a graph's inputs to a GPU.
func CopyIn(g *operator.Graph) *operator.Operator {
	return &operator.Operator{Type: copyInType, Inputs: g.Inputs}
}

// CopyOut is the pseudo-operator of the copy of a graph's outputs from a GPU.
func CopyOut(g *operator.Graph) *operator.Operator {
	return &operator.Operator{Type: copyOutType, Outputs: g.Outputs}
}

func (m *OnGPU) row(op *operator.Operator, batch int, median, p95 float64, runs int) database.Row {
	return database.Row{
		Operator: op.Key(), Family: op.Family(), Features: op.Features(batch), Batch: batch, Millicores: 1000, GPU: m.Percent,
		Median: median, P95: p95, Runs: runs, Engine: m.Engine, Machine: m.Machine, MeasuredAt: time.Now().UTC(),
	}
}

// Operator measures an operator at batches. A view moves no data, so it takes no time.
func (m *OnGPU) Operator(ctx context.Context, op *operator.Operator, batches []int, put func(database.Row) error) error {
	if op.View {
		for _, b := range batches {
			if err := put(m.row(op, b, resolution, resolution, 1)); err != nil {
				return err
			}
		}
		return nil
	}
	began := time.Now()
	made, err := op.Model()
	if err != nil {
		return err
	}
	largest := slices.Max(batches)
	n, through := copiesOnGPU(op, made, largest)
	chain := linked(made, through, n)
	if through < 0 {
		if chain, err = copied(made, n); err != nil {
			return err
		}
	}
	took(&m.Spent.Making, began)
	all, err := m.measure(ctx, op, chain, batches, false)
	if err != nil {
		return fmt.Errorf("%s: %w", op.Type, err)
	}
	for _, t := range all {
		each := func(us float64) float64 { return max(resolution, (us-m.launch)/float64(n)) }
		median := each(t.Compute)
		if err := put(m.row(op, t.Batch, median, max(median, median*t.P95/t.Median), t.Runs)); err != nil {
			return err
		}
	}
	return nil
}

// copiesOnGPU is the number of copies of an operator, and the input through which they form a
// chain: one of the output's type and shape, or -1 if there is none. Copies side by side must
// have weights, since the engine would compute equal ones once.
func copiesOnGPU(op *operator.Operator, made *model.Model, batch int) (n, through int) {
	weights := op.Features(1).WeightBytes
	fit := func(n int) int { return max(1, min(n, int(maxLinked/max(1, weights)))) }
	if g := made.Proto().GetGraph(); len(g.GetNode()) == 1 && len(g.GetOutput()) == 1 {
		node := g.GetNode()[0]
		for i, in := range op.Inputs {
			sent := slices.ContainsFunc(g.GetInput(), func(v *onnxpb.ValueInfoProto) bool { return i < len(node.Input) && v.GetName() == node.Input[i] })
			if sent && in.Role == operator.Activation && in.Type == op.Outputs[0].Type && slices.Equal(in.Shape, op.Outputs[0].Shape) {
				return fit(links), i
			}
		}
	}
	if weights < 1024 {
		return 1, -1
	}
	out := int64(0)
	for _, o := range op.Outputs {
		out += o.Bytes(batch)
	}
	return min(fit(fewLinks), max(1, int(maxOutputs/max(1, out)))), -1
}

// linked is a model of n copies of another with one node, each of which reads the output of the
// one before by its input through. The copies have their own weights.
func linked(m *model.Model, through, n int) *model.Model {
	if through < 0 || n == 1 {
		return m
	}
	all := proto.CloneOf(m.Proto())
	g, one := all.GetGraph(), m.Proto().GetGraph()
	shared := map[string]bool{"": true}
	for _, in := range one.GetInput() {
		shared[in.GetName()] = true
	}
	for c := 1; c < n; c++ {
		last := g.GetNode()[len(g.GetNode())-1].Output[0]
		copyInto(g, one, shared, c)
		g.GetNode()[len(g.GetNode())-1].Input[through] = last
	}
	g.Output = g.Output[len(g.Output)-1:]
	linked, err := model.FromProto(all)
	if err != nil {
		return m
	}
	return linked
}

// measure measures a model whose inputs are those of op, with or without the copies of inputs and
// outputs.
func (m *OnGPU) measure(ctx context.Context, op *operator.Operator, made *model.Model, batches []int, copies bool) (all []profiler.Measurement, err error) {
	at := time.Now()
	if made, err = batchFirst(made); err != nil {
		return nil, err
	}
	file := filepath.Join(m.directory, "operator.onnx")
	if err := made.WriteFile(file); err != nil {
		return nil, err
	}
	at = took(&m.Spent.Making, at)
	e, err := m.Open(file, slices.Max(batches))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	m.Spent.Models++
	at = took(&m.Spent.Opening, at)
	for _, b := range batches {
		inputs, err := op.Samples(b, uint64(b))
		if err != nil {
			return nil, err
		}
		inputs = rowsOf(made, b, inputs)
		at = took(&m.Spent.Making, at)
		if err := e.Prepare(ctx, b, inputs); err != nil {
			return nil, err
		}
		at = took(&m.Spent.Preparing, at)
		one, err := profiler.MeasureDevice(ctx, deviceSubject{e, inputs, copies}, profiler.DevicePlan{
			GPU: m.Percent, Batches: []int{b}, Window: m.Window, MaxTime: m.MaxTime, Now: time.Now, CPU: m.CPU,
		})
		if err != nil {
			return nil, err
		}
		at = took(&m.Spent.Runs, at)
		all = append(all, one...)
	}
	return all, nil
}

// deviceSubject runs copies of an operator on inputs of one batch size.
type deviceSubject struct {
	engine DeviceEngine
	inputs []tensor.Tensor
	copies bool
}

// Run implements [profiler.DeviceRunner].
func (s deviceSubject) Run(ctx context.Context, batch int) (profiler.DeviceTimes, error) {
	if !s.copies {
		return s.engine.Repeat(ctx)
	}
	_, err := s.engine.Run(ctx, batch, s.inputs)
	return s.engine.Times(), err
}
