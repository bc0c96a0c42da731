package measuring

import (
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

// yardstick is a piece of work that takes equally long on a quiet machine. It
// tells how much slower than there the core computes now, its pace: 1 on the
// quiet machine, 1.4 while a neighbour has the other half of the core. (A sweep
// through memory was tried as a second one. It differs by more between two
// processes than between two neighbours.)
type yardstick struct {
	single *onnxruntime.Single
	// base is what it takes in µs on the quiet machine, as far as is known, and
	// since when that is known.
	base  float64
	since time.Time
	// recent are the last readings in µs, next the place of the next one.
	recent []float64
	next   int
}

// newYardstick makes one; known is the base of an earlier one on this machine, 0
// if there was none: then the machine is watched for more than a second.
func newYardstick(known float64) (*yardstick, error) {
	m, err := model.FromProto(product(side))
	if err != nil {
		return nil, err
	}
	s, err := onnxruntime.OpenSingle(m, 0, 1)
	if err != nil {
		return nil, fmt.Errorf("yardstick: %w", err)
	}
	y := &yardstick{single: s}
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
	calibrations = 120
	// undisturbed is the quantile of readings that counts as quiet.
	undisturbed = 0.15
	// remembered is how many readings are kept, and faster how much faster
	// than its base the machine has to be for the base to have been wrong.
	remembered = 60
	faster     = 0.88
)

func (y *yardstick) calibrate(known float64) error {
	if known > 0 {
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
func (y *yardstick) typical() float64 { return quantile(y.recent, undisturbed) }

// read is the pace now. Where the machine has become much faster than the base,
// it was not quiet when that was taken, and the base is replaced: what was
// measured before since is to be measured again.
func (y *yardstick) read() (pace float64, err error) {
	now, err := y.compute()
	if err != nil {
		return 0, err
	}
	if len(y.recent) < max(remembered, calibrations) {
		y.recent = append(y.recent, now)
	} else {
		y.recent[y.next] = now
		y.next = (y.next + 1) % len(y.recent)
	}
	if y.base == 0 {
		return 1, nil
	}
	if typical := y.typical(); len(y.recent) >= remembered && typical < faster*y.base {
		y.base, y.since = typical, time.Now()
	}
	return now / y.base, nil
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

func (y *yardstick) close() error { return y.single.Close() }

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
