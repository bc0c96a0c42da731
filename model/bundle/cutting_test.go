package bundle_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/bundle"
)

const cutting = `{"plan":{"model":"m","members":2,"rounds":[{"first":0,"end":2,"cut":"2x1","on":[0,1]}]},"source":"m.onnx","concurrency":2}`

// A cut model's file has the plan and the source; what else it has is for others.
func TestReadCutting(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m"+bundle.CuttingSuffix)
	if !bundle.IsCutting(file) || bundle.IsCutting("plan.json") || bundle.IsCutting("m.onnx") {
		t.Error("cut models are not told from others")
	}
	for wrong, text := range map[string]string{
		"not JSON":                              cutting[:20],
		"plan is missing":                       `{"source":"m.onnx"}`,
		"source is missing":                     strings.Replace(cutting, "m.onnx", "", 1),
		"plan: members is 0":                    strings.Replace(cutting, `"members":2`, `"members":0`, 1),
		"plan: json: unknown field \"rounded\"": strings.Replace(cutting, "rounds", "rounded", 1),
		"larger than":                           strings.Repeat(" ", 17<<20),
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := bundle.ReadCutting(file); err == nil || !strings.Contains(err.Error(), wrong) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if err := os.WriteFile(file, []byte(cutting), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := bundle.ReadCutting(file)
	if err != nil || c.Plan.Members != 2 || c.Source != filepath.Join(filepath.Dir(file), "m.onnx") {
		t.Errorf("%+v, %v", c, err)
	}
}

func FuzzReadCutting(f *testing.F) {
	f.Add(cutting)
	f.Add(`{"plan":null,"source":"m"}`)
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(t.TempDir(), "m"+bundle.CuttingSuffix)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if c, err := bundle.ReadCutting(file); err == nil && (c.Source == "" || c.Plan.Members < 1) {
			t.Errorf("%+v", c)
		}
	})
}
