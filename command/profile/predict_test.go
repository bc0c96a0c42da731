package profile

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/cop"
)

// profiles runs "faas-infer profile …" with directories of the test's own.
func profiles(t *testing.T, dir string, arguments ...string) (string, error) {
	t.Helper()
	c := NewCommand()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(append(arguments, "--database", filepath.Join(dir, "operators.jsonl"), "--prepared", filepath.Join(dir, "prepared")))
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// By default all operators are added; an engine that runs branches at the same time has the
// longest path (INFless §3.3).
func TestCombine(t *testing.T) {
	var sum, longest cop.Options
	(&PredictOptions{}).combine(&sum)
	(&PredictOptions{Longest: true}).combine(&longest)
	if sum.Rule != cop.ByEngine || longest.Rule != cop.Longest {
		t.Errorf("%v and %v", sum.Rule, longest.Rule)
	}
}

// On a machine without rows, the operators of a model are measured first. The next
// prediction measures nothing.
func TestPredict(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "profile.json")
	if _, err := profiles(t, dir, "predict", "mnist", "--max-batch", "4", "--out", file); err != nil {
		t.Fatal(err)
	}
	read := func() profiler.Measured {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var m profiler.Measured
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := read()
	if err := first.Profile.Validate(); err != nil || first.Profile.MaxBatch() != 4 || first.Profile.Memory <= 0 || first.Prepared == "" {
		t.Errorf("%v: %+v", err, first)
	}
	size := func() int64 {
		info, err := os.Stat(filepath.Join(dir, "operators.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := size()
	began := time.Now()
	if _, err := profiles(t, dir, "predict", "mnist", "--max-batch", "4", "--until", "1us", "--out", file); err != nil {
		t.Fatal(err)
	}
	if size() != before {
		t.Error("operators were measured again")
	}
	t.Logf("the second prediction took %v", time.Since(began))
	if second := read(); second.Profile.MaxBatch() != 1 {
		t.Errorf("until 1 µs the largest batch is %d", second.Profile.MaxBatch())
	}
	if _, err := profiles(t, dir, "predict", "mnist", "--max-batch", "4", "--longest-path", "--out", file); err != nil {
		t.Fatal(err)
	}
	if longest := read().Profile; !longest.Longest || first.Profile.Longest || longest.Measurements[0].Median > first.Profile.Measurements[0].Median {
		t.Errorf("the longest path takes %+v, the sum %+v", longest.Measurements[0], first.Profile.Measurements[0])
	}
}

// The times of a large model follow from its operators' work before it runs; those of a small one, or of one that may
// take too long, are not assumed.
func TestAssume(t *testing.T) {
	dir := t.TempDir()
	made, err := zoo.Make("vggnet", 1)
	if err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(dir, "large.onnx")
	if err := made.WriteFile(large); err != nil {
		t.Fatal(err)
	}
	content, err := model.ContentHash(large)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "profile.json")
	assume := func(until string) error {
		_, err := profiles(t, dir, "predict", large, "--assume", "--content", content, "--until", until, "--out", file)
		return err
	}
	if err := assume("1m"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got profiler.Measured
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	p := got.Profile
	if err := p.Validate(); err != nil || !p.Provisional || p.MaxBatch() != 1 || p.Memory < 2*64<<20 || p.Yardstick <= 0 {
		t.Errorf("%v: %+v", err, p)
	}
	if m := p.Measurements[0]; !m.Predicted || m.Runs != 0 || m.Margin != assumedMargin {
		t.Errorf("%+v", m)
	}
	if err := assume("1us"); err == nil || !strings.Contains(err.Error(), "a run may take") {
		t.Error("times that are too long are assumed:", err)
	}
	small := writeModel(t, dir, "small.onnx", conditional())
	if _, err := profiles(t, dir, "predict", small, "--assume", "--content", "c", "--until", "1m"); err == nil {
		t.Error("the times of a small model are assumed")
	}
}

func TestPredictRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ what, file, says string }{
		{"nothing", filepath.Join(dir, "nothing.onnx"), "neither a file nor a model of the zoo"},
		{"control flow", writeModel(t, dir, "if.onnx", conditional()), Unpredictable},
	} {
		_, err := profiles(t, dir, "predict", c.file)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	for _, bad := range [][]string{{"predict", "mnist", "--max-batch", "0"}, {"operators", "mnist", "--threads", "-1"}} {
		if _, err := profiles(t, dir, bad...); err == nil || !strings.Contains(err.Error(), "--") {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func writeModel(t *testing.T, dir, name string, p *onnxpb.ModelProto) string {
	t.Helper()
	m, err := model.FromProto(p)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, name)
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	return file
}

// conditional is a model with an If on whether its input's sum is above zero.
func conditional() *onnxpb.ModelProto {
	m, err := zoo.Make("identity", 1)
	if err != nil {
		panic(err)
	}
	p := proto.CloneOf(m.Proto())
	g := p.GetGraph()
	branch := func(kind string) *onnxpb.GraphProto {
		out := proto.CloneOf(g.Output[0])
		out.Name = proto.String(kind + "_out")
		return &onnxpb.GraphProto{
			Name:   proto.String(kind),
			Node:   []*onnxpb.NodeProto{{OpType: proto.String(kind), Input: []string{g.Input[0].GetName()}, Output: []string{kind + "_out"}}},
			Output: []*onnxpb.ValueInfoProto{out},
		}
	}
	attribute := func(name string, g *onnxpb.GraphProto) *onnxpb.AttributeProto {
		return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_GRAPH.Enum(), G: g}
	}
	zero := &onnxpb.TensorProto{Name: proto.String("zero"), DataType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)), FloatData: []float32{0}}
	g.Initializer = append(g.Initializer, zero)
	g.Node = []*onnxpb.NodeProto{
		{OpType: proto.String("ReduceSum"), Input: []string{g.Input[0].GetName()}, Output: []string{"sum"}, Attribute: []*onnxpb.AttributeProto{
			{Name: proto.String("keepdims"), Type: onnxpb.AttributeProto_INT.Enum(), I: proto.Int64(0)}}},
		{OpType: proto.String("Greater"), Input: []string{"sum", "zero"}, Output: []string{"positive"}},
		{OpType: proto.String("If"), Input: []string{"positive"}, Output: []string{g.Output[0].GetName()}, Attribute: []*onnxpb.AttributeProto{
			attribute("then_branch", branch("Relu")), attribute("else_branch", branch("Neg"))}},
	}
	return p
}
