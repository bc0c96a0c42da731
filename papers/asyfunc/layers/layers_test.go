package layers

import (
	"bytes"
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// profiles runs "faas-infer profile layers …" with directories of the test's own.
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

// The blocks of a model have its weights and multiply-adds, and together about the time that
// the whole model is predicted to take.
func TestLayers(t *testing.T) {
	dir := t.TempDir()
	text, err := profiles(t, dir, "mnist", "--batch", "2,4", "--threads", "1", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var l Layers
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatal(err)
	}
	if err := l.Model.Check(); err != nil {
		t.Error(err)
	}
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.Graph(1)
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Model.Weights(l.Model.All()); math.Abs(float64(got)/float64(g.ParameterBytes)-1) > 0.01 {
		t.Errorf("the blocks weigh %d bytes, the model %d", got, g.ParameterBytes)
	}
	if got := l.Model.MACs(l.Model.All()); math.Abs(float64(got)/float64(g.FLOPs)-1) > 0.01 {
		t.Errorf("the blocks compute %d, the model %d", got, g.FLOPs)
	}
	o := profile.PredictOptions{MaxBatch: 2, Threads: 1, Database: filepath.Join(dir, "operators.jsonl"), Prepared: filepath.Join(dir, "prepared")}
	whole, err := o.Model(t.Context(), "mnist")
	if err != nil {
		t.Fatal(err)
	}
	want, _ := whole.Prediction.At(2, 1)
	// The second prediction measures other batches, which moves what is derived from them.
	if got := l.Model.Time(0, len(l.Model.Blocks), 2, 1000); math.Abs(got*1000/want.Median-1) > 0.2 {
		t.Errorf("the blocks take %g ms, the model %g", got, want.Median/1000)
	}
	if l.Loads != "measured" || l.Model.Load(l.Model.All()) <= l.Model.Open || l.Undivided != "" {
		t.Errorf("load times are %s, all blocks take %g ms, %q", l.Loads, l.Model.Load(l.Model.All()), l.Undivided)
	}
	text, err = profiles(t, dir, "mnist", "--batch", "2,4", "--threads", "1")
	if err != nil || !strings.Contains(text, "+ at 4") || !strings.Contains(text, "A shadow of one core") {
		t.Errorf("%v: %s", err, text)
	}
}

// A wrong flag's error names it and says what is allowed, before any work.
func TestLayersErrors(t *testing.T) {
	dir := t.TempDir()
	for arguments, want := range map[string]string{
		"mnist --batch 2":          "--batch is [2]: give at least 2",
		"mnist --batch 3,2":        "--batch is [3 2]: give ascending numbers from 1 to 256",
		"mnist --batch 0,2":        "--batch is [0 2]",
		"mnist --threads 2,2":      "--threads is [2 2]: give ascending numbers from 1 to 256",
		"mnist --tensors 100":      "--tensors is 100: give a number from 1 to 64",
		"nothing.onnx --batch 2,3": "nothing.onnx is neither a file nor a model of the zoo",
	} {
		if _, err := profiles(t, dir, strings.Fields(arguments)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %q", arguments, err, want)
		}
	}
}

// Where a graph cannot be divided, its one block is a twin's.
func TestLayersOfOneBlock(t *testing.T) {
	dir := t.TempDir()
	text, err := profiles(t, dir, "identity", "--batch", "1,2", "--threads", "1", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var l Layers
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatal(err)
	}
	if len(l.Model.Blocks) != 1 {
		t.Errorf("%d blocks", len(l.Model.Blocks))
	}
	if text, err = profiles(t, dir, "identity", "--batch", "1,2", "--threads", "1"); err != nil || !strings.Contains(text, "cannot be divided") {
		t.Errorf("%v: %s", err, text)
	}
}
