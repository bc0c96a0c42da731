package zoo

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model"
)

var update = flag.Bool("update", false, "write testdata/zoo.txt anew")

// TestArchitectures makes every model once. Shapes, parameters and multiply-adds
// must equal the file in testdata, which was compared with ONNX's own shape
// inference.
func TestArchitectures(t *testing.T) {
	var got strings.Builder
	for _, a := range All() {
		m, err := Make(a.Name, 1)
		if err != nil {
			t.Fatal(err)
		}
		sized, _, err := m.Sized(nil) // A free length is 128.
		if err != nil {
			t.Fatal(err)
		}
		for _, batch := range []int{1, 8} {
			g, err := sized.Graph(batch)
			if err != nil {
				t.Fatalf("%s: %v", a.Name, err)
			}
			printFigures(&got, a.Name, g)
			checkOutputs(t, m, g)
			if batch == 1 {
				checkTable(t, a, g)
			}
		}
	}
	const file = "testdata/zoo.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("run the test with -update if the change is meant; got\n%s", got.String())
	}
}

func printFigures(w io.Writer, name string, g *model.Graph) {
	fmt.Fprintf(w, "%s batch=%d operators=%d parameters=%d flops=%d unknown=%v\n", name, g.Batch, len(g.Operators), g.Parameters, g.FLOPs, g.Unknown)
	for _, v := range g.Inputs {
		fmt.Fprintf(w, "  input %s %s %v\n", v.Name, v.Type, v.Shape)
	}
	for _, v := range g.Outputs {
		fmt.Fprintf(w, "  output %s %s %v\n", v.Name, v.Type, v.Shape)
	}
}

// checkOutputs checks that the declared output shapes are those that the operators
// compute.
func checkOutputs(t *testing.T, m *model.Model, g *model.Graph) {
	t.Helper()
	for i, o := range m.Outputs() {
		declared := append([]int64{int64(g.Batch)}, o.Shape[1:]...)
		for k, d := range declared {
			if d < 0 && k < len(g.Outputs[i].Shape) {
				declared[k] = g.Outputs[i].Shape[k] // It is free.
			}
		}
		if got := g.Outputs[i]; got.Name != o.Name || got.Type != o.Type || !slices.Equal(got.Shape, declared) {
			t.Errorf("%s: output %+v is declared as %+v", m.Name(), got, o)
		}
	}
}

// checkTable checks that the model has the size of INFless Table 1 within an
// eighth, except MNIST's 72k, and the table's GFLOPs unless a note says otherwise.
func checkTable(t *testing.T, a Architecture, g *model.Graph) {
	t.Helper()
	if a.TableSize == "" || a.Name == "mnist" {
		return
	}
	var table float64
	if _, err := fmt.Sscanf(a.TableSize, "%fM", &table); err != nil {
		t.Fatal(err)
	}
	if size := float64(g.ParameterBytes) / (1 << 20); math.Abs(size/table-1) > 0.125 {
		t.Errorf("%s has %.1f MiB, the table %s", a.Name, size, a.TableSize)
	}
	if flops := float64(g.FLOPs) / 1e9; a.Note == "" && math.Abs(flops/a.TableGFLOPs-1) > 0.05 {
		t.Errorf("%s has %.2f GFLOPs, the table %g, and no note says why", a.Name, flops, a.TableGFLOPs)
	}
}

func TestResNet50HasTheTablesGFLOPs(t *testing.T) {
	m, err := Make("resnet50", 1)
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.Graph(1)
	if err != nil {
		t.Fatal(err)
	}
	if got := float64(g.FLOPs) / 1e9; math.Abs(got-3.89) > 0.01 {
		t.Errorf("%.3f GFLOPs, the table says 3.89", got)
	}
}

// encoded is a model's file.
func encoded(t *testing.T, name string, seed uint64) []byte {
	t.Helper()
	m, err := Make(name, seed)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := m.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSeeds(t *testing.T) {
	one := encoded(t, "textcnn-69", 1)
	if !bytes.Equal(one, encoded(t, "textcnn-69", 1)) {
		t.Error("the same seed gives two models")
	}
	if bytes.Equal(one, encoded(t, "textcnn-69", 2)) {
		t.Error("two seeds give the same model")
	}
}

// graphOf is the graph of an architecture.
func graphOf(t *testing.T, name string) *model.Graph {
	t.Helper()
	m, err := Make(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.Graph(1)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The weights of Gillis' models, without the batch normalisations', have the sizes that
// the paper's authors and their release give, in MiB. Their multiply-adds are the
// literature's.
func TestGillis(t *testing.T) {
	for _, test := range []struct {
		name        string
		size        float64 // 0 if nobody gives it
		flops, near float64 // GFLOPs, the relative error allowed
	}{
		{"vgg-11", 507, 7.6, 0.01}, {"vgg-16", 528, 15.5, 0.01}, {"vgg-19", 548, 19.6, 0.01},
		{"resnet-34", 83, 3.6, 0.03}, {"resnet-101", 170, 7.8, 0.03},
		{"wrn-34-3", 0, 9 * 3.6, 0.05}, {"wrn-34-4", 0, 16 * 3.6, 0.05}, {"wrn-34-5", 0, 25 * 3.6, 0.05},
		{"wrn-50-3", 828, 9 * 4.1, 0.05}, {"wrn-50-4", 1461, 16 * 4.1, 0.05}, {"wrn-50-5", 2273, 25 * 4.1, 0.05},
		{"rnn-1", 128.06, 0.671, 0.01}, {"rnn-3", 3 * 128.06, 3 * 0.671, 0.01}, {"rnn-12", 12 * 128.06, 12 * 0.671, 0.01},
	} {
		g := graphOf(t, test.name)
		bytes := int64(0)
		for _, o := range g.Operators {
			if o.Type != "BatchNormalization" {
				bytes += o.ParameterBytes
			}
		}
		if size := float64(bytes) / (1 << 20); test.size > 0 && math.Abs(size-test.size) > 0.6 {
			t.Errorf("%s has %.2f MiB, not %g", test.name, size, test.size)
		}
		if flops := float64(g.FLOPs) / 1e9; math.Abs(flops/test.flops-1) > test.near {
			t.Errorf("%s has %.2f GFLOPs, not %g", test.name, flops, test.flops)
		}
		if len(g.Unknown) > 0 {
			t.Errorf("%s: unknown are %q", test.name, g.Unknown)
		}
	}
}

// The models of AsyFunc Table 2 have the parameters that their authors publish, to one, and
// their multiply-adds. The mean and variance of a batch normalisation are statistics and not
// parameters, and what places YOLO's boxes is not trained.
func TestAsyFunc(t *testing.T) {
	for _, test := range []struct {
		name       string
		parameters int64
		table      float64 // MiB
		flops      float64 // GFLOPs
	}{
		{"inception-v3", 23_834_568, 92, 5.7}, {"efficientnet-b5", 30_389_784, 117, 10.3}, {"ssd300", 35_641_826, 136, 34.9},
		{"yolov8x", 68_229_648, 2 * 131, 128.9}, {"resnet-101", 44_549_160, 171, 7.8}, {"vgg-19", 143_667_240, 548, 19.6},
	} {
		g := graphOf(t, test.name)
		parameters := int64(0)
		for _, o := range g.Operators {
			switch {
			case o.Type == "BatchNormalization":
				parameters += o.Parameters / 2
			case o.Type == "Conv", o.Type == "Gemm", o.Type == "Mul" && test.name == "ssd300":
				parameters += o.Parameters
			}
		}
		if parameters != test.parameters {
			t.Errorf("%s has %d parameters, %d more than published", test.name, parameters, parameters-test.parameters)
		}
		if size := float64(4*parameters) / (1 << 20); math.Abs(size/test.table-1) > 0.015 {
			t.Errorf("%s has %.1f MiB, the table %g", test.name, size, test.table)
		}
		if flops := float64(g.FLOPs) / 1e9; math.Abs(flops/test.flops-1) > 0.04 {
			t.Errorf("%s has %.2f GFLOPs, not %g", test.name, flops, test.flops)
		}
	}
}

// A model of many MiB is written with little memory: one weight after another.
func TestWriteTakesLittleMemory(t *testing.T) {
	m, err := Make("rnn-1", 1)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := m.Write(io.Discard); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 8<<20 {
		t.Errorf("writing 128 MiB allocates %d bytes", allocated)
	}
}

// A name finds its model in any case, and so do the aliases.
func TestNames(t *testing.T) {
	for alias, name := range map[string]string{
		"dssm": "dssm-2365", "lstm": "lstm-2365", "textcnn": "textcnn-69", "resnet50": "resnet-50",
		"resnet20": "resnet-20", "vgg": "vggnet", "bert": "bert-v1", "ResNet-50": "resnet-50",
		"vgg16": "vgg-16", "resnet101": "resnet-101", "WRN-50-3": "wrn-50-3", "RNN-3": "rnn-3", "rnn-1": "rnn-1", "rnn-1000": "rnn-1000",
	} {
		if a, ok := Find(alias); !ok || a.Name != name {
			t.Errorf("%s is %s, %v", alias, a.Name, ok)
		}
	}
	for _, name := range []string{"rnn", "rnn-", "rnn-0", "rnn--1", "rnn-03", "rnn-1001", "rnn-N", "rnn-3x", "wrn-50-6", "vgg-13"} {
		if a, ok := Find(name); ok {
			t.Errorf("%s is %s", name, a.Name)
		}
	}
	if _, err := Make("gpt", 1); err == nil || !strings.Contains(err.Error(), "bert-v1") {
		t.Errorf("got %v", err)
	}
	for _, a := range All() {
		if slices.Contains(a.Aliases, a.Name) || a.Description == "" {
			t.Errorf("%+v", a)
		}
	}
}

// Every weight is a finite, normal number. Random weights have the mean and the
// variance that keep the size of activations.
func TestWeights(t *testing.T) {
	for _, name := range []string{"mnist", "yamnet", "dssm", "lstm"} {
		m, err := model.Read(encoded(t, name, 3))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range m.Proto().GetGraph().GetInitializer() {
			if w.GetDataType() != 1 {
				continue
			}
			for b := w.GetRawData(); len(b) > 0; b = b[4:] {
				v := float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
				if math.IsNaN(v) || math.Abs(v) > 1e3 || v != 0 && math.Abs(v) < 0x1p-126 {
					t.Fatalf("%s: weight %s holds %g", name, w.GetName(), v)
				}
			}
		}
	}
}

func TestUniform(t *testing.T) {
	u, w := uniform{0.5, 2}, make([]byte, 4*300*333)
	u.fill(w, 1, "w", 0)
	var sum, squares, n float64
	for b := w; len(b) > 0; b = b[4:] {
		v := float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) - 0.5
		if v < -2 || v > 2 {
			t.Fatalf("%g is outside", v)
		}
		sum, squares, n = sum+v, squares+v*v, n+1
	}
	if n != 300*333 || math.Abs(sum/n) > 0.02 || math.Abs(squares/n-4.0/3) > 0.02 {
		t.Errorf("%g values with mean %g and variance %g", n, sum/n, squares/n)
	}
	for _, span := range [][2]int{{0, 1}, {4, 9}, {5, 6}, {7, 4000}, {4096, 4104}, {len(w) - 5, len(w)}} {
		part := make([]byte, span[1]-span[0])
		u.fill(part, 1, "w", int64(span[0]))
		if !bytes.Equal(part, w[span[0]:span[1]]) {
			t.Errorf("bytes %d to %d alone are others", span[0], span[1])
		}
	}
}
