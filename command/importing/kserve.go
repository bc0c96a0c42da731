package importing

import (
	"cmp"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/command/importing/documents"
)

// kserveFormats are the fields of a predictor that name a format, of KServe's former notation.
var kserveFormats = []string{
	"sklearn",
	"xgboost",
	"lightgbm",
	"tensorflow",
	"pytorch",
	"onnx",
	"triton",
	"pmml",
	"paddle",
	"huggingface",
}

// readInferenceService reads an InferenceService of v1beta1, or of v1alpha2, whose predictor is in "default".
func readInferenceService(o *documents.Object, m *Model) {
	spec := o.Object("spec")
	spec.At = ""
	if spec.Has("default") {
		m.lose(spec, "deploy it as a function of its own", "canary", "canaryTrafficPercent")
		outer := spec
		spec = spec.Object("default")
		spec.At = "default"
		defer m.loseRest(outer)
	}
	predictor := spec.Object("predictor")
	m.lose(spec,
		"a function calls no other program; it takes the tensors that the transformer sends. Do that in the client, or "+
			"in a handler", "transformer")
	m.lose(spec, "a function explains no answers", "explainer")
	m.loseRest(spec)
	readPredictor(predictor, m)
	if m.deployment.program {
		m.lose(predictor, "the function is an ordinary one", "batcher")
	} else {
		batcher := predictor.Object("batcher")
		m.setMaxBatch(batcher, "maxBatchSize")
		m.lose(batcher, "the objective decides how long a request waits for a batch", "maxLatency", "timeout")
	}
	m.setScale(predictor, "minReplicas", "maxReplicas")
	readCanary(predictor, m)
	m.lose(predictor, "the provider scales by the objective", "scaleTarget", "scaleMetric", "scaleMetricType",
		"autoScaling", "containerConcurrency")
	m.lose(predictor, "the objective decides how long a request may take", "timeout")
	m.lose(predictor, "`faas-infer up --trace-endpoint` traces requests, without their bodies", "logger")
	m.lose(predictor, "a new revision answers once it can carry the load", "deploymentStrategy")
	for key, value := range predictor.Strings("nodeSelector") {
		m.deployment.Constraints = append(m.deployment.Constraints, key+"="+value)
		m.note(Kept, predictor.Path("nodeSelector."+key), value, "constraint")
	}
	slices.Sort(m.deployment.Constraints)
	if account := predictor.Text("serviceAccountName"); account != "" {
		if m.deployment.program {
			m.annotate("com.openfaas.serviceaccount", account, predictor.Path("serviceAccountName"), account)
		} else {
			m.note(Lost, predictor.Path("serviceAccountName"), account, "give the credentials for the model's files as a "+
				"secret of the function")
		}
	}
	m.loseRest(predictor)
}

// readCanary keeps the share of a canary.
func readCanary(predictor *documents.Object, m *Model) {
	const key = "canaryTrafficPercent"
	if value := predictor.Text(key); value != "" {
		m.annotate("com.openfaas.infer.canary", value, predictor.Path(key), value)
	}
}

// readPredictor reads the model of a predictor, or its container.
func readPredictor(predictor *documents.Object, m *Model) {
	if containers := predictor.Objects("containers"); len(containers) > 0 && !predictor.Has("model") {
		readContainer(containers[0], m)
		for _, more := range containers[1:] {
			m.note(Lost, more.At, more.Text("name"), "a function has one container")
		}
		return
	}
	if custom := predictor.Object("custom").Object("container"); len(custom.Fields) > 0 {
		readContainer(custom, m)
		return
	}
	of := predictor.Object("model")
	format := of.Object("modelFormat")
	m.format = strings.ToLower(format.Text("name"))
	m.lose(format, "the model's file decides", "version")
	for _, key := range kserveFormats {
		if m.format == "" && predictor.Has(key) {
			of, m.format = predictor.Object(key), key
		}
	}
	if m.format == "" {
		m.refuse(
			"its predictor names neither a model's format nor a container; write predictor.model.modelFormat.name")
		return
	}
	readStorage(predictor, of, m)
	m.note(Changed, "modelFormat", m.format, "the engine that fits the model's files")
	if runtime := of.Text("runtime"); runtime != "" {
		m.note(Lost, of.Path("runtime"), runtime, "the bundle's engine runs the model")
	}
	if protocol := of.Text("protocolVersion"); protocol != "" {
		m.note(Kept, of.Path("protocolVersion"), protocol, "functions answer v1, v2 and grpc-v2")
	}
	m.setResources(of.Object("resources"))
	m.lose(of, "the bundle's engine runs the model", "args", "command", "env", "image", "ports", "runtimeVersion",
		"name")
	m.loseRest(of)
}

// readStorage reads where the model's files are.
func readStorage(predictor, of *documents.Object, m *Model) {
	m.artefact = of.Text("storageUri")
	for i, each := range predictor.Objects("storageUris") {
		if uri := each.Text("uri"); i == 0 && m.artefact == "" {
			m.artefact = uri
		} else {
			m.note(Lost, each.Path("uri"), uri, "a function has one model")
		}
	}
	if storage := of.Object("storage"); m.artefact == "" && len(storage.Fields) > 0 {
		at := storage.Text("path")
		parameters := storage.Object("parameters")
		if bucket := parameters.Text("bucket"); bucket != "" {
			at = cmp.Or(parameters.Text("type"), "s3") + "://" + bucket + "/" + strings.TrimPrefix(at, "/")
		}
		m.artefact = at
		m.note(Changed, storage.At, at, "the URI of the model's files")
		m.lose(storage, "give the credentials for the model's files as a secret of the function", "key")
		m.loseRest(storage)
	}
	if m.artefact == "" {
		m.refuse(
			"its predictor names no storageUri, so its models come from elsewhere; import these, such as TrainedModels or " +
				"the model repository")
	}
}

// readContainer makes an ordinary function of a container with a server of its own.
func readContainer(c *documents.Object, m *Model) {
	f := &m.deployment
	f.program = true
	if f.Image = c.Text("image"); f.Image == "" {
		m.refuse("%s names no image", c.At)
		return
	}
	m.note(Kept, c.Path("image"), f.Image,
		"an ordinary function without an objective; on Kubernetes, because one machine pulls no images")
	for _, variable := range c.Objects("env") {
		name := variable.Text("name")
		if variable.Has("valueFrom") {
			m.note(Lost, variable.At, name,
				"functions have no variables from secrets; name the secret, which becomes a file in /var/openfaas/secrets")
			continue
		}
		if f.Environment == nil {
			f.Environment = map[string]string{}
		}
		f.Environment[name] = variable.Text("value")
		m.note(Kept, variable.At, name, "environment")
	}
	for _, port := range c.Objects("ports") {
		if n := port.Text("containerPort"); n != "" && n != "8080" {
			m.note(Lost, port.At, n, "functions serve at port 8080")
			m.step("Let the server in %s listen at port 8080", f.Image)
		}
	}
	for _, key := range []string{"command", "args"} {
		if words := c.Texts(key); len(words) > 0 {
			m.note(Lost, c.Path(key), strings.Join(words, " "), "functions run the image's own command")
			m.step("Make the %s %q the image's own: functions have no such field", key,
				documents.Short(strings.Join(words, " ")))
		}
	}
	m.setResources(c.Object("resources"))
	c.Without("name", "ports")
	m.loseRest(c)
}

// readTrainedModel reads a TrainedModel, a model that a server of several loads.
func readTrainedModel(o *documents.Object, m *Model) {
	spec := o.Object("spec")
	spec.At = ""
	of := spec.Object("model")
	m.format, m.artefact = strings.ToLower(of.Text("framework")), of.Text("storageUri")
	m.note(Changed, of.Path("framework"), m.format, "the engine that fits the model's files")
	m.note(Changed, "inferenceService", spec.Text("inferenceService"), "a function of its own")
	if m.artefact == "" {
		m.refuse("%s is missing", of.Path("storageUri"))
	}
	if memory := of.Text("memory"); memory != "" {
		m.deployment.Limits = &resources{Memory: memory}
		m.note(Kept, of.Path("memory"), memory, "limits.memory")
	}
	m.loseRest(of)
	m.loseRest(spec)
}

// readRuntime says which formats of a runtime are imported.
func readRuntime(o *documents.Object, m *Model) {
	m.State, m.Why = Described, "it says which server runs which format; the bundle's engine does, and nothing is "+
		"deployed for it"
	spec := o.Object("spec")
	spec.At = ""
	var seen []string
	for _, format := range spec.Objects("supportedModelFormats") {
		name := strings.ToLower(format.Text("name"))
		if slices.Contains(seen, name) {
			continue
		}
		seen = append(seen, name)
		way, refused := refusedFormats[name]
		_, converted := kinds[name]
		switch {
		case refused:
			m.note(Lost, format.At, name, "%s", way)
		case converted:
			m.note(Changed, format.At, name, "ONNX, by conversion")
		case name == "onnx" || name == "tensorflow" || name == "triton" || name == "mlflow":
			m.note(Kept, format.At, name, "engine %s",
				map[string]string{"mlflow": MLServer}[name]+strings.TrimPrefix(name, "mlflow"))
		default:
			m.note(Lost, format.At, name, "no engine runs it; write a handler (template python-infer)")
		}
	}
	for _, c := range spec.Objects("containers") {
		m.note(Lost, c.At, c.Text("image"), "its models run in an engine of faas-infer")
	}
}
