package importing

import (
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/command/importing/documents"
)

// seldonFormats are the formats of models by Seldon's requirements, by which its servers say what they run.
var seldonFormats = []string{
	"sklearn", "xgboost", "lightgbm", "catboost", "mlflow", "onnx", "tensorflow", "pytorch", "huggingface", "tensorrt",
	"openvino", "alibi-detect", "alibi-explain", "python",
}

// readSeldonModel reads a Model of Seldon Core 2.
func readSeldonModel(o *documents.Object, m *Model) {
	spec := o.Object("spec")
	spec.At = ""
	if m.artefact = spec.Text("storageUri"); m.artefact == "" {
		m.refuse("storageUri is missing, and it says where the model's files are")
		return
	}
	if explainer := spec.Object("explainer"); len(explainer.Fields) > 0 {
		m.refuse("it explains answers of another model, as %s; a function explains none", explainer.Text("type"))
		return
	}
	if llm := spec.Object("llm"); len(llm.Fields) > 0 {
		m.refuse("%s", refusedKinds[KServe+"/LLMInferenceService"])
		return
	}
	needs := spec.Texts("requirements")
	for _, name := range needs {
		if at := slices.Index(seldonFormats, name); at >= 0 && m.format == "" {
			m.format = name
		}
	}
	m.note(Changed, "requirements", strings.Join(needs, ", "), "the engine that fits the model's files")
	if !strings.Contains(m.artefact, "://") {
		m.note(Changed, "storageUri", m.artefact, "a path in Seldon's server")
	}
	if version := spec.Text("artifactVersion"); version != "" {
		m.note(Lost, "artifactVersion", version,
			"the latest version at the URI is served; copy the files of this one alone")
	}
	if memory := spec.Text("memory"); memory != "" {
		m.deployment.Limits = &resources{Memory: memory}
		m.note(Changed, "memory", memory,
			"limits.memory; in Seldon it is the model's part of a server's memory, here that of an instance")
	}
	m.setScale(spec, "minReplicas", "maxReplicas")
	if n, ok := spec.Number("replicas"); ok && !spec.Has("minReplicas") {
		m.label("com.openfaas.scale.min", spec.Text("replicas"), "replicas", n)
	}
	if secret := spec.Text("secretName"); secret != "" {
		m.note(Lost, "secretName", secret, "give the credentials for the model's files as a secret of the function")
	}
	for _, p := range spec.Objects("parameters") {
		m.note(Lost, p.At, p.Text("name")+"="+p.Text("value"),
			"write it into parameters.extra of the model's model-settings.json")
	}
	m.lose(spec, "each function has instances of its own", "server", "dedicated", "preloaded")
	m.lose(spec, "`faas-infer up --trace-endpoint` traces requests, without their bodies", "logger")
	m.lose(spec, "requests come by HTTP or gRPC, or later by /async-function", "dataflow")
	m.loseRest(spec)
}
