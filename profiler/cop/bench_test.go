package cop_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/profiler/cop"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/operator"
	"github.com/faas-infer/faas-infer/profiler/regression"
)

// layers is a chain of MatMul and Relu operators, of which 60 are distinct.
func layers(t testing.TB, pairs int) *operator.Graph {
	t.Helper()
	const distinct = 30
	width := func(i int) int64 { return int64(16 + i%distinct) }
	value := func(name string, n int64) *onnxpb.ValueInfoProto {
		dims := []*onnxpb.TensorShapeProto_Dimension{
			{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "batch"}},
			{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: n}},
		}
		return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{
			ElemType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)), Shape: &onnxpb.TensorShapeProto{Dim: dims},
		}}}}
	}
	g := &onnxpb.GraphProto{Name: proto.String("layers"), Input: []*onnxpb.ValueInfoProto{value("x0", width(0))}}
	for i := range pairs {
		w, from, between, to := fmt.Sprint("w", i), fmt.Sprint("x", i), fmt.Sprint("y", i), fmt.Sprint("x", i+1)
		g.Initializer = append(g.Initializer, &onnxpb.TensorProto{
			Name: &w, Dims: []int64{width(i), width(i + 1)}, DataType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)), RawData: make([]byte, 4*width(i)*width(i+1)),
		})
		g.Node = append(g.Node,
			&onnxpb.NodeProto{OpType: proto.String("MatMul"), Input: []string{from, w}, Output: []string{between}},
			&onnxpb.NodeProto{OpType: proto.String("Relu"), Input: []string{between}, Output: []string{to}})
	}
	g.Output = []*onnxpb.ValueInfoProto{value(fmt.Sprint("x", pairs), width(pairs))}
	m, err := model.FromProto(&onnxpb.ModelProto{IrVersion: proto.Int64(8), Graph: g, OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: proto.Int64(17)}}})
	if err != nil {
		t.Fatal(err)
	}
	read, err := operator.Read(m)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// measured has rows of two in three operators of g, at some of the batches.
func measured(g *operator.Graph) *regression.Model {
	var rows []database.Row
	for i, op := range g.Operators {
		for _, batch := range []int{1, 4, 32} {
			for _, millicores := range []int{1000, 2000} {
				f := op.Features(batch)
				us := (2 + float64(f.FLOPs)/1e3 + float64(f.WeightBytes+f.InBytes)/1e4) / float64(millicores/1000)
				row := database.Row{
					Operator: op.Key(), Family: op.Family(), Features: f, Batch: batch, Millicores: millicores,
					Median: us, P95: us * 1.1, CPU: us, Runs: 9, Engine: "engine", Machine: "machine", MeasuredAt: time.Unix(1e9, 0),
				}
				if i%3 > 0 {
					rows = append(rows, row)
					row.Cold, row.Median, row.P95 = true, us*1.2, us*1.3
					rows = append(rows, row)
				}
			}
		}
	}
	return regression.New(slices.Values(rows), 0)
}

var all = cop.Options{
	Batches: []int{1, 2, 4, 8, 16, 32}, Threads: []int{1, 2}, Engine: cop.ONNXRuntime,
	ColdShare: func(*operator.Operator, int) float64 { return 0.5 },
}

// TestPredictFromRows goes the whole way from rows to a profile. A third of the operators was
// never measured.
func TestPredictFromRows(t *testing.T) {
	g := layers(t, 250)
	if len(g.Nodes) != 500 || len(g.Operators) != 60 {
		t.Fatalf("%d nodes, %d operators", len(g.Nodes), len(g.Operators))
	}
	p, err := cop.Predict(g, measured(g), all)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Lacking) != 20 || len(p.Missing) != 0 {
		t.Errorf("%d lacking, %d missing", len(p.Lacking), len(p.Missing))
	}
	profile, err := p.Profile("abc", "engine", "machine", 1, time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	if len(profile.Measurements) != 12 || profile.MaxBatch() != 32 {
		t.Errorf("%+v", profile)
	}
}

func BenchmarkPredict(b *testing.B) {
	g := layers(b, 250)
	m := measured(g)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := cop.Predict(g, m, all); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPredictLongest measures the paper's rule on the same graph.
func BenchmarkPredictLongest(b *testing.B) {
	g := layers(b, 250)
	m := measured(g)
	o := all
	o.Rule = cop.Longest
	b.ReportAllocs()
	for b.Loop() {
		if _, err := cop.Predict(g, m, o); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLearn(b *testing.B) {
	g := layers(b, 250)
	for b.Loop() {
		measured(g)
	}
}
