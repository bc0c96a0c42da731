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
	"github.com/faas-infer/faas-infer/profiler"
)

// side is the side of the yardstick's matrices. Their product takes about 35 µs and stays
// in the core's own caches.
const side = 128

// YardstickFLOPs is the number of floating-point operations in the yardstick.
const YardstickFLOPs = 2 * side * side * side

// yardstick is a piece of work whose time on a quiet machine is constant. It gives the
// pace: the factor by which the core is slower now than on the quiet machine. The pace is
// 1 on the quiet machine, and 1.4 while a neighbour uses the other half of the core. (A
// sweep through memory was tried as a second yardstick. It differs more between two
// processes than between two neighbours.)
type yardstick struct {
	single *onnxruntime.Single
	// base is the best known time in µs on the quiet machine, since the time when it
	// was found.
	base  float64
	since time.Time
	// recent are the last readings in µs, next the index of the next one.
	recent []float64
	next   int
}

// newYardstick makes a yardstick. known is the base of an earlier one on this machine. If
// it is 0, newYardstick reads the pace for more than a second to find the base.
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
	// calibrations is the number of readings for a base, with pauses of a hundredth
	// of a second. That is long enough for a quiet moment.
	calibrations = 120
	// undisturbed is the quantile of readings that counts as quiet.
	undisturbed = 0.15
	// remembered is the minimum number of readings for a new base. The base is
	// replaced if the quiet readings are below faster times the base.
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

// typical is the quiet quantile of the recent readings, in µs.
func (y *yardstick) typical() float64 { return profiler.Quantile(y.recent, undisturbed) }

// read is the current pace. If the machine is now much faster than the base, it was not
// quiet when the base was found. read then replaces the base, and rows from before since
// must be measured again.
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

// products is the number of products per reading. The last ones run at the core's full
// speed.
const products = 12

// compute is the minimum time of a product in µs.
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

// readings is the number of readings of [ReadYardstick].
const readings = 30

// ReadYardstick returns the yardstick's time on this machine, in µs, within some 15 ms. It is
// the time of a quiet moment among these, and not as certain as that of a [Sampler]: profiles
// carry it to be compared between machines. onnxruntime.Load must have succeeded before.
func ReadYardstick() (float64, error) {
	y, err := newYardstick(math.Inf(1)) // Known, so it is not calibrated.
	if err != nil {
		return 0, err
	}
	defer y.close()
	var all []float64
	for range readings {
		took, err := y.compute()
		if err != nil {
			return 0, fmt.Errorf("yardstick: %w", err)
		}
		all = append(all, took)
	}
	return profiler.Quantile(all, undisturbed), nil
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
