package onnxruntime

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	ort "github.com/yalue/onnxruntime_go"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// TestShapesAreTheEngines: what package model infers for each value of an
// optimised graph is what the engine computes.
func TestShapesAreTheEngines(t *testing.T) {
	had := map[string]bool{}
	for _, name := range []string{"mnist", "textcnn", "dssm", "lstm", "mobilenet", "ssd", "resnet-34", "transformer", "blocks"} {
		path := filepath.Join("testdata", name+".txt")
		if _, err := os.Stat(path); err == nil {
			path = described(t, path)
		} else {
			path = zooFile(t, name)
		}
		plain, err := formOf(Options{Model: path})
		if err != nil {
			t.Fatal(err)
		}
		optimised := filepath.Join(t.TempDir(), "model.onnx")
		if err := saveOptimised(plain, optimised, formats[FormatPacked].save[:2]); err != nil {
			t.Fatal(err)
		}
		compareShapes(t, name, optimised, plain.signature, had)
	}
	for _, kind := range []string{
		"FusedConv", "FusedGemm", "FusedMatMul", "BiasGelu", "SkipLayerNormalization", "nchwc.Conv",
		"nchwc.ReorderInput", "nchwc.ReorderOutput", "nchwc.GlobalAveragePool", "nchwc.Upsample",
	} {
		if !had["com.microsoft."+kind] {
			t.Errorf("no model has %s any more, so it was not compared", kind)
		}
	}
}

// described writes the model that a text describes, with weights that are
// small numbers.
func described(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := new(onnxpb.ModelProto)
	if err := prototext.Unmarshal(text, p); err != nil {
		t.Fatal(err)
	}
	for _, w := range p.GetGraph().GetInitializer() {
		n := int64(1)
		for _, d := range w.GetDims() {
			n *= d
		}
		if w.Int64Data == nil && w.FloatData == nil {
			for i := range n {
				w.FloatData = append(w.FloatData, float32(i%7)/100)
			}
		}
	}
	b, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// compareShapes compares the shapes and records the model's operators in had.
func compareShapes(t *testing.T, name, path string, s signature, had map[string]bool) {
	t.Helper()
	m, err := model.ReadGraph(path)
	if err != nil {
		t.Fatal(err)
	}
	const rows = 3
	g, err := m.Graph(rows)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Unknown) > 0 {
		t.Errorf("%s: unknown are %q", name, g.Unknown)
	}
	inputs, err := m.SampleInputs(rows, 1)
	if err != nil {
		t.Fatal(err)
	}
	// Every value becomes an output.
	p := proto.Clone(m.Proto()).(*onnxpb.ModelProto)
	p.Graph.Output, s.Outputs = nil, nil
	var want []model.Value
	for _, o := range g.Operators {
		had[o.Type] = true
		for _, v := range o.Outputs {
			want = append(want, v)
			p.Graph.Output = append(p.Graph.Output, &onnxpb.ValueInfoProto{Name: proto.String(v.Name)})
			s.Outputs = append(s.Outputs, tensor.Info{Name: v.Name, Type: v.Type})
		}
	}
	b, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	all := filepath.Join(filepath.Dir(path), "all.onnx")
	if err := os.WriteFile(all, b, 0o644); err != nil {
		t.Fatal(err)
	}
	e, err := open(form{path: all, level: ort.GraphOptimizationLevelDisableAll, signature: s}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var pinned runtime.Pinner
	defer pinned.Unpin()
	in, err := e.bindInputs(rows, inputs, &pinned)
	defer destroy(in)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]ort.Value, len(want))
	defer destroy(out)
	if err := e.execute(t.Context(), in, out); err != nil {
		t.Fatal(err)
	}
	for i, v := range want {
		if got := out[i].GetShape(); !slices.Equal(v.Shape, got) {
			t.Errorf("%s: %q is %v, the engine has %v", name, v.Name, v.Shape, got)
		}
	}
}
