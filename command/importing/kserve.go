package importing

import (
	"cmp"
	"slices"
	"strings"
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
func readInferenceService(o *object, m *Model) {
	spec := o.object("spec")
	spec.at = ""
	if spec.has("default") {
		m.lose(spec, "deploy it as a function of its own", "canary", "canaryTrafficPercent")
		outer := spec
		spec = spec.object("default")
		spec.at = "default"
		defer m.loseRest(outer)
	}
	predictor := spec.object("predictor")
	m.lose(spec,
		"a function calls no other program; it takes the tensors that the transformer sends. Do that in the client, or "+
			"in a handler", "transformer")
	m.lose(spec, "a function explains no answers", "explainer")
	m.loseRest(spec)
	readPredictor(predictor, m)
	if m.deployment.program {
		m.lose(predictor, "the function is an ordinary one", "batcher")
	} else {
		batcher := predictor.object("batcher")
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
	for key, value := range predictor.strings("nodeSelector") {
		m.deployment.Constraints = append(m.deployment.Constraints, key+"="+value)
		m.note(Kept, predictor.path("nodeSelector."+key), value, "constraint")
	}
	slices.Sort(m.deployment.Constraints)
	if account := predictor.text("serviceAccountName"); account != "" {
		if m.deployment.program {
			m.annotate("com.openfaas.serviceaccount", account, predictor.path("serviceAccountName"), account)
		} else {
			m.note(Lost, predictor.path("serviceAccountName"), account, "give the credentials for the model's files as a "+
				"secret of the function")
		}
	}
	m.loseRest(predictor)
}

// readCanary keeps the share of a canary.
func readCanary(predictor *object, m *Model) {
	const key = "canaryTrafficPercent"
	if value := predictor.text(key); value != "" {
		m.annotate("com.openfaas.infer.canary", value, predictor.path(key), value)
	}
}

// readPredictor reads the model of a predictor, or its container.
func readPredictor(predictor *object, m *Model) {
	if containers := predictor.objects("containers"); len(containers) > 0 && !predictor.has("model") {
		readContainer(containers[0], m)
		for _, more := range containers[1:] {
			m.note(Lost, more.at, more.text("name"), "a function has one container")
		}
		return
	}
	if custom := predictor.object("custom").object("container"); len(custom.fields) > 0 {
		readContainer(custom, m)
		return
	}
	of := predictor.object("model")
	format := of.object("modelFormat")
	m.format = strings.ToLower(format.text("name"))
	m.lose(format, "the model's file decides", "version")
	for _, key := range kserveFormats {
		if m.format == "" && predictor.has(key) {
			of, m.format = predictor.object(key), key
		}
	}
	if m.format == "" {
		m.refuse(
			"its predictor names neither a model's format nor a container; write predictor.model.modelFormat.name")
		return
	}
	readStorage(predictor, of, m)
	m.note(Changed, "modelFormat", m.format, "the engine that fits the model's files")
	if runtime := of.text("runtime"); runtime != "" {
		m.note(Lost, of.path("runtime"), runtime, "the bundle's engine runs the model")
	}
	if protocol := of.text("protocolVersion"); protocol != "" {
		m.note(Kept, of.path("protocolVersion"), protocol, "functions answer v1, v2 and grpc-v2")
	}
	m.setResources(of.object("resources"))
	m.lose(of, "the bundle's engine runs the model", "args", "command", "env", "image", "ports", "runtimeVersion",
		"name")
	m.loseRest(of)
}

// readStorage reads where the model's files are.
func readStorage(predictor, of *object, m *Model) {
	m.artefact = of.text("storageUri")
	for i, each := range predictor.objects("storageUris") {
		if uri := each.text("uri"); i == 0 && m.artefact == "" {
			m.artefact = uri
		} else {
			m.note(Lost, each.path("uri"), uri, "a function has one model")
		}
	}
	if storage := of.object("storage"); m.artefact == "" && len(storage.fields) > 0 {
		at := storage.text("path")
		parameters := storage.object("parameters")
		if bucket := parameters.text("bucket"); bucket != "" {
			at = cmp.Or(parameters.text("type"), "s3") + "://" + bucket + "/" + strings.TrimPrefix(at, "/")
		}
		m.artefact = at
		m.note(Changed, storage.at, at, "the URI of the model's files")
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
func readContainer(c *object, m *Model) {
	f := &m.deployment
	f.program = true
	if f.Image = c.text("image"); f.Image == "" {
		m.refuse("%s names no image", c.at)
		return
	}
	m.note(Kept, c.path("image"), f.Image,
		"an ordinary function without an objective; on Kubernetes, because one machine pulls no images")
	for _, variable := range c.objects("env") {
		name := variable.text("name")
		if variable.has("valueFrom") {
			m.note(Lost, variable.at, name,
				"functions have no variables from secrets; name the secret, which becomes a file in /var/openfaas/secrets")
			continue
		}
		if f.Environment == nil {
			f.Environment = map[string]string{}
		}
		f.Environment[name] = variable.text("value")
		m.note(Kept, variable.at, name, "environment")
	}
	for _, port := range c.objects("ports") {
		if n := port.text("containerPort"); n != "" && n != "8080" {
			m.note(Lost, port.at, n, "functions serve at port 8080")
			m.step("Let the server in %s listen at port 8080", f.Image)
		}
	}
	for _, key := range []string{"command", "args"} {
		if words := c.texts(key); len(words) > 0 {
			m.note(Lost, c.path(key), strings.Join(words, " "), "functions run the image's own command")
			m.step("Make the %s %q the image's own: functions have no such field", key,
				short(strings.Join(words, " ")))
		}
	}
	m.setResources(c.object("resources"))
	c.without("name", "ports")
	m.loseRest(c)
}

// readTrainedModel reads a TrainedModel, a model that a server of several loads.
func readTrainedModel(o *object, m *Model) {
	spec := o.object("spec")
	spec.at = ""
	of := spec.object("model")
	m.format, m.artefact = strings.ToLower(of.text("framework")), of.text("storageUri")
	m.note(Changed, of.path("framework"), m.format, "the engine that fits the model's files")
	m.note(Changed, "inferenceService", spec.text("inferenceService"), "a function of its own")
	if m.artefact == "" {
		m.refuse("%s is missing", of.path("storageUri"))
	}
	if memory := of.text("memory"); memory != "" {
		m.deployment.Limits = &resources{Memory: memory}
		m.note(Kept, of.path("memory"), memory, "limits.memory")
	}
	m.loseRest(of)
	m.loseRest(spec)
}

// readRuntime says which formats of a runtime are imported.
func readRuntime(o *object, m *Model) {
	m.State, m.Why = Described, "it says which server runs which format; the bundle's engine does, and nothing is "+
		"deployed for it"
	spec := o.object("spec")
	spec.at = ""
	var seen []string
	for _, format := range spec.objects("supportedModelFormats") {
		name := strings.ToLower(format.text("name"))
		if slices.Contains(seen, name) {
			continue
		}
		seen = append(seen, name)
		way, refused := refusedFormats[name]
		_, converted := kinds[name]
		switch {
		case refused:
			m.note(Lost, format.at, name, "%s", way)
		case converted:
			m.note(Changed, format.at, name, "ONNX, by conversion")
		case name == "onnx" || name == "tensorflow" || name == "triton" || name == "mlflow":
			m.note(Kept, format.at, name, "engine %s",
				map[string]string{"mlflow": MLServer}[name]+strings.TrimPrefix(name, "mlflow"))
		default:
			m.note(Lost, format.at, name, "no engine runs it; write a handler (template python-infer)")
		}
	}
	for _, c := range spec.objects("containers") {
		m.note(Lost, c.at, c.text("image"), "its models run in an engine of faas-infer")
	}
}
