package quantise

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/labelled"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// options are those for a model of the zoo, with random rows.
func options(t *testing.T, name string) Options {
	t.Helper()
	if e, err := environment.Find(t.Context(), engine, ""); err != nil || !e.Made() {
		t.Fatalf("run scripts/python.sh %s first (%v)", engine, err)
	}
	m, err := zoo.Make(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := m.SampleInputs(8, 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, name+".onnx")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	return Options{Model: file, Work: dir, Rows: rows, Log: t.Output(), Step: func(string) {}}
}

// operators counts a model's operators by type.
func operators(t *testing.T, file string) map[string]int {
	t.Helper()
	m, err := model.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Graph(3); err != nil {
		t.Errorf("%s: %v", file, err)
	}
	found := map[string]int{}
	for _, n := range m.Proto().GetGraph().GetNode() {
		found[n.GetOpType()]++
	}
	return found
}

// Both ways make a smaller model with the same inputs and a dynamic batch.
func TestRun(t *testing.T) {
	o := options(t, "mnist")
	made, err := Run(t.Context(), o)
	if err != nil || len(made) != 2 {
		t.Fatalf("%+v, %v", made, err)
	}
	original, err := os.Stat(o.Model)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ way, operator string }{{Static, "QuantizeLinear"}, {Weights, "MatMulNBits"}} {
		m := made[i]
		info, err := os.Stat(m.File)
		if err != nil || m.Way != want.way || m.Error != "" || info.Size() > original.Size()/2 {
			t.Errorf("%+v, %v", m, err)
		}
		if found := operators(t, m.File); found[want.operator] == 0 {
			t.Errorf("%s has no %s: %v", m.Way, want.operator, found)
		}
	}
	again := o
	again.Model = made[0].File
	if _, err := Run(t.Context(), again); !errors.Is(err, ErrNothing) || !strings.Contains(err.Error(), "quantised already") {
		t.Errorf("an int8 model: %v", err)
	}
	identity := options(t, "identity")
	if _, err := Run(t.Context(), identity); !errors.Is(err, ErrNothing) {
		t.Errorf("identity: %v", err)
	}
}

// An operator whose input 8 bits would harm stays in float: with one pixel of a million, the
// step is so large that all others become 0.
func TestSensitiveOperatorsStayInFloat(t *testing.T) {
	o := options(t, "mnist")
	harmless, err := Run(t.Context(), o)
	if err != nil || len(harmless[0].Float) > 0 {
		t.Fatalf("%+v, %v", harmless, err)
	}
	o.Work = t.TempDir()
	pixels := o.Rows[0]
	row := len(pixels.Data) / int(pixels.Shape[0])
	for at := 0; at < len(pixels.Data); at += row {
		binary.LittleEndian.PutUint32(pixels.Data[at:], math.Float32bits(1e6))
	}
	made, err := Run(t.Context(), o)
	if err != nil || len(made[0].Float) == 0 {
		t.Fatalf("%+v, %v", made, err)
	}
	if before, after := operators(t, harmless[0].File)["DequantizeLinear"], operators(t, made[0].File)["DequantizeLinear"]; after >= before {
		t.Errorf("%d tensors are quantised, and %d without outliers; in float: %q", after, before, made[0].Float)
	}
}

// A bias of the shape [1,n], as scikit-learn's models have it, is quantised like one of [n].
func TestRowsOfBiases(t *testing.T) {
	o := options(t, "mnist")
	m, err := model.ReadFile(o.Model)
	if err != nil {
		t.Fatal(err)
	}
	g, changed := m.Proto().GetGraph(), 0
	for _, n := range g.GetNode() {
		for _, i := range g.GetInitializer() {
			if in := n.GetInput(); n.GetOpType() == "Gemm" && len(in) > 2 && i.GetName() == in[2] {
				i.Dims = append([]int64{1}, i.Dims...)
				changed++
			}
		}
	}
	if err := m.WriteFile(o.Model); err != nil {
		t.Fatal(err)
	}
	if made, err := Run(t.Context(), o); changed == 0 || err != nil || made[0].Error != "" {
		t.Errorf("%d biases, %+v, %v", changed, made, err)
	}
}

// A quantizer that is killed is an error, and a new try works.
func TestKilledQuantizer(t *testing.T) {
	o := options(t, "mnist")
	o.Log = io.Discard
	o.Start = func(c *exec.Cmd) error {
		if err := c.Start(); err != nil {
			return err
		}
		if err := c.Process.Kill(); err != nil {
			return err
		}
		return c.Wait()
	}
	if made, err := Run(t.Context(), o); err == nil || errors.Is(err, ErrNothing) || !strings.Contains(err.Error(), "was killed by SIGKILL") {
		t.Errorf("%+v, %v", made, err)
	}
	o.Start = nil
	if made, err := Run(t.Context(), o); err != nil || len(made) != 2 {
		t.Errorf("%+v, %v", made, err)
	}
}

// Rows for the calibration are spread over the set, and are copies.
func TestCalibration(t *testing.T) {
	var x, y []byte
	for i := range 130 {
		x = binary.LittleEndian.AppendUint32(x, math.Float32bits(float32(i)))
		y = append(y, 0)
	}
	file := filepath.Join(t.TempDir(), "v.npz")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := zip.NewWriter(f)
	for name, array := range map[string]tensor.Tensor{"x.npy": {Type: tensor.FP32, Shape: []int64{130, 1}, Data: x}, "y.npy": {Type: tensor.Uint8, Shape: []int64{130}, Data: y}} {
		text, err := protocol.AppendNPY(nil, array)
		if err != nil {
			t.Fatal(err)
		}
		member, err := w.Create(name)
		if err == nil {
			_, err = member.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	set, err := labelled.Read(file, []tensor.Info{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, 1}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Calibration(nil, set)
	if err != nil || len(rows) != 1 || rows[0].Shape[0] != calibrationRows || len(rows[0].Data) != 4*calibrationRows {
		t.Fatalf("%+v, %v", rows, err)
	}
	if first, last := tensor.FP32.Number(rows[0].Data), tensor.FP32.Number(rows[0].Data[4*63:]); first != 0 || last != 127 {
		t.Errorf("from %g to %g", first, last)
	}
	clear(rows[0].Data)
	if again, err := set.Batch(127, 128); err != nil || tensor.FP32.Number(again[0].Data) != 127 {
		t.Errorf("the set has changed: %+v, %v", again, err)
	}
}

// The quantizer is of the version that runs the models.
func TestVersions(t *testing.T) {
	text, err := os.ReadFile("../environment/base/quantise.txt")
	if err != nil || !strings.Contains(string(text), "onnxruntime=="+onnxruntime.LibraryVersion+"\n") {
		t.Errorf("%s, %v", text, err)
	}
}
