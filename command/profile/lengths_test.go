package profile

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler"
)

func TestBySize(t *testing.T) {
	m, err := zoo.Make("minilm", 1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := m.FreeLength(tensor.Shapes{"input_ids": {1, 48}})
	if err != nil || l == nil {
		t.Fatalf("%+v, %v", l, err)
	}
	// A row takes 1 ms for a token, less in a batch; 32 tokens disturbed the measurement, and the
	// model does not run with 256.
	largest := tensor.Shapes{"input_ids": {1, 300}, "attention_mask": {1, 300}}
	sizes := bySize(l, lengthsOf(l, largest, 0), func(n int64) []float64 {
		switch n {
		case 32:
			return []float64{1, 1}
		case 256:
			return nil
		}
		return []float64{1000 * float64(n), 1500 * float64(n)}
	})
	if sizes == nil || sizes.Unit != "tokens" || sizes.Length != 48 || sizes.Elements != 96 {
		t.Fatalf("%+v", sizes)
	}
	want := map[int64]float64{16: 1.0 / 3, 32: 1.0 / 3, 48: 1, 64: 4.0 / 3, 128: 8.0 / 3, 300: 6.25}
	for _, s := range sizes.Times {
		if f, ok := want[s.Length]; !ok || s.Elements != 2*s.Length || len(s.Factors) != 2 || s.Factors[0] != f || s.Factors[1] != f {
			t.Errorf("%+v, want the factors %v", s, f)
		}
		delete(want, s.Length)
	}
	if len(want) > 0 {
		t.Errorf("no times of %v", want)
	}
}

// Times are found up to the length of the bundle's texts, and beyond the usual ones each time for the double.
func TestLengthsOf(t *testing.T) {
	m, err := zoo.Make("minilm", 1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := m.FreeLength(tensor.Shapes{"input_ids": {1, 48}})
	if err != nil {
		t.Fatal(err)
	}
	largest := tensor.Shapes{"input_ids": {1, 300}, "attention_mask": {1, 300}}
	for _, c := range []struct {
		largest tensor.Shapes
		most    int
		want    []int64
	}{
		{nil, 0, []int64{16, 32, 48, 64, 128, 256, 512}},
		{nil, 256, []int64{16, 32, 48, 64, 128, 256}},
		{nil, 8, []int64{8}},
		{nil, 3000, []int64{16, 32, 48, 64, 128, 256, 512, 1024, 2048, 3000}},
		{largest, 0, []int64{16, 32, 48, 64, 128, 256, 300}},
		{largest, 100, []int64{16, 32, 48, 64, 100}},
		{largest, 512, []int64{16, 32, 48, 64, 128, 256, 300}},
	} {
		if got := lengthsOf(l, c.largest, c.most); !slices.Equal(got, c.want) {
			t.Errorf("%v, %d tokens: %v, want %v", c.largest, c.most, got, c.want)
		}
	}
}

// A model that is measured as a whole is measured by size, too, up to what the deployment allows.
func TestMeasuredSizes(t *testing.T) {
	dir := t.TempDir()
	m, err := zoo.Make("identity", 1)
	if err != nil {
		t.Fatal(err)
	}
	file, out := filepath.Join(dir, "identity.onnx"), filepath.Join(dir, "profile.json")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	c := NewCommand()
	c.SetArgs([]string{"model", file, "--prepared", filepath.Join(dir, "prepared"), "--out", out, "--max-batch", "2", "--threads", "1",
		"--shapes", "input:1x24", "--max-shapes", "input:1x64", "--json"})
	c.SetOut(t.Output())
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	var found profiler.Measured
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err != nil || found.Profile.BySize == nil {
		t.Fatalf("%s, %v", text, err)
	}
	var lengths []int64
	for _, s := range found.Profile.BySize.Times {
		lengths = append(lengths, s.Length)
	}
	if want := []int64{16, 24, 32, 64}; !slices.Equal(lengths, want) || found.Profile.BySize.Elements != 24 {
		t.Errorf("the times of %v, want those of %v", lengths, want)
	}
}

// What one row took longer than predicted is added once to a batch, and no longer text takes less.
func TestCorrectedSizes(t *testing.T) {
	predicted := &profiler.Sizes{Unit: "tokens", Length: 128, Elements: 128, Times: []profiler.SizeTime{
		{Length: 16, Elements: 16, Factors: []float64{0.2, 0.2, 0.2}},
		{Length: 32, Elements: 32, Factors: []float64{0.3, 0.25, 0.25}},
		{Length: 64, Elements: 64, Factors: []float64{0.5, 0.5, 0.5}},
		{Length: 128, Elements: 128, Factors: []float64{1, 1, 1}},
		{Length: 256, Elements: 256, Factors: []float64{2, 2, 2}},
	}}
	measured := &profiler.Sizes{Times: []profiler.SizeTime{
		{Length: 16, Factors: []float64{0.3}}, {Length: 32, Factors: []float64{0.4}}, {Length: 64, Factors: []float64{0.1}},
		{Length: 128, Factors: []float64{1}},
	}}
	// One row of 128 takes 10 ms, two take 20. Of 16 tokens two take 4 ms and the one millisecond more.
	got := corrected(predicted, measured, []float64{10e3, 20e3})
	want := [][]float64{{0.3, 0.25, 0.2}, {0.4, 0.3, 0.25}, {0.4, 0.3, 0.5}, {1, 1, 1}, {2, 2, 2}}
	for i, w := range want {
		for j := range w {
			if math.Abs(got.Times[i].Factors[j]-w[j]) > 1e-9 {
				t.Errorf("%d tokens: %v, want %v", got.Times[i].Length, got.Times[i].Factors, w)
				break
			}
		}
	}
	if predicted.Times[0].Factors[0] != 0.2 {
		t.Error("it changes the prediction")
	}
}

// The times by size of a model that is predicted come from its operators at those sizes.
func TestPredictedSizes(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "profile.json")
	if _, err := profiles(t, dir, "predict", "identity", "--max-batch", "2", "--threads", "1", "--out", out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	var found profiler.Measured
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if s := found.Profile.BySize; err != nil || s == nil || s.Length != 128 || s.Unit != "steps" || s.Times[len(s.Times)-1].Length != 512 {
		t.Errorf("%s, %v", text, err)
	}
}

// A model of whose operators nothing is known serves with a sketch, which knows the sizes, too.
func TestSketchedSizes(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "profile.json")
	if _, err := profiles(t, dir, "predict", "identity", "--sketch", "--max-batch", "2", "--threads", "1", "--out", out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	var found profiler.Measured
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err != nil || !found.Profile.Provisional || found.Profile.BySize == nil || found.Profile.BySize.Length != 128 {
		t.Errorf("%s, %v", text, err)
	}
}
