package measuring

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// side is the yardstick's: a 128×128 matrix product of some 35 µs, which stays
// in the core's own caches.
const side = 128

// Pace is how much slower than on the quiet machine something runs, 1 there:
// Compute what stays in the core, Memory what streams from the last-level cache.
// They vary by themselves, the one with the clock and with who shares the core,
// the other with how much of that cache the neighbours leave.
type Pace struct{ Compute, Memory float64 }

// yardstick is two pieces of work that take equally long on a quiet machine: a
// matrix product, and a sweep through a part of the last-level cache that is as
// large as a model's weights.
type yardstick struct {
	single *onnxruntime.Single
	sweep  *sweeper
	size   int64
	// base is what they take in µs on the quiet machine, as far as is known, and
	// since when that is known.
	base  Pace
	since time.Time
	// recent are the last readings in µs, next the place of the next one.
	recent []Pace
	next   int
}

// newYardstick makes one; known is the base of an earlier one on this machine,
// zero if there was none: then the machine is watched for two seconds.
func newYardstick(c Caches, known Pace) (*yardstick, error) {
	m, err := model.FromProto(product(side))
	if err != nil {
		return nil, err
	}
	s, err := onnxruntime.OpenSingle(m, 0, 1)
	if err != nil {
		return nil, fmt.Errorf("yardstick: %w", err)
	}
	sweep, err := newSweeper(c.sample())
	if err != nil {
		s.Close()
		return nil, err
	}
	y := &yardstick{single: s, sweep: sweep, size: c.sample()}
	in := floats(side * side)
	err = s.Bind([]tensor.Tensor{{Type: tensor.FP32, Shape: []int64{side, side}, Data: in}},
		[]tensor.Tensor{{Type: tensor.FP32, Shape: []int64{side, side}}})
	if err == nil {
		err = y.calibrate(known)
	}
	if err != nil {
		y.close()
		return nil, fmt.Errorf("yardstick: %w", err)
	}
	return y, nil
}

const (
	// calibrations are so many readings, with pauses of a hundredth of a
	// second: long enough to see the machine quiet for a moment.
	calibrations = 150
	// undisturbed is the quantile of readings that counts as quiet.
	undisturbed = 0.15
	// remembered is how many readings are kept, and faster how much faster
	// than its base the machine has to be for the base to have been wrong.
	remembered = 60
	faster     = 0.88
)

func (y *yardstick) calibrate(known Pace) error {
	if known.Compute > 0 && known.Memory > 0 {
		y.base = known
		return nil
	}
	for range calibrations {
		if _, err := y.read(); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	y.base, y.since = y.typical(), time.Now()
	return nil
}

// typical is the quiet one of the recent readings.
func (y *yardstick) typical() Pace {
	var compute, memory []float64
	for _, r := range y.recent {
		compute, memory = append(compute, r.Compute), append(memory, r.Memory)
	}
	return Pace{Compute: quantile(compute, undisturbed), Memory: quantile(memory, undisturbed)}
}

// read is the pace now. Where the machine has become much faster than the
// base, it was not quiet when that was taken, and the base is replaced: what was
// measured before since is to be measured again.
func (y *yardstick) read() (Pace, error) {
	compute, err := y.compute()
	if err != nil {
		return Pace{}, err
	}
	start := time.Now()
	y.sweep.sweep(y.size)
	least := Pace{Compute: compute, Memory: micros(time.Since(start))}
	if len(y.recent) < max(remembered, calibrations) {
		y.recent = append(y.recent, least)
	} else {
		y.recent[y.next] = least
		y.next = (y.next + 1) % len(y.recent)
	}
	if y.base.Compute > 0 && len(y.recent) >= remembered {
		y.lower()
	}
	if y.base.Compute == 0 {
		return Pace{1, 1}, nil
	}
	return Pace{Compute: least.Compute / y.base.Compute, Memory: least.Memory / y.base.Memory}, nil
}

// products are so many that the last ones run at the core's full pace.
const products = 12

// compute is the least time of a product in µs.
func (y *yardstick) compute() (float64, error) {
	least := math.Inf(1)
	for range products {
		start := time.Now()
		if err := y.single.Run(); err != nil {
			return 0, err
		}
		least = min(least, micros(time.Since(start)))
	}
	return least, nil
}

func (y *yardstick) lower() {
	now := y.typical()
	if now.Compute < faster*y.base.Compute || now.Memory < faster*faster*y.base.Memory {
		y.base = Pace{Compute: min(now.Compute, y.base.Compute), Memory: min(now.Memory, y.base.Memory)}
		y.since = time.Now()
	}
}

func (y *yardstick) close() error { return errors.Join(y.single.Close(), y.sweep.close()) }

// product is a model of one matrix product with a constant.
func product(n int64) *onnxpb.ModelProto {
	value := func(name string) *onnxpb.ValueInfoProto {
		dim := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: n}}
		return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{
			ElemType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)), Shape: &onnxpb.TensorShapeProto{Dim: []*onnxpb.TensorShapeProto_Dimension{dim, dim}},
		}}}}
	}
	return &onnxpb.ModelProto{
		IrVersion: proto.Int64(8), OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: proto.String(""), Version: proto.Int64(17)}},
		Graph: &onnxpb.GraphProto{
			Name: proto.String("yardstick"), Input: []*onnxpb.ValueInfoProto{value("x")}, Output: []*onnxpb.ValueInfoProto{value("y")},
			Node: []*onnxpb.NodeProto{{OpType: proto.String("MatMul"), Input: []string{"x", "w"}, Output: []string{"y"}}},
			Initializer: []*onnxpb.TensorProto{{
				Name: proto.String("w"), Dims: []int64{n, n}, DataType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)), RawData: floats(int(n * n)),
			}},
		},
	}
}
