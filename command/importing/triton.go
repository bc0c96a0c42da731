package importing

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// tritonConfig is the file of a model's settings in Triton's model repository.
const tritonConfig = "config.pbtxt"

// isTritonModel reports whether a directory is that of a model in Triton's repository.
func isTritonModel(t *tree, dir string) bool {
	if t.isFile(path.Join(dir, tritonConfig)) {
		return true
	}
	version := bundle.Version(t, dir)
	return version != "" && tritonBackend(t, path.Join(dir, version)) != ""
}

// isTriton reports whether a tree is a model of Triton or a repository of models.
func isTriton(t *tree) bool {
	return isTritonModel(t, ".") ||
		slices.ContainsFunc(t.dirs("."), func(dir string) bool { return isTritonModel(t, dir) })
}

// readTriton reads a model or a repository of models.
func readTriton(im *Import, t *tree) error {
	dirs := t.dirs(".")
	if isTritonModel(t, ".") {
		dirs = []string{"."}
	}
	for _, dir := range dirs {
		if !isTritonModel(t, dir) {
			continue
		}
		m := im.add(Triton, path.Base(path.Clean(t.path(dir))), t.path(dir))
		if err := readTritonModel(t, dir, m); err != nil {
			m.refuse("%v", err)
		}
	}
	return nil
}

// tritonFiles are the names of models' files in the directory of a version, with their backends.
var tritonFiles = []struct{ file, backend string }{
	{"model.onnx", "onnxruntime"}, {"model.savedmodel", "tensorflow"}, {"model.graphdef", "graphdef"},
	{"model.pt", "pytorch"}, {"model.plan", "tensorrt"}, {"model.py", "python"}, {"model.xml", "openvino"},
	{"model.json", "vllm"},
}

// tritonBackend returns the backend of the model in the directory of a version, "" if no file is a model's.
func tritonBackend(t *tree, version string) string {
	for _, known := range tritonFiles {
		if exists(t, path.Join(version, known.file)) {
			return known.backend
		}
	}
	return ""
}

// platforms are the backends by the names of the setting platform.
var platforms = map[string]string{
	"onnxruntime_onnx": "onnxruntime", "tensorflow_savedmodel": "tensorflow", "tensorflow_graphdef": "graphdef",
	"pytorch_libtorch": "pytorch", "tensorrt_plan": "tensorrt", "ensemble": "ensemble",
}

// message is the settings of a model, or a part of them. It remembers which of its fields were read.
type message struct {
	at     string
	fields []upstream.PbtxtField
	read   map[string]bool
}

func parseMessage(at, text string) (*message, error) {
	fields, err := upstream.PbtxtFields(text)
	return &message{at, fields, map[string]bool{}}, err
}

func (c *message) has(name string) bool {
	return slices.ContainsFunc(c.fields, func(f upstream.PbtxtField) bool { return f.Name == name })
}

func (c *message) text(name string) string {
	c.read[name] = true
	return upstream.PbtxtValue(c.fields, name)
}

// messages returns the messages in a field, repeated or in a list. It leaves out what it cannot read.
func (c *message) messages(name string) (all []*message) {
	c.read[name] = true
	for _, f := range c.fields {
		if f.Name != name {
			continue
		}
		for _, text := range elements(f.Value) {
			inner, err := parseMessage(strings.TrimPrefix(c.at+"."+name, "."), text)
			if err == nil {
				all = append(all, inner)
			}
		}
	}
	return all
}

// elements returns the insides of the messages in a value: one message, or a list of them.
func elements(value string) (all []string) {
	depth, begin := 0, 0
	for at := 0; at < len(value); at++ {
		switch c := value[at]; c {
		case '#':
			end := strings.IndexByte(value[at:], '\n')
			if end < 0 {
				return all
			}
			at += end
		case '"', '\'':
			for at++; at < len(value) && value[at] != c; at++ {
				if value[at] == '\\' {
					at++
				}
			}
		case '{', '<':
			if depth++; depth == 1 {
				begin = at + 1
			}
		case '}', '>':
			if depth--; depth == 0 {
				all = append(all, value[begin:at])
			}
		}
	}
	return all
}

// numbers returns the numbers in a field that is a list, or repeated.
func (c *message) numbers(name string) (all []int64) {
	c.read[name] = true
	for _, f := range c.fields {
		if f.Name != name {
			continue
		}
		for _, word := range strings.FieldsFunc(strings.Trim(f.Value, "[] \t\n"), func(r rune) bool {
			return strings.ContainsRune(", \t\r\n", r)
		}) {
			if n, err := strconv.ParseInt(word, 10, 64); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}

// unread reports the fields that were not read.
func (c *message) unread(m *Model) {
	for _, f := range c.fields {
		if c.read[f.Name] {
			continue
		}
		c.read[f.Name] = true
		m.note(Lost, strings.TrimPrefix(c.at+"."+f.Name, "."), f.Value, "%s",
			cmp.Or(tritonLost[f.Name], "functions have no such field"))
	}
}

// tritonLost says why settings of Triton are lost.
var tritonLost = map[string]string{
	"dynamic_batching":         "the objective decides how long a request waits for a batch",
	"optimization":             "the engine optimises the model for each machine",
	"model_warmup":             "an instance is warm before it gets requests",
	"response_cache":           "answers are not cached",
	"model_repository_agents":  "no agent changes the model before it is loaded",
	"model_operations":         "libraries of custom operators are not loaded",
	"metric_tags":              "metrics have the function's name",
	"parameters":               "the engine takes no parameters of Triton",
	"batch_input":              "a batch joins the rows of requests, and nothing else",
	"batch_output":             "a batch joins the rows of requests, and nothing else",
	"cc_model_filenames":       "one model serves every GPU",
	"model_metrics":            "see docs/design/metrics.md",
	"model_transaction_policy": "each request has one answer",
}

// tritonReader reads a directory of Triton's repository into a model.
type tritonReader struct {
	files  *tree
	dir    string
	config *message
	m      *Model
}

// readTritonModel makes the function of a model in Triton's repository.
func readTritonModel(t *tree, dir string, m *Model) error {
	text, err := t.text(path.Join(dir, tritonConfig))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	config, err := parseMessage("", string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", tritonConfig, err)
	}
	r := tritonReader{t, dir, config, m}
	if name := config.text("name"); name != "" {
		m.Name = name
	}
	backend := config.text("backend")
	if platform := config.text("platform"); backend == "" && platform != "" {
		backend = cmp.Or(platforms[platform], platform)
	}
	if why := tritonRefusal(config, backend); why != "" {
		m.refuse("%s", why)
		return nil
	}
	version := r.version()
	if version == "" {
		m.refuse("it has no directory of a version; put the model's file into %s", path.Join(t.path(dir), "1"))
		return nil
	}
	backend = cmp.Or(backend, tritonBackend(t, path.Join(dir, version)))
	r.instances()
	r.model(version, backend)
	if batch := config.text("max_batch_size"); batch != "" && m.State != Refused {
		m.setMaxBatch(asObject("", map[string]any{"max_batch_size": batch}), "max_batch_size")
	}
	config.unread(m)
	return nil
}

// tritonRefusal says why a model cannot be served at all, "" if it can.
func tritonRefusal(config *message, backend string) string {
	var steps []string
	for _, scheduling := range config.messages("ensemble_scheduling") {
		for _, step := range scheduling.messages("step") {
			steps = append(steps, step.text("model_name"))
		}
	}
	switch {
	case backend == "ensemble" || config.has("ensemble_scheduling"):
		return fmt.Sprintf(
			"it is an ensemble, of %s; import its models, call their functions one after the other, or join them into one "+
				"ONNX file", cmp.Or(strings.Join(slices.Compact(steps), ", "), "no models"))
	case config.has("sequence_batching"):
		return "sequence_batching keeps state between requests, and requests to a function are independent; leave it " +
			"where it is"
	}
	for _, policy := range config.messages("model_transaction_policy") {
		if strings.EqualFold(policy.text("decoupled"), "true") {
			return "model_transaction_policy is decoupled: it may give many answers to a request, and a function gives " +
				"one; write a program that streams, or leave it where it is"
		}
	}
	return ""
}

// version returns the version that is served, "" if there is none.
func (r tritonReader) version() string {
	t, dir, config, m := r.files, r.dir, r.config, r.m
	served := bundle.Version(t, dir)
	var others []string
	for _, name := range t.dirs(dir) {
		if n, err := strconv.ParseUint(name, 10, 63); err == nil && n > 0 && name != served {
			others = append(others, name)
		}
	}
	for _, policy := range config.messages("version_policy") {
		for _, specific := range policy.messages("specific") {
			wanted := specific.numbers("versions")
			slices.Sort(wanted)
			for _, n := range wanted {
				if name := strconv.FormatInt(n, 10); t.isDir(path.Join(dir, name)) {
					others, served = append(others, served), name
				}
			}
		}
		m.note(Changed, "version_policy", nil, "version %s alone is served", served)
	}
	others = slices.DeleteFunc(others, func(name string) bool { return name == served })
	if len(others) > 0 {
		slices.Sort(others)
		m.note(Lost, "versions", strings.Join(slices.Compact(others), ", "),
			"a function serves one version, %s; deploy others as functions of their own", served)
	}
	return served
}

// instances reads on what the model runs.
func (r tritonReader) instances() {
	config, m := r.config, r.m
	for _, group := range config.messages("instance_group") {
		switch kind := group.text("kind"); kind {
		case "KIND_GPU":
			m.setDevice(annotation.DeviceCUDA, "instance_group.kind", kind)
		case "KIND_CPU":
			m.setDevice(annotation.DeviceCPU, "instance_group.kind", kind)
		case "", "KIND_AUTO":
		default:
			m.note(Lost, "instance_group.kind", kind, "the provider chooses the device")
		}
		if count := group.text("count"); count != "" {
			m.note(Lost, "instance_group.count", count,
				"the load decides how many instances there are; com.openfaas.scale.min and max bound them")
		}
		group.read["name"] = true
		group.unread(m)
	}
}

// model makes the bundle of the version's files.
func (r tritonReader) model(version, backend string) {
	t, dir, config, m := r.files, r.dir, r.config, r.m
	in := path.Join(dir, version)
	file := path.Join(in, config.text("default_model_filename"))
	if file == in {
		for _, known := range tritonFiles {
			if known.backend == backend {
				file = path.Join(in, known.file)
			}
		}
	}
	missing := !exists(t, file) || file == in
	if missing && slices.Contains([]string{"onnxruntime", "tensorflow", "graphdef", "pytorch"}, backend) {
		m.refuse("version %s has no file %s", version, path.Base(file))
		return
	}
	switch backend {
	case "onnxruntime":
		if t.isDir(file) { // It has the weights beside it.
			file = path.Join(file, path.Base(file))
		}
		m.note(Kept, "backend", backend, "engine onnx")
		r.shapes(m.setONNX(t, file))
		r.labels()
	case "tensorflow":
		m.note(Kept, "backend", backend, "engine tensorflow")
		m.setSavedModel(t, file)
		config.read["input"], config.read["output"] = true, true
	case "graphdef":
		m.refuse(
			"it is a frozen graph; make ONNX of it with `python -m tf2onnx.convert --graphdef %s --inputs NAME:0 "+
				"--outputs NAME:0 --output model.onnx --opset 17`",
			t.path(file),
		)
	case "pytorch":
		m.note(Changed, "backend", backend, "ONNX, converted from %s, which lets faas-infer batch and size it",
			path.Base(file))
		m.setConversion(t, file, tritonInputs(config)...)
	default:
		r.server(version, backend)
	}
}

// server makes a bundle that Triton itself runs.
func (r tritonReader) server(version, backend string) {
	t, dir, config, m := r.files, r.dir, r.config, r.m
	m.note(Kept, "backend", cmp.Or(backend, "?"),
		"engine triton: Triton runs the model, in batches that faas-infer forms")
	m.bundle = &made{manifest: bundle.Manifest{Name: m.Name, Engine: bundle.EngineTriton, Model: modelDir}}
	m.addDir(t, path.Join(dir, version), path.Join(modelDir, version))
	for _, name := range t.list(dir) {
		if t.isFile(path.Join(dir, name)) {
			m.bundle.files = append(m.bundle.files,
				file{to: path.Join(modelDir, name), tree: t, from: path.Join(dir, name)})
		}
	}
	if backend != "python" {
		m.note(Changed, "server", nil,
			"tritonserver with the backend %s must be on PATH, as in NVIDIA's image; the wheel that faas-infer installs "+
				"has the Python backend alone", cmp.Or(backend, "?"))
	}
	if m.State != Refused {
		if !config.has("input") || !config.has("output") {
			m.step("Write input and output into %s: an instance must know them",
				path.Join("BUNDLE", modelDir, tritonConfig))
		}
		// They stay in the settings that Triton reads.
		for _, f := range config.fields {
			if f.Name != "dynamic_batching" {
				config.read[f.Name] = true
			}
		}
	}
}

// tritonTypes are the types of inputs by Triton's names, as model convert writes them.
var tritonTypes = map[string]string{
	"TYPE_FP32": "float32", "TYPE_FP64": "float64", "TYPE_FP16": "float16", "TYPE_INT8": "int8", "TYPE_INT16": "int16",
	"TYPE_INT32": "int32", "TYPE_INT64": "int64", "TYPE_UINT8": "uint8", "TYPE_UINT16": "uint16", "TYPE_UINT32": "uint32",
	"TYPE_UINT64": "uint64", "TYPE_BOOL": "bool",
}

// tritonInputs returns the flags of model convert for the inputs in the settings.
func tritonInputs(config *message) (flags []string) {
	batched := config.text("max_batch_size") != "" && config.text("max_batch_size") != "0"
	for _, in := range config.messages("input") {
		dims := in.numbers("dims")
		if !batched && len(dims) > 0 {
			dims = dims[1:]
		}
		flags = append(
			flags,
			fmt.Sprintf("--input %s=%s[%s]", in.text("name"), cmp.Or(tritonTypes[in.text("data_type")], "float32"),
				sizes("?", dims, ",")),
		)
	}
	config.read["input"], config.read["output"] = true, true
	return flags
}

// shapes gives the free dimensions of an ONNX model the sizes in the settings.
func (r tritonReader) shapes(read *model.Model) {
	config, m := r.config, r.m
	inputs := config.messages("input")
	config.messages("output")
	if read == nil || m.State == Refused {
		return
	}
	batched := config.text("max_batch_size") != "" && config.text("max_batch_size") != "0"
	var shapes []string
	for _, in := range inputs {
		name, dims := in.text("name"), in.numbers("dims")
		at := slices.IndexFunc(read.Inputs(), func(i tensor.Info) bool { return i.Name == name })
		if at < 0 {
			m.note(Lost, "input", name, "the model's file has no input of this name")
			continue
		}
		if reshape := in.messages("reshape"); len(reshape) > 0 {
			m.note(Lost, "input.reshape", name, "requests have the shape of the model's file")
			continue
		}
		if batched {
			dims = append([]int64{1}, dims...)
		}
		free := slices.IndexFunc(read.Inputs()[at].Shape, func(d int64) bool { return d < 0 }) >= 0
		if of := read.Inputs()[at].Shape; len(of) != len(dims) || !free || len(dims) == 0 ||
			slices.Contains(dims[1:], -1) {
			continue
		} else if slices.Index(of[1:], -1) >= 0 {
			shapes = append(shapes, name+":"+sizes("1", dims[1:], "x"))
		}
	}
	if len(shapes) > 0 {
		m.annotate(annotation.InferShapes, strings.Join(shapes, ","), "input.dims", nil)
	}
}

// labels takes the names of classes along.
func (r tritonReader) labels() {
	t, dir, config, m := r.files, r.dir, r.config, r.m
	if m.State == Refused {
		return
	}
	for _, out := range config.messages("output") {
		name := out.text("label_filename")
		if name == "" || !t.isFile(path.Join(dir, name)) {
			continue
		}
		m.note(Changed, "output.label_filename", name, "%s in the bundle", bundle.LabelsFile)
		m.bundle.files = append(m.bundle.files, file{to: bundle.LabelsFile, tree: t, from: path.Join(dir, name)})
		return
	}
}
