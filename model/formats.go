package model

import (
	"bytes"
	"encoding/binary"
	"regexp"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Parts of the ways out.
const (
	handlerWay  = "serve it with a handler of your own (template python-infer"
	downloadWay = "download the file again, from its own address and not from the page about it"
	unpackWay   = "unpack it and give the model in it"
)

// convertWay is the way of a format that model convert takes as it is.
var convertWay = converting("")

// converting is the way of a format that model convert takes with flags.
func converting(flags string) string {
	return "convert it with `faas-infer model convert FILE model.onnx" + flags + "`"
}

// handler is the way of a format that a Python package runs.
func handler(packages string) string {
	return handlerWay + ", with " + packages + " in requirements.txt)"
}

// format is a row of the table: a format, and whether a file has it.
type format struct {
	Foreign
	is func(*head) bool
}

// zipped returns a test for an archive with an entry of a name.
func zipped(name string) func(*head) bool {
	pattern := regexp.MustCompile(name)
	return func(h *head) bool { return h.entry(pattern) }
}

// starts returns a test for a file's first bytes.
func starts(magic ...string) func(*head) bool {
	return func(h *head) bool { return h.prefix(magic...) }
}

// flatbuffer returns a test for the identifier of a FlatBuffers file.
func flatbuffer(identifier string) func(*head) bool {
	return func(h *head) bool { return h.at(4, identifier) }
}

// formats is the table. The first row that matches counts, so a special format is above the
// general one of which it is a kind.
var formats = []format{
	{Foreign{"empty", "an empty file", "copy the model again"}, func(h *head) bool { return h.size == 0 }},
	{Foreign{"lfs", "a Git LFS pointer", "get the file itself with `git lfs pull`"}, starts("version https://git-lfs")},
	{Foreign{"html", "an HTML page",
		downloadWay}, func(h *head) bool { return h.text("<!doctype html", "<html", "<head") }},
	{Foreign{"error", "an error message of a server", downloadWay}, func(h *head) bool {
		return h.text("<?xml", "<error") && h.has("<Error>", "<Code>")
	}},
	{Foreign{"zeros", "nothing but zeros, as an unfinished download leaves",
		"download the file again"}, func(h *head) bool {
		return len(h.begin) > 0 && len(bytes.Trim(h.begin, "\x00")) == 0
	}},

	{Foreign{"gguf", "a language model in GGUF", handler("llama-cpp-python")}, starts("GGUF", "lmgg", "fmgg", "tjgg")},
	{Foreign{"safetensors", "weights in safetensors, without the model that they belong to",
		"export the model to ONNX where its code is (optimum-cli export onnx --model DIR OUT), or " +
			handler("safetensors and the model's library")},
		isSafetensors},
	{Foreign{"tflite", "a TensorFlow Lite model",
		"make ONNX of it with `python -m tf2onnx.convert --tflite FILE --output model.onnx --opset 17`, or " +
			handler("ai-edge-litert")},
		flatbuffer("TFL3")},
	{Foreign{"ort", "a model in ONNX Runtime's own format (.ort)",
		"give the .onnx file that it was made from, which is optimised here for each machine, or " +
			handler("onnxruntime")},
		flatbuffer("ORTM")},
	{Foreign{"tensorrt", "an engine of TensorRT",
		"serve it with the template triton, or give the ONNX file that it was made from"}, starts("ptrt")},

	{Foreign{FormatCatBoost, "a CatBoost model", convertWay}, starts("CBM1")},
	{Foreign{FormatCatBoost, "a CatBoost model in JSON", convertWay}, func(h *head) bool {
		return h.object() && (h.has(`"features_info"`) && h.has(`"float_features"`) ||
			h.has(`"oblivious_trees"`) || h.has(`"catboost_version_info"`))
	}},
	{Foreign{FormatXGBoost, "an XGBoost model", convertWay}, func(h *head) bool {
		return h.object() && h.has("learner") && (h.has("gradient_booster") || h.has("feature_names"))
	}},
	{Foreign{"xgboost.binary", "an XGBoost model in its former binary format",
		"load it with the version that wrote it, save it with save_model(\"model.json\"), and convert that with `faas-infer model convert model.json model.onnx`"},
		starts("binf")},
	{Foreign{FormatLightGBM, "a LightGBM model",
		convertWay}, func(h *head) bool { return h.prefix("tree\n", "tree\r\n") && h.has("version=") }},

	{Foreign{FormatKeras, "a Keras model",
		convertWay + ", or serve it with the template tensorflow-infer"}, func(h *head) bool {
		return zipped(`^config\.json$`)(h) && zipped(`^model\.weights\.(h5|npz)$|^metadata\.json$`)(h)
	}},
	{Foreign{FormatKeras, "an HDF5 file, as Keras writes",
		convertWay + ", or serve it with the template tensorflow-infer"}, starts("\x89HDF\r\n\x1a\n")},
	{Foreign{FormatTorch, "a PyTorch program (torch.export.save)", convertWay},
		zipped(`(^|/)serialized_exported_program\.json$|(^|/)models/[^/]+\.json$`)},
	{Foreign{FormatTorch, "a TorchScript model (torch.jit.save)",
		converting(" --input NAME=TYPE[SHAPE]")}, zipped(`/code/`)},
	{Foreign{FormatTorch, "a PyTorch file (torch.save)",
		"write the program with torch.export.save and " + convertWay +
			"; if it holds the whole module and you trust it, " + converting(" --trust --input NAME=TYPE[SHAPE]")},
		isTorchPickle},
	{Foreign{"coreml", "a Core ML model, which Apple's machines alone run",
		"convert the model that it was made from with `faas-infer model convert`"},
		zipped(`com\.apple\.CoreML/|\.mlmodelc?(/|$)`)},
	{Foreign{"savedmodel.zip", "an archive of a SavedModel",
		"unpack it and convert its directory with `faas-infer model convert DIR model.onnx`"},
		zipped(`(^|/)saved_model\.pb$`)},
	{Foreign{"torchserve", "an archive of TorchServe",
		unpackWay + "; convert a .pt file in it with `faas-infer model convert`"}, zipped(`^MAR-INF/`)},
	{Foreign{"onnx.zip", "an archive with an ONNX model", "unpack it and give the .onnx file in it"}, zipped(`\.onnx$`)},
	{Foreign{"npz", "arrays of NumPy (.npz), without the model that they belong to",
		handler("numpy")}, zipped(`\.npy$`)},
	{Foreign{"zip", "a zip archive that ends early",
		"copy or download the file again"}, func(h *head) bool { return h.prefix("PK\x03\x04") && !h.whole }},
	{Foreign{"zip", "a zip archive", unpackWay}, starts("PK\x03\x04", "PK\x05\x06")},
	{Foreign{"tar", "a tar archive",
		"unpack it with `tar xf` and give the model in it"}, func(h *head) bool { return h.at(257, "ustar") }},

	{Foreign{FormatPickle, "a Python pickle (pickle, joblib), which runs code when it is loaded",
		"if you trust it and it is a scikit-learn, XGBoost, LightGBM or CatBoost model, " + converting(" --trust") +
			"; otherwise " + handlerWay + ", with its packages in requirements.txt)"},
		isPickle},
	{Foreign{"npy", "an array of NumPy (.npy), and no model", handler("numpy")}, starts("\x93NUMPY")},

	{Foreign{"openvino", "an OpenVINO model (.xml, weights in .bin)",
		"give the ONNX file that it was made from, or " + handler("openvino")}, func(h *head) bool {
		return h.text("<?xml", "<net") && h.has("<net ", "<layer")
	}},
	{Foreign{"pmml", "a PMML model",
		handler("pypmml")}, func(h *head) bool { return h.text("<?xml", "<pmml") && h.has("<PMML") }},
	{Foreign{FormatSavedModelPB, "the graph of a TensorFlow SavedModel (saved_model.pb)",
		"convert its directory with `faas-infer model convert DIR model.onnx`, or serve that with the template tensorflow-infer or tensorflow-serving"},
		isSavedModel},
	{Foreign{"graphdef", "a frozen graph of TensorFlow",
		"make ONNX of it with `python -m tf2onnx.convert --graphdef FILE --inputs NAME:0 --outputs NAME:0 --output model.onnx --opset 17`"},
		isGraphDef},
	{Foreign{"coreml", "a Core ML model, which Apple's machines alone run",
		"convert the model that it was made from with `faas-infer model convert`"}, isCoreML},
	{Foreign{"paddle", "a PaddlePaddle model",
		"make ONNX of it with `paddle2onnx --model_dir DIR --model_filename FILE --save_file model.onnx`"}, isPaddle},

	{Foreign{formatJSON, "text in JSON, and no model that is known", "give the model's own file"}, func(h *head) bool {
		return h.text(`{"`, "{\n", "{\r\n", "{ ", "[{", "[\n")
	}},
	{Foreign{formatXML, "text in XML, and no model that is known",
		"give the model's own file"}, func(h *head) bool { return h.text("<?xml") }},
}

// isSafetensors finds the length of the header before a JSON object.
func isSafetensors(h *head) bool {
	if len(h.begin) < 10 {
		return false
	}
	length := binary.LittleEndian.Uint64(h.begin)
	return length >= 2 && length <= 100<<20 &&
		h.begin[8] == '{' && (h.begin[9] == '"' || h.begin[9] == '}' || h.begin[9] == ' ')
}

// torchLegacy is how torch.save's files began before PyTorch 1.6: a pickle of a number.
const torchLegacy = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"

func isTorchPickle(h *head) bool {
	return h.prefix(torchLegacy) || zipped(`(^|/)data\.pkl$`)(h)
}

// isPickle finds the mark of a pickle's protocol, 2 to 5, and one of the codes that may follow.
// Protocol 0 has no mark; an object of a class begins with the name of a function then.
func isPickle(h *head) bool {
	if h.prefix("ccopy_reg\n", "ccopyreg\n") {
		return true
	}
	const frame, codes = '\x95', "\x8c\x8a\x80cC}]()KMJGXUN\x95"
	if len(h.begin) < 3 || h.begin[0] != 0x80 || h.begin[1] < 2 || h.begin[1] > 5 {
		return false
	}
	if h.begin[2] == frame {
		return h.begin[1] >= 4
	}
	return bytes.IndexByte([]byte(codes), h.begin[2]) >= 0
}

// firstField returns the first field of a message in protocol buffers and the bytes after it. A
// value that goes beyond b is cut there.
func firstField(b []byte) (number protowire.Number, kind protowire.Type, value, rest []byte) {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 {
		return 0, 0, nil, nil
	}
	b = b[n:]
	if kind == protowire.BytesType {
		length, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return 0, 0, nil, nil
		}
		b = b[n:]
		end := min(uint64(len(b)), length)
		return number, kind, b[:end], b[end:]
	}
	if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
		return 0, 0, nil, nil
	}
	return number, kind, b[:n], b[n:]
}

// nested returns the bytes in a message's first field, if that has the number and has bytes.
func nested(b []byte, number protowire.Number) (value, rest []byte, ok bool) {
	n, kind, value, rest := firstField(b)
	return value, rest, n == number && kind == protowire.BytesType
}

// versioned returns the bytes in field 2 that follow a small number in field 1.
func versioned(h *head) (version byte, value []byte, ok bool) {
	n, kind, first, rest := firstField(h.begin)
	if n != 1 || kind != protowire.VarintType || len(first) != 1 {
		return 0, nil, false
	}
	value, _, ok = nested(rest, 2)
	return first[0], value, ok
}

// isSavedModel finds SavedModel{schema_version: 1, MetaGraphDef{MetaInfoDef{…}}}. An ONNX
// model has its producer's name in the place of MetaGraphDef.
func isSavedModel(h *head) bool {
	version, graph, ok := versioned(h)
	if !ok || version != 1 {
		return false
	}
	info, _, ok := nested(graph, 1)
	if !ok {
		return false
	}
	n, kind, _, _ := firstField(info)
	return kind == protowire.BytesType && slices.Contains([]protowire.Number{2, 4, 5, 6}, n)
}

// isCoreML finds Model{version, ModelDescription{FeatureDescription{name, …}}}.
func isCoreML(h *head) bool {
	version, description, ok := versioned(h)
	if !ok || version > 20 {
		return false
	}
	feature, _, ok := nested(description, 1)
	if !ok {
		return false
	}
	name, rest, ok := nested(feature, 1)
	if !ok || len(name) == 0 || !printable(name) {
		return false
	}
	n, kind, _, _ := firstField(rest)
	return kind == protowire.BytesType && (n == 2 || n == 3)
}

var operatorName = regexp.MustCompile(`^_?[A-Z][A-Za-z0-9_]*$`)

// isGraphDef finds GraphDef{NodeDef{name, op, …}}. A node of a bare ONNX graph has the names
// of tensors there, so it could be taken for one if these look like operators.
func isGraphDef(h *head) bool {
	node, _, ok := nested(h.begin, 1)
	if !ok {
		return false
	}
	name, rest, ok := nested(node, 1)
	if !ok || !printable(name) {
		return false
	}
	op, _, ok := nested(rest, 2)
	return ok && operatorName.Match(op)
}

// isPaddle finds ProgramDesc{BlockDesc{idx: 0, parent_idx, …}}.
func isPaddle(h *head) bool {
	block, _, ok := nested(h.begin, 1)
	return ok && bytes.HasPrefix(block, []byte{0x08, 0x00, 0x10})
}

func printable(b []byte) bool {
	return !slices.ContainsFunc(b, func(c byte) bool { return c < ' ' || c == 0x7f })
}
