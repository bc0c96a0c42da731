package importing

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/command/importing/documents"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// made is the bundle of a function: its manifest and its files.
type made struct {
	manifest bundle.Manifest
	files    []file
	convert  *conversion
}

// file is a file of a bundle: that of a tree, or a text.
type file struct {
	to   string
	tree *documents.Tree
	from string
	text []byte
}

// conversion makes the model's file of the bundle from a file or directory of another format.
type conversion struct {
	tree  *documents.Tree
	from  string
	flags []string
}

// asideDir is the directory beside the bundles with the files of archives that are to be converted. No
// function has this name.
const asideDir = "_convert"

// in returns the path of what is converted. That of an archive is unpacked below out.
func (c *conversion) in(out, function string) string {
	if c.tree.Dir == "" {
		return filepath.Join(out, asideDir, function, path.Base(c.from))
	}
	return filepath.Join(c.tree.Dir, filepath.FromSlash(c.from))
}

// Conversion is what makes the model's file of a bundle.
type Conversion struct {
	// In is the file or directory of the other format, and Out the ONNX file to make.
	In, Out string
	// Trust is set if the file has code that the conversion runs.
	Trust bool
	// Inputs are the inputs that the file does not describe, as model convert's --input takes them.
	Inputs []string
	// Complete is set if these inputs are known, and not only their form.
	Complete bool
}

// unknownSizes stands in flags for sizes that the source does not say.
const unknownSizes = "SIZE,…"

// Conversion returns what makes the model's file of a function's bundle, nil if nothing is to be converted.
func (im *Import) Conversion(m *Model) *Conversion {
	if m.bundle == nil || m.bundle.convert == nil || m.Function == "" {
		return nil
	}
	of := m.bundle.convert
	c := &Conversion{
		In: of.in(im.options.Out, m.Function), Out: filepath.Join(im.options.Out, m.Function, m.bundle.manifest.Model),
		Complete: true,
	}
	for _, flag := range of.flags {
		if input, ok := strings.CutPrefix(flag, "--input "); ok {
			c.Inputs = append(c.Inputs, input)
			c.Complete = c.Complete && !strings.Contains(input, unknownSizes)
		}
		c.Trust = c.Trust || flag == "--trust"
	}
	return c
}

// command returns the command line of the conversion.
func (c *Conversion) command() string {
	words := "faas-infer model convert " + quoted(c.In) + " " + quoted(c.Out)
	for _, input := range c.Inputs {
		words += " --input " + quoted(input)
	}
	if c.Trust {
		words += " --trust"
	}
	return words
}

// quoted returns a word as a shell reads it. Sources may choose words that a shell would run.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:=,+@%", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Converted says that the model's file was made: the first step is done.
func (m *Model) Converted() {
	m.bundle.convert, m.Steps = nil, m.Steps[1:]
	if len(m.Steps) == 0 {
		m.State = Ready
	}
}

// The names of models in bundles.
const (
	onnxFile     = "model.onnx"
	savedDir     = "saved_model"
	modelDir     = "model"
	requirements = "requirements.txt"
)

// kind is a format of models that is converted to ONNX.
type kind struct {
	// extensions are those of its files, the likeliest first.
	extensions []string
	// flags are those of model convert.
	flags []string
}

// kinds are the formats that are converted, by the names that KServe, Seldon and BentoML give them.
var kinds = map[string]kind{
	"sklearn":  {[]string{".joblib", ".pkl", ".pickle"}, []string{"--trust"}},
	"xgboost":  {[]string{".ubj", ".json", ".bst", ".joblib", ".pkl"}, nil},
	"lightgbm": {[]string{".txt", ".bst", ".joblib", ".pkl"}, nil},
	"catboost": {[]string{".cbm", ".json"}, nil},
	"keras":    {[]string{".keras", ".h5"}, nil},
	"pytorch":  {[]string{".pt2", ".pt", ".pth"}, []string{"--input NAME=float32[?," + unknownSizes + "]"}},
}

// refusedFormats are formats that nothing converts, with the way out.
var refusedFormats = map[string]string{
	"huggingface": "it needs the code of Transformers; write a handler (template python-infer), or export the " +
		"model with `optimum-cli export onnx --model DIR OUT` and serve OUT/model.onnx",
	"vllm": "it generates text token by token; write a handler (template python-infer), or leave it " +
		"where it is",
	"pmml": "write a handler with pypmml (template python-infer)",
	"paddle": "make ONNX of it with `paddle2onnx --model_dir DIR --model_filename FILE --save_file " +
		"model.onnx`",
	"spark": "write a handler with pyspark (template python-infer)",
	"openvino": "give the ONNX file that it was made from, or write a handler with openvino (template " +
		"python-infer)",
	"predictiveserver": "write a handler (template python-infer)",
	"autogluon":        "write a handler with autogluon (template python-infer)",
	"alibi-detect":     "it watches requests of other models; write a handler (template python-infer)",
	"alibi-explain":    "it calls another model for its answers; write a handler (template python-infer)",
}

// setONNX makes the bundle of an ONNX file, with its files of external weights. It returns the model if it
// could be read, as in an archive it cannot.
func (m *Model) setONNX(t *documents.Tree, name string) *model.Model {
	m.bundle = &made{
		manifest: bundle.Manifest{Name: m.Name, Engine: bundle.EngineONNX, Model: onnxFile},
		files:    []file{{to: onnxFile, tree: t, from: name}},
	}
	if t.Dir == "" {
		// What an archive has beside the model may be its weights.
		names, err := t.Walk(path.Dir(name))
		if err != nil {
			m.refuse("its files cannot be read: %v", err)
		}
		for _, beside := range names {
			if from := path.Join(path.Dir(name), beside); from != name && strings.HasSuffix(beside, "data") {
				m.bundle.files = append(m.bundle.files, file{to: beside, tree: t, from: from})
			}
		}
		return nil
	}
	read, err := model.ReadGraph(filepath.Join(t.Dir, filepath.FromSlash(name)))
	if err != nil {
		m.refuse("its file %s: %v", name, err)
		return nil
	}
	for _, beside := range read.ExternalFiles() {
		m.bundle.files = append(m.bundle.files,
			file{to: beside, tree: t, from: path.Join(path.Dir(name), filepath.ToSlash(beside))})
	}
	return read
}

// setSavedModel makes the bundle of a SavedModel's directory.
func (m *Model) setSavedModel(t *documents.Tree, dir string) {
	m.bundle = &made{manifest: bundle.Manifest{Name: m.Name, Engine: bundle.EngineTensorFlow, Model: savedDir}}
	m.addDir(t, dir, savedDir)
}

// addDir adds all files of a directory to the bundle, without those named.
func (m *Model) addDir(t *documents.Tree, dir, to string, without ...string) {
	names, err := t.Walk(dir)
	if err != nil {
		m.refuse("its files cannot be read: %v", err)
		return
	}
	for _, name := range names {
		if !slices.Contains(without, name) {
			m.bundle.files = append(m.bundle.files, file{to: path.Join(to, name), tree: t, from: path.Join(dir, name)})
		}
	}
}

// setConversion makes the bundle of an ONNX file that is converted from another one.
func (m *Model) setConversion(t *documents.Tree, name string, flags ...string) {
	if t.Dir != "" && t.IsFile(name) {
		found, known, err := model.RecogniseFile(filepath.Join(t.Dir, filepath.FromSlash(name)))
		switch {
		case err != nil:
			m.refuse("its file %s: %v", name, err)
			return
		case known && !convertible(found):
			m.refuse("its file %s: %v", name, found)
			return
		}
	}
	m.bundle = &made{
		manifest: bundle.Manifest{Name: m.Name, Engine: bundle.EngineONNX, Model: onnxFile},
		convert:  &conversion{tree: t, from: name, flags: flags},
	}
}

// convertible reports whether model convert takes a format.
func convertible(f model.Foreign) bool {
	return slices.Contains([]model.Format{
		model.FormatCatBoost, model.FormatXGBoost, model.FormatLightGBM, model.FormatKeras, model.FormatTorch,
		model.FormatPickle, model.FormatSavedModelPB,
	}, f.Format)
}

// setKind makes the bundle of a directory's file of a format that is converted.
func (m *Model) setKind(t *documents.Tree, dir, format string) {
	k := kinds[format]
	found := t.With(dir, k.extensions...)
	if len(found) == 0 {
		m.refuse("%s has no file of the format %s (%s)", t.Path(dir), format, strings.Join(k.extensions, ", "))
		return
	}
	flags := slices.Clone(k.flags)
	if ext := path.Ext(found[0]); flags == nil && (ext == ".joblib" || ext == ".pkl") {
		flags = []string{"--trust"}
	}
	m.note(Changed, "format", format, "ONNX, converted from %s, which lets faas-infer batch and size it",
		path.Base(found[0]))
	for _, other := range found[1:] {
		m.note(Lost, path.Base(other), nil, "a function has one file; %s is taken", path.Base(found[0]))
	}
	m.setConversion(t, found[0], flags...)
}

// savedModel returns the directory of a SavedModel in a directory: itself, or that of its latest version.
func savedModel(t *documents.Tree, dir string) (found string, ok bool) {
	for _, in := range []string{dir, path.Join(dir, bundle.Version(t, dir))} {
		for _, in := range []string{in, path.Join(in, "model.savedmodel"), path.Join(in, savedDir)} {
			if t.IsFile(path.Join(in, "saved_model.pb")) {
				return in, true
			}
		}
	}
	return "", false
}

// resolveArtefacts looks for the files of models that were read from manifests.
func (im *Import) resolveArtefacts() {
	for _, m := range slices.Clone(im.Models) {
		if m.artefact == "" || m.State == Refused {
			continue
		}
		// Seldon's files say themselves what runs them.
		if way, refused := refusedFormats[m.format]; refused && m.Source == KServe {
			m.refuse("its format is %s: %s", m.format, way)
			continue
		}
		local, ok := im.local(m.artefact)
		switch {
		case ok:
			im.fill(m, local)
		case m.format == "onnx" && fetches(modelURI(m.artefact)):
			m.annotate(annotation.InferModel, modelURI(m.artefact), "storageUri", m.artefact)
		default:
			m.step("Copy the files at %s to a directory DIR of this machine, and import again with --files %s=DIR",
				m.artefact, quoted(m.artefact))
		}
	}
}

// modelURI returns the URI of a model as the annotation has it: that of a directory ends in a slash.
func modelURI(uri string) string {
	if strings.HasSuffix(uri, ".onnx") {
		return uri
	}
	return strings.TrimSuffix(uri, "/") + "/"
}

// fetches reports whether a provider of this version fetches a model from a URI: it then refuses a URI that is
// none, which is the name of a file to one that fetches nothing.
func fetches(uri string) bool {
	refuses := func(uri string) bool {
		annotations := map[string]string{annotation.InferModel: uri}
		annotation.SetObjective(annotations, "1s")
		_, err := annotation.Parse(types.FunctionDeployment{Service: "a", Image: "a", Annotations: &annotations})
		return err != nil
	}
	return refuses("none://none") && !refuses(uri)
}

// local returns where the files at a URI are on this machine, by the longest stated one that it begins with.
func (im *Import) local(uri string) (string, bool) {
	longest := ""
	for known := range im.options.Files {
		below := strings.TrimSuffix(known, "/") + "/"
		if (uri == known || strings.HasPrefix(uri+"/", below)) && len(known) > len(longest) {
			longest = known
		}
	}
	if longest == "" {
		return "", false
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(uri, strings.TrimSuffix(longest, "/")), "/")
	if rest != "" && !filepath.IsLocal(rest) {
		return "", false
	}
	return filepath.Join(im.options.Files[longest], filepath.FromSlash(rest)), true
}

// fill makes a model's bundle from its files on this machine.
func (im *Import) fill(m *Model, local string) {
	m.note(Changed, "storageUri", m.artefact, "the files in %s", local)
	info, err := os.Stat(local)
	name := "."
	if err == nil && info.Mode().IsRegular() {
		local, name = filepath.Dir(local), filepath.Base(local)
	}
	t, err := im.open(local)
	if err != nil {
		m.refuse("its files at %s: %v", m.artefact, err)
		return
	}
	if name != "." {
		m.fillFile(t, name)
		return
	}
	if err := im.fillDir(m, t); err != nil {
		m.refuse("its files at %s: %v", m.artefact, err)
	}
}

// fillFile makes the bundle from a single file.
func (m *Model) fillFile(t *documents.Tree, name string) {
	if path.Ext(name) == ".onnx" {
		m.setONNX(t, name)
		return
	}
	m.setConversion(t, name, kinds[m.format].flags...)
	if m.bundle != nil {
		m.note(Changed, "format", m.format, "ONNX, converted from %s", name)
	}
}

// fillDir makes a model's bundle from a directory. Its content decides, and the stated format otherwise.
func (im *Import) fillDir(m *Model, t *documents.Tree) error {
	switch {
	case t.IsFile(mlserverSettings):
		return readMLServerModel(t, ".", m)
	case isTritonModel(t, "."):
		return readTritonModel(t, ".", m)
	case isTorchServe(t):
		return readArchive(t, m)
	case isTriton(t):
		return im.spread(m, t)
	case t.IsDir("model-store"):
		for _, name := range t.With("model-store", ".mar") {
			archive, err := im.open(filepath.Join(t.Dir, filepath.FromSlash(name)))
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return readArchive(archive, m)
		}
	}
	if dir, ok := savedModel(t, "."); ok && m.format != "keras" {
		m.note(Kept, "format", cmp.Or(m.format, "tensorflow"), "engine tensorflow")
		m.setSavedModel(t, dir)
		return nil
	}
	for _, dir := range []string{".", bundle.Version(t, ".")} {
		if found := t.With(cmp.Or(dir, "."), ".onnx"); len(found) > 0 {
			m.note(Kept, "format", "onnx", "engine onnx")
			m.setONNX(t, found[0])
			return nil
		}
	}
	if _, ok := kinds[m.format]; ok {
		m.setKind(t, ".", m.format)
		return nil
	}
	return fmt.Errorf("%s has no model of the format %q that can be imported", t.Given, m.format)
}

// spread replaces a model by the several ones in its files, which get its settings.
func (im *Import) spread(m *Model, t *documents.Tree) error {
	before := len(im.Models)
	if err := readTriton(im, t); err != nil {
		return err
	}
	found := im.Models[before:]
	var names []string
	for _, each := range found {
		names = append(names, each.Name)
		each.deployment.Limits, each.deployment.Requests = m.deployment.Limits, m.deployment.Requests
		for key, value := range m.deployment.Labels {
			each.label(key, value, m.Name, nil)
		}
	}
	m.State, m.Why = Described, fmt.Sprintf("its files have %d models, and each has its function: %s", len(found),
		strings.Join(names, ", "))
	m.bundle, m.artefact = nil, ""
	return nil
}

// sizes returns a shape as model convert's --input and the annotation of shapes write it, with first in the
// place of the batch.
func sizes(first string, dims []int64, separator string) string {
	all := []string{first}
	for _, d := range dims {
		if d < 0 {
			all = append(all, "?")
		} else {
			all = append(all, strconv.FormatInt(d, 10))
		}
	}
	return strings.Join(all, separator)
}

// exists is fs.Stat without the result.
func exists(t *documents.Tree, name string) bool {
	_, err := fs.Stat(t, name)
	return err == nil
}
