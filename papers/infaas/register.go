package infaas

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/labelled"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/python/quantise"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/provider/children"
)

// tableFile is the table in the directory of variants.
const tableFile = "variants.csv"

// generated matches the names of generated models in out.
var generated = regexp.MustCompile(`^(static|dynamic)-[0-9a-f]{16}\.onnx$`)

// suffixes are added to a model's name for its variants.
var suffixes = map[string]string{quantise.Static: "-int8", quantise.Weights: "-int8-weights"}

// registering makes and measures the variants of a bundle's models.
type registering struct {
	bundle  *bundle.Bundle
	out     string
	maxLoss float64
	step    func(string)
	log     io.Writer

	work   string
	data   string // the labelled data's path, "" for none
	metric registration.Metric
}

// register returns the bundle's registration, and whether it is new. It writes a new one to
// out. An error leaves out as it was.
func (r *registering) register(ctx context.Context) (_ *registration.Registration, fresh bool, err error) {
	if err := r.check(); err != nil {
		return nil, false, err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return nil, false, fmt.Errorf("the directory of the variants (--out): %w", err)
	}
	lock, err := LockDir(r.out)
	if err != nil {
		return nil, false, fmt.Errorf("the directory of the variants (--out): %w", err)
	}
	defer lock.Close()
	if err := r.sweep(nil); err != nil {
		return nil, false, err
	}
	want, err := r.describe()
	if err != nil {
		return nil, false, err
	}
	if known := r.known(want.Key); known != nil {
		return known, false, nil
	}
	if r.work, err = os.MkdirTemp(r.out, Unfinished); err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	for _, m := range r.bundle.Registered() {
		if err := r.add(ctx, want, m); err != nil {
			return nil, false, fmt.Errorf("model %s: %w", m.Name, err)
		}
	}
	want.DropDominated()
	return want, true, r.write(want)
}

// check reads the models' signatures. It refuses models that do not answer the same
// requests, and names that the variants will have.
func (r *registering) check() error {
	models := r.bundle.Registered()
	for _, m := range models {
		for _, suffix := range suffixes {
			if slices.ContainsFunc(models, func(o bundle.ManifestModel) bool { return o.Name == m.Name+suffix }) {
				return fmt.Errorf("%s: the name %s is that of a variant of %s; choose another", bundle.ManifestFile, m.Name+suffix, m.Name)
			}
		}
	}
	if err := r.bundle.CheckAlike(); err != nil {
		return err
	}
	if v := r.bundle.Validation; v != nil {
		var err error
		r.data = filepath.Join(r.bundle.Dir, v.Data)
		r.metric, err = registration.ParseMetric(v.Metric)
		return err
	}
	return nil
}

// describe returns a registration without variants.
func (r *registering) describe() (*registration.Registration, error) {
	want := &registration.Registration{Machine: report.Machine(), Engine: onnxruntime.Name(), Metric: r.metric}
	var models string
	var err error
	if want.Data, models, err = Contents(r.bundle, model.ContentHash, labelled.Hash); err != nil {
		return nil, err
	}
	key := sha256.New()
	fmt.Fprintf(key, "%s\n%s\n%s\n%s\n%g\n", quantise.Version, want.Engine, onnxruntime.HostCPU(), want.Metric, r.maxLoss)
	fmt.Fprintf(key, "%s\n%s", want.Data, models)
	if r.bundle.Text != nil {
		fmt.Fprintf(key, "\n%+v", *r.bundle.Text)
	}
	want.Key = hex.EncodeToString(key.Sum(nil)[:16])
	return want, nil
}

// known returns the registration in out if it has the key and all its files.
func (r *registering) known(key string) *registration.Registration {
	text, err := os.ReadFile(filepath.Join(r.out, registration.File))
	if err != nil {
		return nil
	}
	found, err := registration.Read(text)
	if err != nil || found.Key != key {
		return nil // It is of another version, or of other models.
	}
	for _, v := range found.Variants {
		if !v.Generated {
			continue
		}
		if hash, err := model.ContentHash(filepath.Join(r.out, filepath.Base(v.File))); err != nil || hash != v.Hash {
			return nil
		}
	}
	return found
}

// add measures a model and its int8 variants, and adds them.
func (r *registering) add(ctx context.Context, to *registration.Registration, m bundle.ManifestModel) error {
	file := filepath.Join(r.bundle.Dir, m.Model)
	r.step("measuring " + m.Name)
	original, err := r.measure(ctx, m, file, r.judgedBy(m, "")...)
	if err != nil {
		return err
	}
	original.Name, original.File = m.Name, m.Model
	if original.Accuracy == nil {
		original.Stated = m.Accuracy
	}
	to.Variants = append(to.Variants, *original)
	rows, err := r.calibration(m, file)
	if err != nil {
		return err
	}
	work := filepath.Join(r.work, hex.EncodeToString([]byte(m.Name)))
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	made, err := quantise.Run(ctx, quantise.Options{
		Model: file, Work: work, Rows: rows, Log: r.log,
		Step: func(s string) { r.step(m.Name + ": " + s) }, Start: runIdle,
	})
	if errors.Is(err, quantise.ErrNothing) {
		to.Dropped = append(to.Dropped, registration.Dropped{Model: m.Name, Name: m.Name + suffixes[quantise.Static], Reason: err.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	for _, one := range made {
		if err := r.addMade(ctx, to, m, original, one); err != nil {
			return err
		}
	}
	return nil
}

// addMade measures a generated model, and adds or drops it.
func (r *registering) addMade(ctx context.Context, to *registration.Registration, m bundle.ManifestModel, original *registration.Registered, made quantise.Made) error {
	name := m.Name + suffixes[made.Way]
	drop := func(reason string) error {
		to.Dropped = append(to.Dropped, registration.Dropped{Model: m.Name, Name: name, Reason: reason})
		return nil
	}
	if made.Error != "" {
		return drop("it cannot be made: " + made.Error)
	}
	r.step("measuring " + name)
	// The times alone take seconds, and drop many.
	var v *registration.Registered
	for _, how := range [][]string{nil, r.judgedBy(m, filepath.Join(r.bundle.Dir, m.Model))} {
		var err error
		v, err = r.measure(ctx, m, made.File, how...)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return drop("it does not run: " + err.Error())
		}
		if reason := registration.Drop(original, v, r.maxLoss); reason != "" {
			return drop(reason)
		}
	}
	v.Name, v.Generated = name, true
	// The name in out has the content's hash, so a file is never replaced by another one.
	v.File = made.Way + "-" + v.Hash[:16] + ".onnx"
	to.Variants = append(to.Variants, *v)
	return os.Rename(made.File, filepath.Join(r.work, v.File))
}

// judgedBy returns the flags for what a model's answers are compared with: labels, otherwise
// the original, "" for the original itself.
func (r *registering) judgedBy(m bundle.ManifestModel, original string) []string {
	switch {
	case r.data != "":
		return []string{"--data", r.data, "--image", m.Image, "--metric", string(r.metric)}
	case original != "":
		return []string{"--against", original}
	}
	return nil
}

// measure runs "model evaluate" in a child of idle weight.
func (r *registering) measure(ctx context.Context, m bundle.ManifestModel, file string, flags ...string) (*registration.Registered, error) {
	args := append([]string{"model", "evaluate", file, "--json", "--prepared", filepath.Join(r.work, "prepared")}, flags...)
	if r.bundle.Text != nil {
		args = append(args, "--texts", r.bundle.Dir)
	}
	out, err := new(children.Models).Run(ctx, children.Background, file, args...)
	if err != nil {
		return nil, err
	}
	var found report.Report
	if err := json.Unmarshal(out, &found); err != nil {
		return nil, fmt.Errorf("the evaluation's result: %w", err)
	}
	v := figuresOf(&found)
	v.Model = m.Name
	v.Hash, err = model.ContentHash(file)
	return v, err
}

// figuresOf returns the figures of an evaluation as a variant.
func figuresOf(found *report.Report) *registration.Registered {
	by := map[string]float64{}
	for _, f := range found.Results {
		by[f.Name] = f.Value
	}
	share := func(name string) *registration.Share {
		percent, there := by[name]
		if !there {
			return nil
		}
		s := registration.ShareOf(int(math.Round(percent/100*by["rows"])), int(by["rows"]))
		return &s
	}
	return &registration.Registered{
		Accuracy: share("accuracy"), Agreement: share("agreement"), NaNRows: int(by["nan_rows"]),
		LatencyMS: by["row_ms"], RPS: by["rps"], LoadMS: by["load_ms"], MemoryMB: by["memory_mb"],
	}
}

// runIdle runs a command to its end with CPU time that nobody else wants.
func runIdle(c *exec.Cmd) error {
	p, err := children.StartIdle(c, syscall.SIGKILL)
	if err != nil {
		return err
	}
	return p.Wait()
}

// calibration returns rows of the labelled data, evenly spread, or random ones.
func (r *registering) calibration(m bundle.ManifestModel, file string) ([]tensor.Tensor, error) {
	read, err := model.ReadGraph(file)
	if err != nil {
		return nil, err
	}
	if r.bundle.Text != nil {
		all, err := readTexts(r.bundle.Dir, read.Inputs(), read.Outputs())
		if err != nil {
			return nil, err
		}
		return all.batch(0, len(all.rows))
	}
	if r.data == "" {
		return quantise.Calibration(read, nil)
	}
	set, err := labelled.Read(r.data, read.Inputs(), m.Image)
	if err != nil {
		return nil, err
	}
	return quantise.Calibration(read, set)
}

// write puts the generated models and the description into out. The description is last, so
// that it never names a file that is not there.
func (r *registering) write(want *registration.Registration) error {
	for _, v := range want.Variants {
		if !v.Generated {
			continue
		}
		if err := place(filepath.Join(r.work, v.File), filepath.Join(r.out, v.File)); err != nil {
			return err
		}
	}
	var table bytes.Buffer
	if err := registration.WriteVariants(&table, want.Table()); err != nil {
		return err
	}
	text, err := yaml.Marshal(want)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		text []byte
	}{{tableFile, table.Bytes()}, {registration.File, text}} {
		made := filepath.Join(r.work, f.name)
		if err := os.WriteFile(made, f.text, 0o644); err != nil {
			return err
		}
		if err := place(made, filepath.Join(r.out, f.name)); err != nil {
			return err
		}
	}
	return r.sweep(want)
}

// place writes a file to the disk and moves it.
func place(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close(), os.Chmod(from, 0o644)); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// sweep removes what earlier runs left unfinished and, with a registration, the generated
// models that it does not name.
func (r *registering) sweep(keep *registration.Registration) error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	for _, e := range entries {
		stale := strings.HasPrefix(e.Name(), Unfinished) && filepath.Join(r.out, e.Name()) != r.work
		if keep != nil && generated.MatchString(e.Name()) {
			stale = !slices.ContainsFunc(keep.Variants, func(v registration.Registered) bool { return v.Generated && v.File == e.Name() })
		}
		if !stale {
			continue
		}
		if err := os.RemoveAll(filepath.Join(r.out, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
