package onnxruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/model/adapt"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Format is the file format of a prepared model.
type Format string

const (
	// FormatPacked is ONNX with the weights in a separate file. The weights of matrix
	// products are already packed for this CPU. Instances map all weights, so each one
	// has almost no memory of its own.
	FormatPacked Format = "packed"
	// FormatORT is ONNX Runtime's own format, mapped as a whole. A model of
	// many small operators loads sooner in it, but every instance packs the
	// weights of matrix products again, into its own memory. Segments cannot be cut
	// of it, so the packed format is kept beside it.
	FormatORT Format = "ort"
	// FormatPlain is the original model file, which every instance optimises for itself. It
	// is for models of which no other format passes its check, and for [Link].
	FormatPlain Format = "plain"
)

// Prepared describes a model prepared for this host: a directory with the model, its
// optimised graph, and this description as manifest.json.
type Prepared struct {
	// Dir is the directory. Its name is a hash of the model's content, the given sizes, the engine's
	// version and the kind of CPU.
	Dir string `json:"-"`
	// Source is the base name of the original file, for people. Content is its
	// [model.ContentHash].
	Source  string `json:"source"`
	Content string `json:"content"`
	// Engine is the version of ONNX Runtime, CPU the kind of CPU for which the model
	// was prepared.
	Engine string `json:"engine"`
	CPU    string `json:"cpu"`
	Format Format `json:"format"`
	// Beside is true if the files of FormatPacked are there in addition to those of Format.
	// [Prepared.Segments] and [Options].Divided use them.
	Beside bool `json:"packed_beside,omitempty"`
	// LoadSeconds holds the CPU time to load each format, PlainSeconds that of the
	// original model. RunSeconds and PlainRunSeconds are the CPU times of one run of
	// one row.
	LoadSeconds     map[Format]float64 `json:"load_seconds"`
	PlainSeconds    float64            `json:"plain_seconds"`
	RunSeconds      map[Format]float64 `json:"run_seconds"`
	PlainRunSeconds float64            `json:"plain_run_seconds"`
	// Refused says of each format that was tried and is not used why it failed its check.
	Refused map[Format]string `json:"refused,omitempty"`
	// GraphError says why there is no GraphFile. It is empty if there is one.
	GraphError string `json:"graph_error,omitempty"`
	// Adapted says that the prepared graph is not that of the file: it was brought into the
	// form that engines take.
	Adapted bool `json:"adapted,omitempty"`
	// Files are the sizes in bytes of the files that instances load, by name.
	Files map[string]int64 `json:"files,omitempty"`
	signature
}

const (
	manifestFile = "manifest.json"
	weightsFile  = "weights.bin" // of the packed format
	// preparation is the version of Prepare's method. Models prepared with another
	// version are prepared again.
	preparation = "7"
)

// PrepareOptions say how a model is prepared. The zero value is ready.
type PrepareOptions struct {
	// Lean is for a machine whose memory hardly holds the model: the process grows by less than
	// three times the model's size, if glibc gives freed blocks back (MALLOC_MMAP_THRESHOLD_). It holds one session at a time instead of two, and has no child.
	// The session that writes the model also computes the outputs to compare with, so there is no
	// PlainSeconds.
	Lean bool
	// Shapes are sizes for the free dimensions of the inputs, nil for guesses. The error for
	// a model that runs with none of those wraps [ErrNoSizes].
	Shapes tensor.Shapes
	// MaxRun is the maximum processor time of a run with one row, 0 for none. The error for a
	// model that takes longer wraps [ErrTooLong].
	MaxRun time.Duration
}

// ErrNotPrepared is wrapped by ReadPrepared's errors.
var ErrNotPrepared = errors.New("not a prepared model")

// Prepare prepares the model file below cacheDir, once per model content, given sizes, engine version
// and kind of CPU. Of two processes that prepare the same model at once one does, and the other waits. Each format is written and run in a child of this process, which may die, before
// it is used: see verifier. The original model runs in this process, which meanwhile grows by
// several times the model's size. So run Prepare in a separate process
// (`faas-infer instance prepare`).
func Prepare(modelPath, cacheDir string, o PrepareOptions) (Prepared, error) {
	p, err := prepare(modelPath, cacheDir, o)
	if err != nil {
		return Prepared{}, fmt.Errorf("preparing %s: %w", modelPath, err)
	}
	return p, nil
}

func prepare(modelPath, cacheDir string, o PrepareOptions) (Prepared, error) {
	key, content, err := keyOf(modelPath, o.Shapes)
	if err != nil {
		return Prepared{}, err
	}
	dir, fresh := filepath.Join(cacheDir, key), false
	err = workdir.Store{Dir: cacheDir}.Make(context.Background(), key, isPrepared, func(work string) error {
		fresh = true
		return build(modelPath, content, work, o)
	})
	if err == nil && fresh {
		err = os.RemoveAll(dir + linked) // Running instances have already loaded the linked model.
	}
	if err != nil {
		return Prepared{}, err
	}
	return ReadPrepared(dir)
}

// isPrepared reports whether a directory has a complete model for this host: the manifest is written last.
func isPrepared(dir string) bool {
	_, err := ReadPrepared(dir)
	return err == nil
}

// PreparedContent returns the content hash of the model that dir was prepared of, whatever for; "" if dir
// is no such directory.
func PreparedContent(dir string) string {
	dir = current(dir)
	data, err := os.ReadFile(filepath.Join(dir, manifestFile))
	var p Prepared
	if dir == "" || err != nil || json.Unmarshal(data, &p) != nil {
		return ""
	}
	return p.Content
}

// MappedWeights returns [Prepared.MappedWeights] of the model that Prepare or Link left in dir; 0 if dir is
// no such directory. It needs no library.
func MappedWeights(dir string) int64 {
	p := Prepared{Dir: current(dir)}
	data, err := os.ReadFile(filepath.Join(p.Dir, manifestFile))
	if dir == "" || err != nil || json.Unmarshal(data, &p) != nil {
		return 0
	}
	return p.MappedWeights()
}

// FindPrepared returns the model for this host that Prepare left below cacheDir, a directory of one
// model only. Nothing of the model is read. The error wraps [ErrNotPrepared] if there is none.
func FindPrepared(cacheDir string) (Prepared, error) {
	all, err := os.ReadDir(cacheDir)
	if err != nil {
		return Prepared{}, fmt.Errorf("%w: %w", ErrNotPrepared, err)
	}
	why := fmt.Errorf("%w: %s has no prepared model", ErrNotPrepared, cacheDir)
	for _, entry := range all {
		if !entry.IsDir() || strings.HasPrefix(entry.Name(), ".") {
			continue // Unfinished.
		}
		p, err := ReadPrepared(filepath.Join(cacheDir, entry.Name()))
		if err == nil {
			return p, nil
		}
		why = err
	}
	return Prepared{}, why
}

// ReadPrepared reads the manifest that Prepare or Link wrote into dir. It refuses a model
// prepared for another CPU or another version of ONNX Runtime, and one whose files have other
// sizes than Prepare wrote: a power failure may shorten them. A link that Prepare has replaced
// leads to what Prepare wrote.
func ReadPrepared(dir string) (Prepared, error) {
	dir = current(dir)
	data, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return Prepared{}, fmt.Errorf("%w: %w", ErrNotPrepared, err)
	}
	p := Prepared{Dir: dir}
	if err := json.Unmarshal(data, &p); err != nil {
		return Prepared{}, fmt.Errorf("%w: %s: %w", ErrNotPrepared, filepath.Join(dir, manifestFile), err)
	}
	if _, ok := formats[p.Format]; !ok {
		return Prepared{}, fmt.Errorf("%w: %s has the unknown format %q", ErrNotPrepared, dir, p.Format)
	}
	if version := Version(); p.Engine != version {
		return Prepared{}, fmt.Errorf("%w: %s is for ONNX Runtime %s, but the loaded version is %s; prepare the model again", ErrNotPrepared, dir, p.Engine, version)
	}
	if cpu := hostCPU(); p.CPU != cpu {
		return Prepared{}, fmt.Errorf("%w: %s is for the CPU %s, but this host's is %s; prepare the model again", ErrNotPrepared, dir, p.CPU, cpu)
	}
	for name, size := range p.Files {
		info, err := os.Lstat(filepath.Join(dir, filepath.Base(name)))
		if err != nil {
			return Prepared{}, fmt.Errorf("%w: %w", ErrNotPrepared, err)
		}
		if !info.Mode().IsRegular() || info.Size() != size {
			return Prepared{}, fmt.Errorf("%w: %s has %d bytes, and had %d; prepare the model again", ErrNotPrepared, filepath.Join(dir, name), info.Size(), size)
		}
	}
	return p, nil
}

// MappedWeights is the size in bytes of the weights that the instances of a node map together, 0 if the
// format keeps them in the graph. Packed files beside another format do not count: only bodies and shadows
// map them, and other instances pack the weights for themselves.
func (p Prepared) MappedWeights() int64 {
	if p.Format != FormatPacked {
		return 0
	}
	if p.Files != nil {
		return p.Files[weightsFile]
	}
	info, err := os.Stat(filepath.Join(p.Dir, weightsFile)) // Earlier versions did not list the files.
	if err != nil {
		return 0
	}
	return info.Size()
}

// DividedWeights is what bodies and shadows map together, in bytes.
func (p Prepared) DividedWeights() int64 { return p.divided().MappedWeights() }

// Inside are the shapes of one row with which the model ran, as the prepared graph has them and by
// the names that it has for its inputs.
func (p Prepared) Inside() tensor.Shapes {
	s := make(tensor.Shapes, len(p.Inputs))
	for _, in := range p.Inputs {
		s[adapt.InsideInput(in)] = rowShape(in, p.Shapes[in.Name])
	}
	return s
}

// AsInFile reports whether engines take the model's tensors as its file declares them. If
// not, the batch was moved, freed or put in front of them.
func (p Prepared) AsInFile() bool {
	moved := func(i tensor.Info) bool { return i.Edge != nil }
	return p.Unbatched == "" && !p.Adapted && !slices.ContainsFunc(p.Inputs, moved) && !slices.ContainsFunc(p.Outputs, moved)
}

func (p Prepared) form() form {
	f := formats[p.Format]
	level := ort.GraphOptimizationLevel(ort.GraphOptimizationLevelDisableAll)
	if p.Format == FormatPlain {
		level = ort.GraphOptimizationLevelEnableAll
	}
	return form{
		path:      filepath.Join(p.Dir, f.file),
		level:     level,
		settings:  f.load,
		signature: p.signature,
		run:       p.expectedRun(),
	}
}

// readingRate is how many bytes/s a core may read at most: a run that reads all weights takes no less.
const readingRate = 10e9

// expectedRun is the measured time of one row, 0 if it was not measured. Nobody has measured a linked model, which is
// large; its time is that of reading its weights.
func (p Prepared) expectedRun() time.Duration {
	seconds := p.RunSeconds[p.Format]
	if p.Linked() && seconds == 0 {
		seconds = float64(p.linkedBytes()) / readingRate
	}
	return time.Duration(seconds * float64(time.Second))
}

// formats holds each format's model file and the settings to write and load it.
var formats = map[Format]struct {
	file       string
	save, load []setting
}{
	FormatORT: {
		file: "model.ort",
		save: []setting{{"session.save_model_format", "ORT"}},
		load: []setting{
			{"session.use_memory_mapped_ort_model", "1"},
			{"session.use_ort_model_bytes_for_initializers", "1"},
		},
	},
	FormatPlain: {file: "model.onnx"},
	FormatPacked: {
		file: "model.onnx",
		save: []setting{
			{"session.optimized_model_external_initializers_file_name", weightsFile},
			{"session.optimized_model_external_initializers_min_size_in_bytes", "1024"},
			{"session.save_external_prepacked_constant_initializers", "1"},
		},
	},
}

// build writes the prepared model into dir. It has each format written, measured and checked
// against the original model, and keeps the best one. For a large model it may skip the second
// format: see settled. o.Lean has one session at a time.
func build(modelPath, content, dir string, o PrepareOptions) (err error) {
	p := Prepared{
		Source: filepath.Base(modelPath), Content: content, Engine: Version(), CPU: hostCPU(),
		LoadSeconds: map[Format]float64{}, RunSeconds: map[Format]float64{}, Refused: map[Format]string{},
	}
	v := &verifier{dir: dir, here: o.Lean}
	if !o.Lean {
		if err := v.start(); err != nil { // It loads the library meanwhile.
			return err
		}
	}
	defer func() { err = errors.Join(err, v.close()) }()
	original, err := adaptFile(modelPath, o, true)
	if err != nil {
		return err
	}
	v.original = sentOf(original)
	p.signature, p.Adapted = original.signature, original.data != nil
	reference, packed, err := p.begin(original, v, o.Lean)
	if err != nil {
		return err
	}
	if err := p.choose(v, reference, packed); err != nil {
		return err
	}
	if err := keepGraph(original, dir); err != nil {
		p.GraphError = err.Error() // An instance can serve without the graph.
	}
	return p.keep(dir)
}

// attempt is a format as a verifier measured it, or why it could not.
type attempt struct {
	measurement
	err error
}

// begin measures the original model, and has the packed format written and measured.
func (p *Prepared) begin(plain form, v *verifier, lean bool) (reference measurement, packed attempt, err error) {
	if lean {
		saving, f := plain, formats[FormatPacked]
		dir := filepath.Join(v.dir, string(FormatPacked))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return reference, packed, err
		}
		saving.settings, saving.save = f.save, filepath.Join(dir, f.file)
		if reference, packed.err = measure(saving); packed.err == nil {
			p.PlainRunSeconds = reference.run.Seconds()
			return reference, v.measured(FormatPacked), nil
		}
		reference, err = measure(plain)
	} else {
		written := make(chan error, 1)
		go func() { written <- v.write(FormatPacked) }()
		reference, err = measure(plain)
		if packed.err = <-written; packed.err == nil && err == nil {
			packed = v.measured(FormatPacked) // Not before: two measurements at once disturb each other.
		}
	}
	p.PlainSeconds, p.PlainRunSeconds = reference.load.Seconds(), reference.run.Seconds()
	return reference, packed, err
}

// choose checks the packed format and, unless that is settled, the ORT format. It sets
// p.Format to the better one, or to the original model if neither passes.
func (p *Prepared) choose(v *verifier, reference measurement, packed attempt) error {
	best, packedErr := p.check(v, FormatPacked, reference, packed)
	if packedErr == nil {
		if p.Format = FormatPacked; best.settled(reference, filepath.Join(v.dir, string(FormatPacked))) {
			return nil
		}
	}
	own, err := p.check(v, FormatORT, reference, v.attempt(FormatORT))
	switch {
	case err != nil && packedErr != nil:
		p.Format = FormatPlain
		if _, plainErr := p.check(v, FormatPlain, reference, v.attempt(FormatPlain)); plainErr != nil {
			return errors.Join(packedErr, err, plainErr)
		}
	case err == nil && (packedErr != nil || own.better(best)):
		p.Format, p.Beside = FormatORT, packedErr == nil
	}
	return nil
}

// check compares what an attempt gave with the original's outputs. It notes the format's
// times, or why it is refused.
func (p *Prepared) check(v *verifier, format Format, reference measurement, a attempt) (measurement, error) {
	if a.err == nil {
		a.err = v.compare(reference, a.measurement)
	}
	if a.err != nil {
		p.Refused[format] = a.err.Error()
		return measurement{}, fmt.Errorf("format %s: %w", format, a.err)
	}
	p.LoadSeconds[format], p.RunSeconds[format] = a.load.Seconds(), a.run.Seconds()
	return a.measurement, nil
}

// divided is the form whose weights segments share, the packed one if it is there.
func (p Prepared) divided() Prepared {
	if p.Beside {
		p.Format = FormatPacked
	}
	return p
}

// writeFormat writes one format into the subdirectory of dir with the format's name.
func writeFormat(plain form, dir string, format Format) error {
	dir = filepath.Join(dir, string(format))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if format == FormatPlain {
		return writePlain(plain, dir)
	}
	f := formats[format]
	return saveOptimised(plain, filepath.Join(dir, f.file), f.save)
}

// keep moves the files of the chosen format, and those kept beside it, up into dir. Then it removes
// the other formats and writes the manifest.
func (p Prepared) keep(dir string) error {
	p.Files = map[string]int64{}
	for _, format := range slices.Compact([]Format{p.Format, p.divided().Format}) {
		if err := p.lift(dir, format); err != nil {
			return err
		}
	}
	for format := range formats {
		if err := os.RemoveAll(filepath.Join(dir, string(format))); err != nil {
			return err
		}
	}
	manifest, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestFile), append(manifest, '\n'), 0o644)
}

// lift moves a format's files up into dir and notes their sizes.
func (p Prepared) lift(dir string, format Format) error {
	from := filepath.Join(dir, string(format))
	files, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			return err
		}
		if !f.IsDir() { // A plain model may have its weights below a directory.
			p.Files[f.Name()] = info.Size()
		}
		if err := os.Rename(filepath.Join(from, f.Name()), filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return nil
}
