package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// A model that runs with none of the sizes that are tried is deployed. The first request whose sizes run teaches
// them and is answered; a restart knows them.
func TestTheFirstRequestTeachesSizes(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.bundle(t, "odd:latest", edited(t, func(g *onnxpb.GraphProto) {
		dims := g.Input[0].Type.GetTensorType().Shape
		dims.Dim = dims.Dim[:1:1]
		dims.Dim = append(dims.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "length"}})
		shape := g.Output[0].Type.GetTensorType().Shape
		shape.Dim = append(shape.Dim[:1:1], &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 7}},
			&onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 3}})
		g.Initializer = append(g.Initializer, &onnxpb.TensorProto{Name: proto.String("rows"), DataType: proto.Int32(int32(onnxpb.TensorProto_INT64)), Dims: []int64{3}, Int64Data: []int64{0, 7, 3}})
		g.Node = []*onnxpb.NodeProto{{OpType: proto.String("Reshape"), Input: []string{g.Input[0].GetName(), "rows"}, Output: []string{g.Output[0].GetName()}}}
	}))
	d := p.provider(t, suite.binary)
	c := client(t)
	c.Timeout = time.Minute
	if a := d.put(t, http.MethodPost, function("odd", "odd:latest", "5s")); a.status != http.StatusAccepted {
		t.Fatalf("deploy: %d %s", a.status, a.body)
	}
	row := func(n int) []byte {
		return []byte(`{"instances": [[` + strings.TrimSuffix(strings.Repeat("0.5,", n), ",") + `]]}`)
	}
	learnt := func() string {
		s := d.status(t, "odd")
		return (*s.Annotations)[annotation.InferLearntShapes] + (*s.Annotations)[annotation.InferProblem]
	}
	if got := learnt(); !strings.Contains(got, "are learnt from its first request") {
		t.Errorf("before the first request, the status says %q", got)
	}
	a, err := try(c, http.MethodPost, d.function("odd")+"/", row(20), "Content-Type", "application/json")
	if err != nil || a.status != http.StatusBadRequest || !strings.Contains(a.body, "does not run with the sizes of this request") {
		t.Errorf("sizes that do not run get %v, %v", a, err)
	}
	asked := func() bool {
		a, err = try(c, http.MethodPost, d.function("odd")+"/", row(21), "Content-Type", "application/json")
		return err == nil && a.status == http.StatusOK
	}
	if !within(time.Minute, asked) || !strings.Contains(a.body, "[[0.5,0.5,0.5],") {
		t.Fatalf("the request that teaches gets %v, %v", a, err)
	}
	if got := learnt(); !strings.HasSuffix(got, ":1x21") {
		t.Errorf("learnt is %q", got)
	}
	d.stop(t)
	d = p.provider(t, suite.binary)
	if !within(time.Minute, asked) {
		t.Errorf("after a restart it gets %v, %v", a, err)
	}
	if got := learnt(); !strings.HasSuffix(got, ":1x21") {
		t.Errorf("after a restart, learnt is %q", got)
	}
	d.stop(t)
}
