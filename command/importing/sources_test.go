package importing

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/importing/documents"
)

const tritonText = `
name: "digits" # Its folder's name.
platform: "onnxruntime_onnx"
max_batch_size: 8
input [ { name: "image" data_type: TYPE_FP32 dims: [ 1, 28, 28 ] } ]
output { name: "number" data_type: TYPE_FP32 dims: 10 label_filename: "classes.txt" }
instance_group [ { count: 2 kind: KIND_CPU } ]
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }
version_policy: { specific { versions: [ 1 ] } }
something_new: 7
`

func TestTriton(t *testing.T) {
	im := read(t, Options{}, place(t, map[string]string{
		"digits/config.pbtxt": tritonText, "digits/1/model.onnx": "ONNX", "digits/3/model.onnx": "ONNX", "digits/classes.txt": "zero\none\n",
		"pipeline/config.pbtxt": `platform: "ensemble" ensemble_scheduling { step [ { model_name: "digits" }, { model_name: "sums" } ] }`, "pipeline/1/.keep": "",
		"chat/config.pbtxt": "backend: \"vllm\"\nmodel_transaction_policy { decoupled: True }\n", "chat/1/model.json": "{}",
		"state/config.pbtxt": "backend: \"python\" sequence_batching { }", "state/1/model.py": "",
		"sums/config.pbtxt": "backend: \"python\"\nmax_batch_size: 4\ninput { name: \"x\" data_type: TYPE_FP32 dims: 2 " +
			"}\noutput { name: \"y\" data_type: TYPE_FP32 dims: 1 }\n",
		"sums/2/model.py": "", "sums/2/weights/w.npz": "",
		"scripted/config.pbtxt": `platform: "pytorch_libtorch" max_batch_size: 4 input [{ name: "x__0" data_type: TYPE_FP32 dims: [ 3, -1 ] }]`, "scripted/1/model.pt": "",
		"broken/config.pbtxt": "input [ {", "broken/1/model.onnx": "ONNX",
		"huge/config.pbtxt": strings.Repeat("#", documents.MaxText+1), "huge/1/model.onnx": "ONNX",
		"garbage/1/model.onnx": "no model", "notes/readme.txt": "",
	}))
	functions := write(t, im)
	by := map[string]*Model{}
	for _, m := range im.Models {
		by[m.Name] = m
	}
	if len(by) != 9 || len(functions) != 2 {
		t.Fatal(describe(im), functions)
	}
	f := functions["digits"]
	if a := annotations(f); a["com.openfaas.infer.max-batch"] != "8" || a["com.openfaas.infer.device"] != "cpu" ||
		a["com.openfaas.slo.latency"] != Unset {
		t.Error(a)
	}
	by["digits"].fates(t, map[string]string{
		"dynamic_batching": "not kept: the objective " +
			"decides", "something_new": "not kept: no such field", "versions": "not kept: one version, 1",
		"instance_group.count": "not kept: the load decides", "output.label_filename": "changed: labels.txt",
	})
	for name, why := range map[string]string{
		"pipeline": "an ensemble, of digits, " +
			"sums", "chat": "decoupled", "state": "sequence_batching", "broken": "'}' is missing",
		"huge": "more than 4 MiB", "garbage": "model.onnx",
	} {
		if m := by[name]; m.State != Refused || !strings.Contains(m.Why, why) {
			t.Errorf("%s: %s %s", name, m.State, m.Why)
		}
	}
	if m := by["scripted"]; m.State != Refused || !strings.Contains(m.Why, "an empty file") {
		t.Errorf("%s %s", m.State, m.Why)
	}
	if _, err := os.Stat(filepath.Join(im.options.Out, "sums", "model", "2", "weights", "w.npz")); err != nil {
		t.Error(err)
	}
}

// A TorchScript model of Triton's is converted with the inputs of its settings.
func TestTritonConversion(t *testing.T) {
	im := read(t, Options{Out: "out"}, place(t, map[string]string{
		"config.pbtxt": `name: "s" platform: "pytorch_libtorch" max_batch_size: 4 input [{ name: "x__0" data_type: TYPE_INT64 dims: [ 3, -1 ] }]`, "1/model.pt": "PK\x03\x04",
	}))
	m := one(t, im)
	if m.State == Refused && strings.Contains(m.Why, "zip") {
		return // Recognised as a broken archive; a real one has code in it.
	}
	if m.State != Unfinished || len(m.Steps) != 1 ||
		!strings.HasSuffix(m.Steps[0], "out/s/model.onnx --input 'x__0=int64[?,3,?]'") {
		t.Error(describe(im))
	}
}

func TestTorchServe(t *testing.T) {
	manifest := func(model string) string {
		return `{"createdOn": "x", "runtime": "python", "archiverVersion": "0.9", "model": {"modelVersion": "1.0", ` + model + `}}`
	}
	im := read(
		t,
		Options{Out: filepath.Join(t.TempDir(), "out")},
		archive(t, map[string]string{
			marManifest: manifest(
				`"modelName": "digits", "serializedFile": "m.onnx", "handler": "image_classifier", "configFile": "model-config.yaml"`,
			),
			"m.onnx": "ONNX", classNames: `{"0": "zero", "2": ["n2", "two"]}`,
			"model-config.yaml": "batchSize: 4\nmaxBatchDelay: 100\nminWorkers: 1\nmaxWorkers: 3\ndeviceType: " +
				"cpu\nparallelType: pp\n",
		}),
		archive(t, map[string]string{
			marManifest: manifest(
				`"modelName": "own", "serializedFile": "w.pt", "modelFile": "net.py", "handler": "service.py:handle", "requirementsFile": "r.txt"`,
			),
			"w.pt": "", "net.py": "", "service.py": "", "r.txt": "numpy\n", "extra/deep.txt": "",
		}),
		archive(
			t,
			map[string]string{
				marManifest: manifest(`"modelName": "scripted", "serializedFile": "m.pt", "handler": "base_handler"`),
				"m.pt":      "",
			},
		),
		archive(
			t,
			map[string]string{
				marManifest: manifest(`"modelName": "lost", "serializedFile": "m.pt", "handler": "base_handler"`),
			},
		),
		archive(
			t,
			map[string]string{
				marManifest: manifest(`"modelName": "bad", "serializedFile": "m.onnx", "handler": "base_handler"`),
				"m.onnx":    "no",
			},
		),
	)
	functions := write(t, im)
	digits, own, scripted := im.Models[0], im.Models[1], im.Models[2]
	if digits.State != Ready || own.State != Unfinished || scripted.State != Unfinished || im.Count(Refused) != 2 {
		t.Fatal(describe(im))
	}
	if a, l := annotations(functions["digits"]), functions["digits"].Labels; a["com.openfaas.infer.image"] != imageForm ||
		(*l)["com.openfaas.scale.max"] != "3" {
		t.Error(a, l)
	}
	digits.fates(
		t,
		map[string]string{
			"model-config.yaml.parallelType": "not kept: no such field",
			"model.modelVersion":             "not kept: revision",
		},
	)
	out := im.options.Out
	if text, err := os.ReadFile(filepath.Join(out, "digits", "labels.txt")); string(text) != "zero\n\ntwo\n" {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := os.ReadFile(filepath.Join(out, "own", "requirements.txt")); string(text) != "torch\nnumpy\n" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(out, "own", "torchserve", "extra", "deep.txt")); err != nil {
		t.Error(err)
	}
	aside := filepath.Join(out, asideDir, "scripted", "m.pt")
	if _, err := os.Stat(aside); err != nil ||
		!strings.Contains(scripted.Steps[0], "faas-infer model convert "+aside+" ") {
		t.Error(err, scripted.Steps)
	}
}

func TestMLServer(t *testing.T) {
	im := read(t, Options{}, place(t, map[string]string{
		"models/twice/model-settings.json": `{"name": "twice", "implementation": "runtime.Twice", "max_batch_size": 16, "max_batch_time": 0.1,
			"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}], "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}], "parameters": {"version": "v1"}}`,
		"models/twice/runtime.py": "", "models/twice/requirements.txt": "scipy", "models/twice/settings.json": `{"http_port": 1, "debug": true}`,
		"models/iris/model-settings.json": `{"name": "iris", "implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": "./m.joblib"}}`,
		"models/iris/m.joblib":            "\x80\x04\x95\x10",
		"models/gone/model-settings.json": `{"name": "gone", "implementation": "mlserver_xgboost.XGBoostModel", "parameters": {"uri": "./m.json"}}`,
		"models/away/model-settings.json": `{"name": "away", "implementation": "mlserver_mlflow.MLflowRuntime", "parameters": {"uri": "s3://a/b"}}`,
		"models/bare/model-settings.json": `{"name": "bare"}`, "models/text/model-settings.json": `{`,
	}))
	functions := write(t, im)
	if im.Count(Ready) != 1 || im.Count(Unfinished) != 2 || im.Count(Refused) != 3 || len(functions) != 3 {
		t.Fatal(describe(im))
	}
	for _, m := range im.Models {
		switch m.Name {
		case "twice":
			m.fates(
				t,
				map[string]string{
					"max_batch_time":          "not kept: objective",
					"settings.json.http_port": "not kept: the provider is the server",
					"parameters.version":      "not kept: revision",
				},
			)
		case "iris":
			if m.State != Unfinished || !strings.Contains(m.Steps[0], "m.joblib") ||
				!strings.HasSuffix(m.Steps[0], " --trust") {
				t.Error(m.State, m.Steps)
			}
		case "away":
			if len(m.Steps) != 2 {
				t.Error(m.Steps)
			}
		}
	}
}

func TestBentoML(t *testing.T) {
	settings := func(module, rest string) string {
		return "name: a\nversion: v\nmodule: bentoml." + module + "\nbentoml_version: 1.4\ncreation_time: " +
			"'x'\napi_version: v2\n" + rest
	}
	im := read(t, Options{}, place(t, map[string]string{
		"digits/v1/model.yaml": settings("onnx", ""), "digits/v1/saved_model.onnx": "ONNX",
		"digits/v2/model.yaml": settings("onnx",
			"labels: {team: a}\nmetadata: {x: 1}\nsignatures: {run: {batchable: false}}\n"),
		"digits/v2/saved_model.onnx": "ONNX", "digits/v0/model.yaml": settings("onnx", ""), "digits/latest": "v2\n",
		"forest/v/model.yaml": settings("sklearn", ""), "forest/v/saved_model.pkl": "\x80\x04\x95\x10",
		"words/v/model.yaml": settings("transformers", ""),
	}))
	functions := write(t, im)
	if im.Count(Ready) != 1 || im.Count(Unfinished) != 1 || im.Count(Refused) != 1 {
		t.Fatal(describe(im))
	}
	m := im.Models[0]
	m.fates(
		t,
		map[string]string{
			"versions":                 "not kept: the latest",
			"metadata":                 "not kept: description",
			"signatures.run.batchable": "changed: finds out",
		},
	)
	if l := functions["a"].Labels; (*l)["team"] != "a" {
		t.Error(l)
	}
}
