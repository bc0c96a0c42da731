package gillis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/papers/gillis/forkjoin"
	"github.com/faas-infer/faas-infer/papers/gillis/partitioning"
	"github.com/faas-infer/faas-infer/profiler"
)

const (
	// planFile is the name of the plan in the directory of --out, wholeFile that of a whole
	// model of the zoo.
	planFile  = "model" + bundle.CuttingSuffix
	wholeFile = "model.onnx"
)

// trial writes the parts of a plan, and runs them.
type trial struct {
	*partitionOptions
	*partitioning.Planned
	// source is the model's file, "" for a model of the zoo that is not written yet.
	source string
	// memory is what a function may hold in bytes.
	memory int64
}

// begin returns an error for what can be refused before the model is planned.
func (t *trial) begin() error {
	if t.check {
		if err := onnxruntime.Load(""); err != nil {
			return err
		}
	}
	if t.out == "" {
		return nil
	}
	if _, err := os.Lstat(t.out); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("--out must be a new directory; %s is there already", t.out), err)
	}
	return nil
}

// run writes the parts as models. With --check it runs them and the whole model, and adds to
// the report how the answers differ and how long both take. After an error nothing of it is
// left.
func (t *trial) run(ctx context.Context, m *model.Model, r *report.Report) (err error) {
	dir := t.out
	if dir == "" {
		dir, err = os.MkdirTemp("", "faas-infer-parts-")
	} else {
		err = os.Mkdir(dir, 0o755)
	}
	if err != nil {
		return err
	}
	defer func() {
		if t.out == "" || err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if t.source == "" {
		t.source = filepath.Join(dir, wholeFile)
		if err := m.WriteFile(t.source); err != nil {
			return err
		}
	}
	weights := m.OpenWeights()
	defer weights.Close()
	rounds, err := t.write(ctx, dir, weights)
	if err != nil || !t.check {
		return err
	}
	return t.compare(ctx, m, rounds, r)
}

// outFile is the content of planFile.
type outFile struct {
	bundle.Cutting
	// Parts are those of the plan by round.
	Parts [][]partFile `json:"parts"`
}

// partFile is a part: its directory, and the region of the group's output that it computes;
// no region is the whole.
type partFile struct {
	Dir    string   `json:"dir"`
	Region []string `json:"region,omitempty"`
}

// writtenPart is a part with the file of its model.
type writtenPart struct {
	*cut.Part
	file string
}

// write writes the models of all parts and the plan, and returns the parts by round.
func (t *trial) write(ctx context.Context, dir string, weights *model.Weights) ([][]writtenPart, error) {
	out, err := t.cutting()
	if err != nil {
		return nil, err
	}
	w := forkjoin.NewWriter(weights)
	var rounds [][]writtenPart
	for i, r := range t.Rounds {
		parts, c, err := t.Parts(r.First, r.End, r.Option.Name)
		if err != nil {
			return nil, err
		}
		var files []partFile
		var round []writtenPart
		for k, part := range parts {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			name := fmt.Sprintf("round%d-part%d", i+1, k+1)
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				return nil, err
			}
			written, err := w.Write(filepath.Join(dir, name), part)
			if err != nil {
				return nil, err
			}
			round = append(round, writtenPart{part, written})
			one := partFile{Dir: name}
			if c.Regions != nil {
				for _, s := range c.Regions[k][1:] { // Without the batch.
					one.Region = append(one.Region, s.String())
				}
			}
			files = append(files, one)
		}
		out.Parts, rounds = append(out.Parts, files), append(rounds, round)
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return nil, err
	}
	return rounds, os.WriteFile(filepath.Join(dir, planFile), append(text, '\n'), 0o644)
}

// cutting is planFile without its parts.
func (t *trial) cutting() (out outFile, err error) {
	content, err := model.ContentHash(t.source)
	if err != nil {
		return out, err
	}
	if filepath.Dir(t.source) != filepath.Clean(t.out) { // The directory may be moved with a model in it.
		out.Source, err = filepath.Abs(t.source)
	} else {
		out.Source = filepath.Base(t.source)
	}
	if err != nil {
		return out, err
	}
	plan, _, err := t.Members(content, t.memory, t.Functions())
	if err == nil {
		out.Plan = *plan
	}
	return out, err
}

// compare runs the parts and the user's own model with the same input.
func (t *trial) compare(ctx context.Context, m *model.Model, rounds [][]writtenPart, r *report.Report) error {
	inputs, err := m.SampleInputs(1, 1)
	if err != nil {
		return err
	}
	master, err := t.openParts(m, rounds)
	if err != nil {
		return err
	}
	got, parts, err := timed(ctx, master, inputs)
	if err := errors.Join(err, master.Close()); err != nil {
		return err
	}
	whole, err := onnxruntime.Open(onnxruntime.Options{Model: t.source, Threads: 1})
	if err != nil {
		return err
	}
	want, alone, err := timed(ctx, whole, inputs)
	if err := errors.Join(err, whole.Close()); err != nil {
		return err
	}
	differ, most := partitioning.Difference(got, want)
	r.Add("check.rel_diff", most, "", "largest difference from the whole model's answer, of its largest element")
	r.Add("check.differing_elements", float64(differ), "", "of all elements of the answer; another order of additions changes last bits")
	r.Add("check.parts_ms", parts, "ms", "median; all parts in this process, each with one thread, as far as there are cores")
	r.Add("check.whole_ms", alone, "ms", "median; the whole model with one thread")
	if allowed := tolerance(m); !(most <= allowed) {
		return fmt.Errorf("--check: the parts' answer differs from the whole model's by %.3g of its largest element, more than %g", most, allowed)
	}
	return nil
}

// tolerance is how far the parts' answer may be from the whole model's, of its largest
// element. ONNX Runtime computes a float16 model in float32 and rounds where parts meet.
func tolerance(m *model.Model) float64 {
	for _, t := range m.Proto().GetGraph().GetInitializer() {
		if model.ElementType(t) == tensor.FP16 {
			return 1e-2
		}
	}
	return 1e-5
}

// openParts makes a master whose workers are engines in this process.
func (t *trial) openParts(m *model.Model, rounds [][]writtenPart) (master *forkjoin.Engine, err error) {
	var all []forkjoin.Round
	var open []*onnxruntime.Engine
	defer func() {
		if err != nil {
			for _, e := range open {
				err = errors.Join(err, e.Close())
			}
		}
	}()
	for i, parts := range rounds {
		var round forkjoin.Round
		for k, part := range parts {
			e, err := onnxruntime.Open(onnxruntime.Options{Model: part.file, Threads: 1})
			if err != nil {
				return nil, fmt.Errorf("round %d, part %d: %w", i+1, k+1, err)
			}
			open = append(open, e)
			round = append(round, forkjoin.Part{Inputs: part.Inputs(), Outputs: part.Outputs(), Worker: e, Own: k == t.Rounds[i].Master})
		}
		all = append(all, round)
	}
	return forkjoin.New(m.Inputs(), m.Outputs(), all)
}

// timed runs an engine a few times and returns its answer and the median time in ms.
func timed(ctx context.Context, e forkjoin.Worker, inputs []tensor.Tensor) (answer []tensor.Tensor, ms float64, err error) {
	const runs = 5
	var times []float64
	for range runs {
		began := time.Now()
		if answer, err = e.Run(ctx, 1, inputs); err != nil {
			return nil, 0, err
		}
		times = append(times, float64(time.Since(began).Microseconds())/1000)
	}
	return answer, profiler.Quantile(times, 0.5), nil
}
