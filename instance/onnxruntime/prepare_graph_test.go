package onnxruntime

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// TestPrepareKeepsTheGraph: in either format, and small.
func TestPrepareKeepsTheGraph(t *testing.T) {
	p, err := Prepare(zooFile(t, "mnist"), t.TempDir(), PrepareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(p.GraphFile())
	if err != nil || info.Size() > 64<<10 {
		t.Fatalf("the graph's file: %v, %v", info, err)
	}
	checkGraph(t, p.GraphFile())
}

// checkGraph checks that the file is mnist's graph with fused operators, all of them known.
func checkGraph(t *testing.T, path string) {
	t.Helper()
	m, err := model.ReadGraph(path)
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.Graph(8)
	if err != nil || len(g.Unknown) > 0 {
		t.Fatalf("unknown are %v, %v", g, err)
	}
	fused := func(o model.Operator) bool { return o.Type == "com.microsoft.FusedGemm" }
	if !slices.ContainsFunc(g.Operators, fused) || !slices.Equal(g.Outputs[0].Shape, []int64{8, 10}) {
		t.Errorf("the graph is %+v", g)
	}
}

// TestGraphWithoutThePackedFormat: a model that could not be packed has a graph,
// and one that was not prepared has none.
func TestGraphWithoutThePackedFormat(t *testing.T) {
	plain, err := formOf(Options{Model: zooFile(t, "mnist")})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if file := (Prepared{Dir: dir}).GraphFile(); file != "" {
		t.Errorf("it has the graph %q", file)
	}
	if err := keepGraph(plain, dir); err != nil {
		t.Fatal(err)
	}
	checkGraph(t, Prepared{Dir: dir}.GraphFile())
	if err := keepGraph(form{path: "none.onnx"}, filepath.Join(dir, "none")); err == nil {
		t.Error("a model that is not there has a graph")
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left behind: %v, %v", files, err)
	}
}

// TestWholeNumbersAreInTheGraph checks that the graph contains integers that operators take
// as parameters.
func TestWholeNumbersAreInTheGraph(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "weights.bin"), []byte{9, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0}, 0o644); err != nil {
		t.Fatal(err)
	}
	tensor := func(kind onnxpb.TensorProto_DataType, offset, length string) *onnxpb.TensorProto {
		entry := func(key, value string) *onnxpb.StringStringEntryProto {
			return &onnxpb.StringStringEntryProto{Key: &key, Value: &value}
		}
		return &onnxpb.TensorProto{
			DataType: proto.Int32(int32(kind)), Dims: []int64{2}, DataLocation: onnxpb.TensorProto_EXTERNAL.Enum(),
			ExternalData: []*onnxpb.StringStringEntryProto{entry("location", "weights.bin"), entry("offset", offset), entry("length", length)},
		}
	}
	index := tensor(onnxpb.TensorProto_INT32, "4", "8")
	if err := inline(index, dir); err != nil || !slices.Equal(index.GetRawData(), []byte{1, 0, 0, 0, 2, 0, 0, 0}) || index.ExternalData != nil {
		t.Errorf("indices: %v, %v", index, err)
	}
	for _, stays := range []*onnxpb.TensorProto{tensor(onnxpb.TensorProto_FLOAT, "4", "8"), tensor(onnxpb.TensorProto_INT64, "0", "99999999")} {
		if err := inline(stays, dir); err != nil || stays.RawData != nil || stays.ExternalData == nil {
			t.Errorf("it was taken in: %v, %v", stays, err)
		}
	}
	if err := inline(tensor(onnxpb.TensorProto_INT32, "8", "8"), dir); err == nil {
		t.Error("a file that ends early was taken")
	}
}

// TestSaveExtended: the graph for a GPU has fused operators, and none that only CPUs have.
func TestSaveExtended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "extended.onnx")
	if err := SaveExtended(zooFile(t, "resnet-50"), path); err != nil {
		t.Fatal(err)
	}
	types := func(path string) []string {
		m, err := model.ReadGraph(path)
		if err != nil {
			t.Fatal(err)
		}
		g, err := m.Graph(8)
		if err != nil || len(g.Unknown) > 0 {
			t.Fatalf("unknown are %v, %v", g, err)
		}
		var all []string
		for _, o := range g.Operators {
			all = append(all, o.Type)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	if got := types(path); !slices.Contains(got, "com.microsoft.FusedConv") || slices.Contains(got, "com.microsoft.nchwc.Conv") {
		t.Errorf("%v", got)
	}
	if err := SaveExtended(zooFile(t, "mnist"), path); err != nil {
		t.Fatal(err)
	}
	if got := types(path); slices.Contains(got, "com.microsoft.FusedGemm") || !slices.Contains(got, "Gemm") {
		t.Errorf("%v", got)
	}
	if err := SaveExtended("none.onnx", path); err == nil {
		t.Error("there is no such model")
	}
}
