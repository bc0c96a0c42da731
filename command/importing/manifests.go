package importing

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/faas-infer/faas-infer/command/importing/documents"
)

// groups are the sources of objects by their API group.
var groups = map[string]string{
	"serving.kserve.io": KServe, "serving.kubeflow.org": KServe,
	"mlops.seldon.io": Seldon, "machinelearning.seldon.io": Seldon,
}

// readers read objects of Kubernetes by source and kind.
var readers = map[string]func(o *documents.Object, m *Model){
	KServe + "/InferenceService": readInferenceService,
	KServe + "/TrainedModel":     readTrainedModel,
	Seldon + "/Model":            readSeldonModel,

	KServe + "/ServingRuntime": readRuntime, KServe + "/ClusterServingRuntime": readRuntime,
}

// refusedKinds are kinds of objects that become no function, with the way out.
var refusedKinds = map[string]string{
	KServe + "/InferenceGraph": "a function calls no others; import its services, and call their functions one " +
		"after the other, or join them into one ONNX file",
	KServe + "/LLMInferenceService": "it generates text token by token; write a handler (template python-infer), or " +
		"leave it where it is",
	Seldon + "/Pipeline": "a function calls no others; import its models, and call their functions one " +
		"after the other, or join them into one ONNX file",
	Seldon + "/Experiment": "a function has no experiments; deploy the candidate as a function of its own, " +
		"and send it a part of the requests",
	Seldon + "/SeldonDeployment": "it is of Seldon Core 1; write its models as Models of mlops.seldon.io, or " +
		"import their files by --source mlserver or triton",
}

// readManifests reads all objects in a file of YAML or JSON.
func (im *Import) readManifests(f fs.File, name string) error {
	text, err := documents.ReadText(f, path.Base(name))
	if err != nil {
		return err
	}
	objects, others := 0, 0
	for d, n := yaml.NewDecoder(bytes.NewReader(text)), 1; ; n++ {
		var value any
		err := d.Decode(&value)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("it is no archive, and its document %d is no YAML: %w; render a template first, "+
				"as with `helm template`", n, err)
		}
		if value == nil {
			continue
		}
		read, other := im.readObject(documents.AsObject("", value), name)
		objects, others = objects+read, others+other
	}
	if objects == 0 && others == 0 {
		return fmt.Errorf("it has no objects of Kubernetes, with apiVersion and kind; %s", wantsAny())
	}
	return nil
}

// readObject reads an object, or those of a list. It returns how many are of a source, and how many are not.
func (im *Import) readObject(o *documents.Object, name string) (objects, others int) {
	group, _, _ := strings.Cut(o.Text("apiVersion"), "/")
	kind := o.Text("kind")
	if kind == "List" || strings.HasSuffix(kind, "List") && o.Has("items") {
		for _, item := range o.Objects("items") {
			item.At = ""
			a, b := im.readObject(item, name)
			objects, others = objects+a, others+b
		}
		return objects, others
	}
	if kind == "" || group == "" {
		return 0, 0
	}
	source := groups[group]
	key := source + "/" + kind
	read, why := readers[key], refusedKinds[key]
	if group == "openfaas.com" {
		why = "faas-netes has it; move it with `faas-infer-kubernetes import --dry-run`"
	}
	if stated := im.options.Source; stated != "" && source != stated || read == nil && why == "" {
		im.Ignored[kind]++
		return 0, 1
	}
	meta := o.Object("metadata")
	m := im.add(source, meta.Text("name"), fmt.Sprintf("%s: %s", name, kind))
	if namespace := meta.Text("namespace"); namespace != "" {
		m.note(Lost, "metadata.namespace", namespace, "deploy with --namespace for another one than the provider's")
	}
	if why != "" {
		m.refuse("%s", why)
		return 1, 0
	}
	m.keepMetadata(meta)
	read(o, m)
	return 1, 0
}

// foreignDomains are the domains of labels and annotations that only other programs read.
var foreignDomains = []string{
	"kubernetes.io", "k8s.io", "knative.dev", "istio.io", "kserve.io", "kubeflow.org", "seldon.io", "helm.sh",
	"prometheus.io", "argoproj.io",
}

// keepMetadata keeps labels and annotations, but for those that only other programs read.
func (m *Model) keepMetadata(meta *documents.Object) {
	for _, kind := range []struct {
		key string
		to  *map[string]string
	}{{"labels", &m.deployment.Labels}, {"annotations", &m.deployment.Annotations}} {
		of := meta.Object(kind.key)
		for _, key := range of.Unread() {
			value, at := of.Text(key), "metadata."+kind.key+"."+key
			switch {
			case strings.HasSuffix(key, "last-applied-configuration"):
			case foreign(key):
				m.note(Lost, at, value, "only other programs read it")
			default:
				m.keep(kind.to, key, value, at, strings.TrimSuffix(kind.key, "s"))
			}
		}
	}
}

// keep keeps a label or annotation as it is.
func (m *Model) keep(in *map[string]string, key, value, field, what string) {
	if *in == nil {
		*in = map[string]string{}
	}
	(*in)[key] = value
	m.note(Kept, field, value, "%s", what)
}

// foreign reports whether only other programs read a label or annotation.
func foreign(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	return ok && slices.ContainsFunc(foreignDomains, func(f string) bool {
		return domain == f || strings.HasSuffix(domain, "."+f)
	})
}
