package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const layersJSON = `{"model": {"name": "m", "rows": [1, 2, 4], "threads": [1], "blocks": [
	{"name": "a", "ms": [[0.5, 1, 2]], "weights": 1048576, "out": 4, "load_ms": 3},
	{"name": "b", "ms": [[1, 2, 5]], "weights": 2097152, "out": 4, "load_ms": 1}]},
	"machine": "this", "loads": "measured", "batches": [2, 4]}`

// The drawings are of what the commands of faas-infer print.
func TestPlot(t *testing.T) {
	dir := t.TempDir()
	file := written(t, "layers.json", layersJSON)
	if _, err := execute(t, "plot", "layers", file, "--out", dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"figure-2.svg", "figure-3.svg", "figure-4.svg", "figure-7.svg"} {
		if svg, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(svg), "batch 2 to 4") && name != "figure-2.svg" {
			t.Errorf("%s: %v", name, err)
		}
	}
	plan := filepath.Join(dir, "plan.svg")
	if _, err := execute(t, "plot", "partition", "vgg-11", "--out", plan); err != nil {
		t.Fatal(err)
	}
	if svg, err := os.ReadFile(plan); err != nil || !strings.Contains(string(svg), "longest part") {
		t.Errorf("the plan: %v", err)
	}
}

// What cannot be drawn is refused.
func TestPlotRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"no blocks":                   {"layers", written(t, "a.json", `{}`)},
		"no time of a batch of 8":     {"layers", written(t, "b.json", strings.ReplaceAll(layersJSON, `"batches": [2, 4]`, `"batches": [2, 8]`))},
		"at least two are needed":     {"layers", written(t, "c.json", strings.ReplaceAll(layersJSON, `"batches": [2, 4]`, `"batches": [2]`))},
		"not what profile layers":     {"layers", written(t, "d.json", `[]`)},
		"run faas-infer model varian": {"variants", t.TempDir()},
		`--platform is "none"`:        {"partition", "vgg-11", "--platform", "none"},
		"--slo is -1s":                {"partition", "vgg-11", "--slo", "-1s"},
	} {
		if _, err := execute(t, append([]string{"plot"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
