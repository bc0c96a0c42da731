package onnxruntime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/adapt"
	"github.com/faas-infer/faas-infer/model/ragged"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// ErrNoSizes is wrapped by the error for a model with free dimensions that ran with none of
// the sizes that were tried. Its text begins with [NoSizes].
var ErrNoSizes = errors.New(NoSizes)

// NoSizes begins the text of errors that wrap [ErrNoSizes].
const NoSizes = "no sizes found"

// slowRow is the processor time of a row from which the rows of a batch are not compared: a client waits
// for that, and a batch of such rows gains little. The time that passes counts for nothing: a busy machine
// must not make a model one without batches.
const slowRow = 5 * time.Second

// adaptFile reads how a model is served: with its batch in front if its rows do not see each
// other, otherwise one request an execution. A model
// that says all this itself is only tried if must is set: loading it then needs no run.
func adaptFile(path string, o PrepareOptions, must bool) (form, error) {
	m, err := model.ReadOutline(path)
	if err != nil {
		return form{}, err
	}
	n, err := adapt.Read(m)
	if err != nil {
		return form{}, err
	}
	if !must && n.Standard() && n.Crossing(make([]int, len(n.Inputs))) == "" {
		s := signature{Inputs: n.Inputs, Outputs: n.Outputs, Denormals: n.Jumps()}
		standard, err := s.inferOutputs(path, m)
		if err != nil {
			return form{}, err
		}
		if standard {
			return form{path: path, level: ort.GraphOptimizationLevelEnableAll, signature: s}, nil
		}
	}
	return (&probe{natural: n, path: path, given: o.Shapes, maxRun: o.MaxRun}).find()
}

// probe tries a model on sample rows.
type probe struct {
	natural *adapt.Natural
	path    string
	given   tensor.Shapes
	// maxRun is that of [PrepareOptions].
	maxRun time.Duration
	// shapes are those of one row under which the model ran.
	shapes tensor.Shapes
	// integers is the range of integers with which it ran, and compared the one for comparing
	// rows: with numbers of more than one digit if the model takes them. Rows of zeros and ones
	// may have so little variance that a norm makes noise of it.
	integers, compared integers
	// padding says how rows of different lengths run together, nil if they do not, and unpadded why not.
	padding  *ragged.Padding
	unpadded string
}

// integers is a range, with its end excluded, and what the real numbers beside are multiplied by
// if that is not 0.
type integers struct {
	Low  int     `json:"low"`
	High int     `json:"high"`
	Real float64 `json:"real,omitempty"`
	// signed says that half of the real numbers are negative.
	signed bool
}

// The integers to try: masks and indices, divisors, indices into one element, sizes that are real
// numbers, and others.
var (
	masks    = integers{Low: 0, High: 2}
	divisors = integers{Low: 1, High: 2}
	zeros    = integers{Low: 0, High: 1}
	sizes    = integers{Low: 1, High: 2, Real: 64}
	others   = integers{Low: 0, High: 100}
)

// find returns the form of the first proposal under which no row sees another, or that of a
// model that takes one request an execution.
func (p *probe) find() (form, error) {
	proposals, why := p.natural.Proposals()
	for _, proposal := range proposals {
		outputs, reason, err := p.try(proposal)
		if err != nil {
			return form{}, err
		}
		if reason == "" {
			return p.form(&proposal, outputs, "")
		}
		if why == "" {
			why = reason
		}
	}
	if p.shapes == nil || len(proposals) == 0 {
		s, err := p.open(nil)
		if err != nil {
			return form{}, err
		}
		defer s.close()
		out, _, err := p.search(s, nil)
		if err != nil {
			return form{}, err
		}
		p.observe(out)
	}
	return p.form(nil, nil, why)
}

// observe corrects the declared shapes of outputs by those of a run.
func (p *probe) observe(out []tensor.Tensor) {
	for i := range out {
		p.natural.Observe(i, out[i].Shape[1:])
	}
}

// try runs two rows alone and together. It returns the batch's position in the outputs, or
// the reason why the rows may not be joined.
func (p *probe) try(proposal adapt.Proposal) (outputs []int, reason string, err error) {
	if reason := p.natural.Crossing(proposal.Inputs); reason != "" {
		return nil, reason, nil
	}
	joint, err := p.open(&proposal)
	if err != nil {
		if proposal.Freed {
			return nil, "its batch is fixed to 1, and the model cannot be loaded with another; export it with a dynamic first axis", nil
		}
		return nil, "", err
	}
	defer joint.close()
	single := joint
	if proposal.Freed { // The rows alone are computed by the model as it was written.
		if single, err = p.open(nil); err != nil {
			return nil, "", err
		}
		defer single.close()
	}
	first, took, err := p.search(single, proposal.Inputs)
	if err != nil {
		if proposal.Freed || errors.Is(err, ErrTooLong) {
			return nil, "", err
		}
		return nil, fmt.Sprintf("with its batch as one of the dynamic axes it does not run: %v", err), nil
	}
	p.observe(first)
	if took > slowRow {
		return nil, fmt.Sprintf("a row takes %v, too long to compare batches with single rows", took.Round(time.Second)), nil
	}
	found, second, neighbour := p.compared, []tensor.Tensor(nil), 0
	for _, try := range []struct {
		of  integers
		row int
	}{{others, 1}, {others, 2}, {found, 1}, {found, 2}} { // Large numbers may be indices out of bounds.
		p.compared, neighbour = try.of, try.row
		if first, err = single.run(p.rows(single, 0)); err != nil {
			continue
		}
		if second, err = single.run(p.rows(single, neighbour)); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Sprintf("another row fails: %v", err), nil
	}
	p.observe(second)
	together, err := joint.run(p.rows(joint, 0, neighbour))
	if err != nil {
		return nil, fmt.Sprintf("two rows together fail (%v); export the model with a dynamic first axis and without sizes that are fixed to one row", err), nil
	}
	for i, o := range p.natural.Outputs {
		axis, reason := compare(o, first[i], second[i], together[i])
		if reason != "" {
			return nil, reason, nil
		}
		outputs = append(outputs, axis)
	}
	reason = p.more(single, joint, outputs, pairsIn(took))
	if reason == "" {
		p.padding, p.unpadded = p.tryPadding(joint, outputs, pairsIn(took))
	}
	return outputs, reason, nil
}

// Rows that see each other may hide it in one pair: an answer of whole numbers changes seldom, and
// a ReLU hides what only negative numbers do. So further pairs are compared, within a part of a
// second. A pair that does not run alone says nothing.
const (
	maxPairs    = 8
	forAllPairs = 200 * time.Millisecond
)

// pairsIn is the number of pairs to compare of a model with this time of a row.
func pairsIn(took time.Duration) int {
	return min(maxPairs, 1+int(forAllPairs/(4*max(took, time.Microsecond))))
}

// more compares further pairs, half of them with numbers of both signs and half of them with rows of
// one scale. It returns the reason why rows may not be joined.
func (p *probe) more(single, joint *trial, outputs []int, pairs int) (reason string) {
	of := p.compared
	for pair := 1; pair < pairs; pair++ {
		of.signed = pair%2 == 1
		a, b := 2*pair, 2*pair+1
		if pair%4 > 1 {
			b = 2 * (maxPairs + pair)
		}
		sample := func(t *trial, numbers ...int) ([]tensor.Tensor, error) {
			return t.run(sampleRows(t.inputs, p.shapes, of, numbers...))
		}
		first, failed := sample(single, a)
		second, err := sample(single, b)
		if failed != nil || err != nil {
			continue
		}
		together, err := sample(joint, a, b)
		if err != nil {
			return fmt.Sprintf("two rows together fail: %v", err)
		}
		for i, o := range p.natural.Outputs {
			axis, reason := compare(o, first[i], second[i], together[i])
			if reason == "" && axis != outputs[i] {
				reason = fmt.Sprintf("the batch of output %q has another place for other rows", o.Name)
			}
			if reason != "" {
				return reason
			}
		}
	}
	return ""
}

// rows are sample rows by their numbers.
func (p *probe) rows(s *trial, numbers ...int) []tensor.Tensor {
	return sampleRows(s.inputs, p.shapes, p.compared, numbers...)
}

// search finds shapes under which one row runs, and the processor time of that.
func (p *probe) search(s *trial, axes []int) ([]tensor.Tensor, time.Duration, error) {
	var first error
	for _, p.compared = range p.ranges() {
		for shapes := range p.natural.Model.GuessShapes(p.given, axes) {
			p.shapes = shapes
			began := usedTime()
			out, err := s.run(p.rows(s, 0))
			if err == nil {
				p.integers = p.compared
				return out, usedTime() - began, nil
			}
			if errors.Is(err, ErrTooLong) {
				p.shapes = nil
				return nil, 0, err
			}
			if first == nil {
				first = err
			}
		}
	}
	p.shapes = nil
	free := slices.ContainsFunc(p.natural.Inputs, func(i tensor.Info) bool { return slices.Contains(i.Shape, -1) })
	if !free || p.given != nil {
		return nil, 0, fmt.Errorf("the model does not run on sample inputs, numbers between 0 and 1: %w; change the model, or use a handler (template python-infer)", first)
	}
	return nil, 0, fmt.Errorf("%w: the model runs with none of the sizes that were tried for its free dimensions (%v); name some in com.openfaas.infer.shapes, for example %q",
		ErrNoSizes, first, p.natural.Example().String())
}

// ranges are the numbers to try, as far as the inputs have such.
func (p *probe) ranges() []integers {
	all := []integers{masks}
	if slices.ContainsFunc(p.natural.Inputs, func(i tensor.Info) bool { return !i.Type.Float() && i.Type != tensor.Bytes }) {
		all = append(all, divisors, zeros)
	}
	for _, v := range p.natural.Compared() {
		all = append(all, integers{Low: int(v), High: int(v) + 1})
	}
	parameter := func(i tensor.Info) bool { return len(i.Shape) == 0 || len(i.Shape) == 1 && i.Shape[0] > 0 }
	if slices.ContainsFunc(p.natural.Inputs, parameter) {
		all = append(all, sizes)
	}
	return all
}

// form is the model as instances load it.
func (p *probe) form(proposal *adapt.Proposal, outputs []int, why string) (form, error) {
	w, err := p.natural.Wrap(proposal, outputs)
	if err != nil {
		return form{}, err
	}
	s := signature{Inputs: w.Inputs, Outputs: w.Outputs, Shapes: p.shapes, Integers: p.integers, Wide: w.Wide, Denormals: p.natural.Jumps()}
	if proposal == nil {
		s.Unbatched = why
	} else {
		s.Padding, s.Unpadded = p.padding, p.unpadded
	}
	return formIn(p.path, w, s)
}

// formIn is the form of a wrapped model whose file is at path.
func formIn(path string, w *adapt.Wrapped, s signature) (form, error) {
	f := form{path: path, level: ort.GraphOptimizationLevelEnableAll, signature: s}
	if w.Model == nil {
		return f, nil
	}
	var file bytes.Buffer
	if err := w.Model.Write(&file); err != nil {
		return form{}, err
	}
	f.data, f.path = file.Bytes(), filepath.Dir(path)
	return f, nil
}

// open loads the model with the inputs of a proposal, nil for a model that takes one request.
// Each output gets one more dimension in front: the binding cannot read a scalar.
func (p *probe) open(proposal *adapt.Proposal) (*trial, error) {
	w, err := p.natural.Wrap(proposal, slices.Repeat([]int{-1}, len(p.natural.Outputs)))
	if err != nil {
		return nil, err
	}
	f, err := formIn(p.path, w, signature{Inputs: w.Inputs, Outputs: w.Outputs, Wide: w.Wide, Denormals: p.natural.Jumps()})
	if err != nil {
		return nil, err
	}
	f.level, f.quiet = ort.GraphOptimizationLevelDisableAll, true
	e, err := open(f, 1)
	if err != nil {
		return nil, err
	}
	return &trial{engine: e, inputs: w.Inputs, maxRun: p.maxRun}, nil
}

// trial is a model that is open to be tried.
type trial struct {
	engine *Engine
	inputs []tensor.Info
	maxRun time.Duration
}

func (t *trial) close() { t.engine.Close() }

// run computes rows. The outputs have the shapes of the model's own, behind a dimension of 1.
func (t *trial) run(inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	var pinned runtime.Pinner
	defer pinned.Unpin()
	e := t.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	in, err := e.bindInputs(int(inputs[0].Shape[0]), inputs, &pinned)
	defer destroy(in)
	if err != nil {
		return nil, err
	}
	out := make([]ort.Value, len(e.signature.Outputs))
	defer func() { destroy(out) }()
	err = within(t.maxRun*time.Duration(inputs[0].Shape[0]), usedTime, func(ctx context.Context) error { return e.compute(ctx, in, out) })
	switch {
	case errors.Is(err, ErrTooLong):
		return nil, err
	case err != nil:
		return nil, plain(err)
	}
	outputs := make([]tensor.Tensor, len(out))
	for i, info := range e.signature.Outputs {
		outputs[i] = tensor.Tensor{Name: info.Name, Type: info.Type}
	}
	return outputs, e.collect(1, outputs, out)
}

// compare finds the batch's position in an output from its values for two rows alone and for
// both together. reason says why the rows may not be joined.
func compare(o tensor.Info, first, second, together tensor.Tensor) (axis int, reason string) {
	a, b, both := first.Shape[1:], second.Shape[1:], together.Shape[1:]
	if !slices.Equal(a, b) || len(a) != len(both) {
		return 0, fmt.Sprintf("the shape of output %q depends on the data: %v and %v for one row each, %v for both", o.Name, a, b, both)
	}
	axis = -1
	for d := range a {
		switch {
		case a[d] == both[d]:
		case a[d] == 1 && both[d] == 2 && axis < 0:
			axis = d
		default:
			return 0, fmt.Sprintf("output %q has the shape %v for one row and %v for two, so it cannot be split by rows", o.Name, a, both)
		}
	}
	if axis < 0 {
		return 0, fmt.Sprintf("output %q has the shape %v for one row and for two, so it does not belong to single rows", o.Name, a)
	}
	rows := tensor.Tensor{Name: o.Name, Type: o.Type, Shape: both, Data: together.Data}
	for at, alone := range []tensor.Tensor{first, second} {
		if err := differs(alone, rows, axis, at); err != nil {
			return 0, fmt.Sprintf("rows see each other: %v", err)
		}
	}
	return axis, ""
}

// Tolerances of rows in a batch against rows alone, as a part of the row's largest number. An
// engine computes a batch in other blocks, in another order.
const (
	rowTolerance     = 2e-3
	halfRowTolerance = 3e-2 // for 16-bit floating-point numbers
)

// differs compares a row of a batch with the same row alone.
func differs(alone, batch tensor.Tensor, axis, at int) error {
	want, err := alone.Elements()
	if err != nil {
		return err
	}
	all, err := batch.Elements()
	if err != nil {
		return err
	}
	inner := 1
	for _, d := range batch.Shape[axis+1:] {
		inner *= int(d)
	}
	got := make([][]byte, 0, len(want))
	for start := at * inner; start < len(all); start += 2 * inner {
		got = append(got, all[start:start+inner]...)
	}
	if len(got) != len(want) {
		return fmt.Errorf("output %q has %d elements of a row in a batch and %d alone", alone.Name, len(got), len(want))
	}
	part := rowTolerance
	if alone.Type == tensor.FP16 || alone.Type == tensor.BF16 {
		part = halfRowTolerance
	}
	return apart(alone, want, got, part)
}

// apart compares the elements of a row in a batch with those of the same row alone. Real numbers may differ by a part of
// the row's largest.
func apart(alone tensor.Tensor, want, got [][]byte, part float64) error {
	scale := 0.0
	if alone.Type.Float() {
		for _, w := range want {
			if v := math.Abs(alone.Type.Number(w)); !math.IsInf(v, 0) && v > scale {
				scale = v
			}
		}
	}
	for i := range want {
		if slices.Equal(want[i], got[i]) {
			continue
		}
		if !alone.Type.Float() {
			return fmt.Errorf("output %q has %.40q in a batch and %.40q alone", alone.Name, got[i], want[i])
		}
		w, g := alone.Type.Number(want[i]), alone.Type.Number(got[i])
		if math.IsNaN(w) && math.IsNaN(g) || w == g || math.Abs(w-g) <= part*scale {
			continue
		}
		return fmt.Errorf("output %q has %g in a batch and %g alone", alone.Name, g, w)
	}
	return nil
}

// largeRow multiplies the numbers of every other sample row: a row that sees its neighbours
// then shows it.
const largeRow = 40

// sample makes a number of rows for the model, one for a model that takes one request.
func (s signature) sample(rows int) []tensor.Tensor {
	if s.Unbatched != "" {
		rows = 1
	}
	numbers := make([]int, rows)
	for i := range numbers {
		numbers[i] = 2 * i
	}
	of := s.Integers
	if of == (integers{}) {
		of = masks
	}
	return sampleRows(s.Inputs, s.Shapes, of, numbers...)
}

// sampleRows makes rows: real numbers in [0,1), times 40 in the rows with odd numbers; integers of
// a range; and short strings. shapes
// are the model's own shapes of one row. A row of one number is always the same.
func sampleRows(inputs []tensor.Info, shapes tensor.Shapes, of integers, numbers ...int) []tensor.Tensor {
	out := make([]tensor.Tensor, len(inputs))
	for i, in := range inputs {
		shape := rowShape(in, shapes[in.Name])
		n := 1
		for _, d := range shape[1:] {
			n *= int(d)
		}
		shape[0] = int64(len(numbers))
		var data []byte
		for _, number := range numbers {
			random := rand.New(rand.NewPCG(uint64(number), uint64(i)))
			for range n {
				data = appendSample(data, in.Type, random, number, of)
			}
		}
		out[i] = tensor.Tensor{Name: in.Name, Type: in.Type, Shape: shape, Data: data}
	}
	return out
}

// rowShape is an input's shape for one row as the engine takes it. own is the model's own
// shape, nil if no size is known for its free dimensions.
func rowShape(in tensor.Info, own []int64) []int64 {
	shape := slices.Clone(in.Shape)
	shape[0] = 1
	if in.Edge != nil && in.Edge.Axis < 0 && len(own)+1 == len(shape) {
		copy(shape[1:], own)
	} else if len(own) == len(shape) {
		axis := 0
		if in.Edge != nil {
			axis = in.Edge.Axis
		}
		copy(shape[1:], slices.Delete(slices.Clone(own), axis, axis+1))
	}
	for j := range shape {
		if shape[j] < 0 {
			shape[j] = freeDimension
		}
	}
	return shape
}

// freeDimension is the size of free dimensions of a model that was never tried.
const freeDimension = 16

func appendSample(data []byte, t tensor.Type, random *rand.Rand, number int, of integers) []byte {
	scale := 1.0
	if of.Real > 0 {
		scale = of.Real
	}
	if number%2 == 1 {
		scale *= largeRow
	}
	switch {
	case t == tensor.Bytes:
		return tensor.AppendString(data, strconv.Itoa(random.IntN(2)))
	case t == tensor.FP16: // Halves, and not too large a sum of them.
		return t.Append(data, of.sign(random)*float64(random.IntN(2))*0.5*math.Sqrt(scale))
	case t.Float():
		return t.Append(data, of.sign(random)*random.Float64()*scale)
	}
	if t == tensor.Bool {
		of = masks
	}
	return t.Append(data, float64(of.Low+random.IntN(of.High-of.Low)))
}

// sign is that of the next real number.
func (of integers) sign(random *rand.Rand) float64 {
	if of.signed && random.IntN(2) == 0 {
		return -1
	}
	return 1
}
