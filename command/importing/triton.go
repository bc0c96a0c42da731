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

	"github.com/faas-infer/faas-infer/command/importing/documents"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// tritonConfig is the file of a model's settings in Triton's model repository.
const tritonConfig = "config.pbtxt"

// isTritonModel reports whether a directory is that of a model in Triton's repository.
func isTritonModel(t *documents.Tree, dir string) bool {
	if t.IsFile(path.Join(dir, tritonConfig)) {
		return true
	}
	version := bundle.Version(t, dir)
	return version != "" && tritonBackend(t, path.Join(dir, version)) != ""
}

// isTriton reports whether a tree is a model of Triton or a repository of models.
func isTriton(t *documents.Tree) bool {
	return isTritonModel(t, ".") ||
		slices.ContainsFunc(t.Dirs("."), func(dir string) bool { return isTritonModel(t, dir) })
}

// readTriton reads a model or a repository of models.
func readTriton(im *Import, t *documents.Tree) error {
	dirs := t.Dirs(".")
	if isTritonModel(t, ".") {
		dirs = []string{"."}
	}
	for _, dir := range dirs {
		if !isTritonModel(t, dir) {
			continue
		}
		m := im.add(Triton, path.Base(path.Clean(t.Path(dir))), t.Path(dir))
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
func tritonBackend(t *documents.Tree, version string) string {
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

// loseMessage reports the fields that were not read as lost.
func (m *Model) loseMessage(c *documents.Message) {
	for _, f := range c.Rest() {
		m.note(Lost, c.Path(f.Name), f.Value, "%s", cmp.Or(tritonLost[f.Name], "functions have no such field"))
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
	files  *documents.Tree
	dir    string
	config *documents.Message
	m      *Model
}

// readTritonModel makes the function of a model in Triton's repository.
func readTritonModel(t *documents.Tree, dir string, m *Model) error {
	text, err := t.Text(path.Join(dir, tritonConfig))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	config, err := documents.ParseMessage("", string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", tritonConfig, err)
	}
	r := tritonReader{t, dir, config, m}
	if name := config.Text("name"); name != "" {
		m.Name = name
	}
	backend := config.Text("backend")
	if platform := config.Text("platform"); backend == "" && platform != "" {
		backend = cmp.Or(platforms[platform], platform)
	}
	if why := tritonRefusal(config, backend); why != "" {
		m.refuse("%s", why)
		return nil
	}
	version := r.version()
	if version == "" {
		m.refuse("it has no directory of a version; put the model's file into %s", path.Join(t.Path(dir), "1"))
		return nil
	}
	backend = cmp.Or(backend, tritonBackend(t, path.Join(dir, version)))
	r.instances()
	r.model(version, backend)
	if batch := config.Text("max_batch_size"); batch != "" && m.State != Refused {
		m.setMaxBatch(documents.AsObject("", map[string]any{"max_batch_size": batch}), "max_batch_size")
	}
	m.loseMessage(config)
	return nil
}

// tritonRefusal says why a model cannot be served at all, "" if it can.
func tritonRefusal(config *documents.Message, backend string) string {
	var steps []string
	for _, scheduling := range config.Messages("ensemble_scheduling") {
		for _, step := range scheduling.Messages("step") {
			steps = append(steps, step.Text("model_name"))
		}
	}
	switch {
	case backend == "ensemble" || config.Has("ensemble_scheduling"):
		return fmt.Sprintf(
			"it is an ensemble, of %s; import its models, call their functions one after the other, or join them into one "+
				"ONNX file", cmp.Or(strings.Join(slices.Compact(steps), ", "), "no models"))
	case config.Has("sequence_batching"):
		return "sequence_batching keeps state between requests, and requests to a function are independent; leave it " +
			"where it is"
	}
	for _, policy := range config.Messages("model_transaction_policy") {
		if strings.EqualFold(policy.Text("decoupled"), "true") {
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
	for _, name := range t.Dirs(dir) {
		if n, err := strconv.ParseUint(name, 10, 63); err == nil && n > 0 && name != served {
			others = append(others, name)
		}
	}
	for _, policy := range config.Messages("version_policy") {
		for _, specific := range policy.Messages("specific") {
			wanted := specific.Numbers("versions")
			slices.Sort(wanted)
			for _, n := range wanted {
				if name := strconv.FormatInt(n, 10); t.IsDir(path.Join(dir, name)) {
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
	for _, group := range config.Messages("instance_group") {
		switch kind := group.Text("kind"); kind {
		case "KIND_GPU":
			m.setDevice(annotation.DeviceCUDA, "instance_group.kind", kind)
		case "KIND_CPU":
			m.setDevice(annotation.DeviceCPU, "instance_group.kind", kind)
		case "", "KIND_AUTO":
		default:
			m.note(Lost, "instance_group.kind", kind, "the provider chooses the device")
		}
		if count := group.Text("count"); count != "" {
			m.note(Lost, "instance_group.count", count,
				"the load decides how many instances there are; com.openfaas.scale.min and max bound them")
		}
		group.Read["name"] = true
		m.loseMessage(group)
	}
}

// model makes the bundle of the version's files.
func (r tritonReader) model(version, backend string) {
	t, dir, config, m := r.files, r.dir, r.config, r.m
	in := path.Join(dir, version)
	file := path.Join(in, config.Text("default_model_filename"))
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
		if t.IsDir(file) { // It has the weights beside it.
			file = path.Join(file, path.Base(file))
		}
		m.note(Kept, "backend", backend, "engine onnx")
		r.shapes(m.setONNX(t, file))
		r.labels()
	case "tensorflow":
		m.note(Kept, "backend", backend, "engine tensorflow")
		m.setSavedModel(t, file)
		config.Read["input"], config.Read["output"] = true, true
	case "graphdef":
		m.refuse(
			"it is a frozen graph; make ONNX of it with `python -m tf2onnx.convert --graphdef %s --inputs NAME:0 "+
				"--outputs NAME:0 --output model.onnx --opset 17`",
			t.Path(file),
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
	for _, name := range t.List(dir) {
		if t.IsFile(path.Join(dir, name)) {
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
		if !config.Has("input") || !config.Has("output") {
			m.step("Write input and output into %s: an instance must know them",
				path.Join("BUNDLE", modelDir, tritonConfig))
		}
		// They stay in the settings that Triton reads.
		for _, f := range config.Fields {
			if f.Name != "dynamic_batching" {
				config.Read[f.Name] = true
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
func tritonInputs(config *documents.Message) (flags []string) {
	batched := config.Text("max_batch_size") != "" && config.Text("max_batch_size") != "0"
	for _, in := range config.Messages("input") {
		dims := in.Numbers("dims")
		if !batched && len(dims) > 0 {
			dims = dims[1:]
		}
		flags = append(
			flags,
			fmt.Sprintf("--input %s=%s[%s]", in.Text("name"), cmp.Or(tritonTypes[in.Text("data_type")], "float32"),
				sizes("?", dims, ",")),
		)
	}
	config.Read["input"], config.Read["output"] = true, true
	return flags
}

// shapes gives the free dimensions of an ONNX model the sizes in the settings.
func (r tritonReader) shapes(read *model.Model) {
	config, m := r.config, r.m
	inputs := config.Messages("input")
	config.Messages("output")
	if read == nil || m.State == Refused {
		return
	}
	batched := config.Text("max_batch_size") != "" && config.Text("max_batch_size") != "0"
	var shapes []string
	for _, in := range inputs {
		name, dims := in.Text("name"), in.Numbers("dims")
		at := slices.IndexFunc(read.Inputs(), func(i tensor.Info) bool { return i.Name == name })
		if at < 0 {
			m.note(Lost, "input", name, "the model's file has no input of this name")
			continue
		}
		if reshape := in.Messages("reshape"); len(reshape) > 0 {
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
	for _, out := range config.Messages("output") {
		name := out.Text("label_filename")
		if name == "" || !t.IsFile(path.Join(dir, name)) {
			continue
		}
		m.note(Changed, "output.label_filename", name, "%s in the bundle", bundle.LabelsFile)
		m.bundle.files = append(m.bundle.files, file{to: bundle.LabelsFile, tree: t, from: path.Join(dir, name)})
		return
	}
}
