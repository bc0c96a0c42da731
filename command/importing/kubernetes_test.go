package importing

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

const kserveText = `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: digits
  namespace: team-a
  labels: {team: vision, app.kubernetes.io/name: x}
  annotations: {serving.kserve.io/deploymentMode: Standard, com.my.org/owner: me}
spec:
  transformer: {containers: [{image: t}]}
  predictor:
    minReplicas: 1
    maxReplicas: 4
    canaryTrafficPercent: 10
    scaleTarget: 5
    batcher: {maxBatchSize: 16, maxLatency: 500}
    nodeSelector: {disk: ssd}
    model:
      modelFormat: {name: onnx, version: "1"}
      storageUri: gs://models/digits
      runtime: kserve-tritonserver
      protocolVersion: v2
      resources:
        limits: {cpu: 500m, memory: 1Gi, nvidia.com/gpu: 1}
        requests: {cpu: 0.1}
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: forest}
spec: {predictor: {sklearn: {storageUri: "gs://other/forest"}}}
---
apiVersion: serving.kserve.io/v1alpha1
kind: InferenceGraph
metadata: {name: graph}
---
apiVersion: serving.kserve.io/v1alpha1
kind: ClusterServingRuntime
metadata: {name: mine}
spec: {supportedModelFormats: [{name: sklearn, version: "1"}, {name: sklearn}, {name: pmml}], containers: [{image: x}]}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: own}
spec: {predictor: {containers: [{image: "registry/own:1", args: [--verbose], ports: [{containerPort: 9000}], env: [{name: A, value: b}, {name: C, valueFrom: {secretKeyRef: {}}}]}]}}
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: llm}
spec: {predictor: {model: {modelFormat: {name: huggingface}, storageUri: "hf://a/b"}}}
`

func TestKServe(t *testing.T) {
	models := place(t, map[string]string{"digits/1/model.onnx": "ONNX"})
	dir := place(t, map[string]string{"a.yaml": kserveText})
	im := read(t, Options{Files: map[string]string{"gs://models": models, "gs://mod": "/nowhere"}},
		filepath.Join(dir, "a.yaml"))
	functions := write(t, im)
	if im.Count(Ready) != 1 || im.Count(Unfinished) != 2 || im.Count(Refused) != 2 || im.Count(Described) != 1 ||
		im.Ignored["Secret"] != 1 {
		t.Fatal(describe(im))
	}
	im.Models[0].fates(t, map[string]string{
		"transformer":                    "not kept: calls no other program",
		"predictor.canaryTrafficPercent": "changed: com.openfaas.infer.canary: 10", "predictor.scaleTarget": "not kept: objective",
		"predictor.batcher.maxLatency": "not kept: objective", "metadata.namespace": "not kept: --namespace",
		"metadata.labels.app.kubernetes.io/name": "not kept: other programs", "metadata.annotations.com.my.org/owner": "kept: annotation",
	})
	f := functions["digits"]
	a, l := annotations(f), *f.Labels
	if a["com.openfaas.infer.max-batch"] != "16" || a["com.openfaas.infer.device"] != "cuda" || l["com.openfaas.scale.min"] != "1" || l["com.openfaas.scale.max"] != "4" ||
		l["team"] != "vision" || f.Limits.CPU != "500m" || f.Limits.Memory != "1Gi" ||
		f.Requests.CPU != "0.1" ||
		(*f.Constraints)[0] != "disk=ssd" {
		t.Errorf("%v %v %+v %+v", a, l, f.Limits, f)
	}
	forest := im.Models[1]
	if forest.State != Unfinished || !strings.Contains(forest.Steps[0], "--files gs://other/forest=DIR") {
		t.Error(describe(im))
	}
	own := functions["own"]
	if own.Image != "registry/own:1" || own.Environment["A"] != "b" || own.Annotations != nil {
		t.Errorf("%+v", own)
	}
}

// A file of 1,000 documents becomes 1,000 functions.
func TestManyDocuments(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text,
			"---\napiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: m%d}\nspec: {predictor: "+
				"{sklearn: {storageUri: \"gs://a/%d\"}}}\n", i, i)
	}
	dir := place(t, map[string]string{"a.yaml": text.String()})
	if im := read(t, Options{}, filepath.Join(dir, "a.yaml")); len(write(t, im)) != 1000 {
		t.Error(len(im.Models))
	}
}

// A path in a URI never leads out of the directory that stands for it.
func TestFiles(t *testing.T) {
	im := &Import{options: Options{Files: map[string]string{"gs://a": "/x", "gs://a/b": "/y"}}}
	for uri, want := range map[string]string{
		"gs://a/b/c": "/y/c", "gs://a/c": "/x/c", "gs://a": "/x", "gs://ab": "", "gs://a/../../etc": "", "file:///m": "",
	} {
		if got, ok := im.local(uri); got != want || ok != (want != "") {
			t.Errorf("%s is %q, %v", uri, got, ok)
		}
	}
}

func TestSeldon(t *testing.T) {
	dir := place(t, map[string]string{
		"list.json": `{"apiVersion": "v1", "kind": "List", "items": [
			{"apiVersion": "mlops.seldon.io/v1alpha1", "kind": "Model", "metadata": {"name": "twice"}, "spec": {"storageUri": "gs://m/twice", "requirements": ["mlserver", "python"], "memory": "100Ki", "replicas": 2, "server": "s"}},
			{"apiVersion": "mlops.seldon.io/v1alpha1", "kind": "Model", "metadata": {"name": "why"}, "spec": {"storageUri": "gs://m/why", "explainer": {"type": "anchor_tabular", "modelRef": "twice"}}},
			{"apiVersion": "mlops.seldon.io/v1alpha1", "kind": "Pipeline", "metadata": {"name": "p"}}]}`,
		"twice/model-settings.json": `{"name": "x", "implementation": "runtime.Twice", "inputs": [{}], "outputs": [{}]}`, "twice/runtime.py": "",
	})
	im := read(t, Options{Files: map[string]string{"gs://m": dir}}, filepath.Join(dir, "list.json"))
	f := write(t, im)["twice"]
	if im.Count(Ready) != 1 || im.Count(Refused) != 2 || (*f.Labels)["com.openfaas.scale.min"] != "2" {
		t.Fatal(describe(im))
	}
	im.Models[0].fates(t, map[string]string{"limits.memory": "not kept: refuses it", "server": "not kept: of its own"})
}
