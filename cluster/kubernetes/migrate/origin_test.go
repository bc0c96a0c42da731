package migrate

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// figlet is a Deployment as faas-netes leaves it in a cluster.
const figlet = `
metadata:
  name: figlet
  namespace: openfaas-fn
  uid: u1
  labels: {faas_function: figlet}
  annotations: {prometheus.io.scrape: "false", topic: cron, deployment.kubernetes.io/revision: "3"}
spec:
  replicas: 2
  selector: {matchLabels: {faas_function: figlet}}
  template:
    metadata:
      labels: {faas_function: figlet, uid: "471", team: blue, com.openfaas.scale.min: "2", com.openfaas.scale.max: "9"}
      annotations: {prometheus.io.scrape: "false", topic: cron}
    spec:
      nodeSelector: {disktype: ssd}
      imagePullSecrets: [{name: hub}]
      containers:
        - name: figlet
          image: ghcr.io/openfaas/figlet:latest
          ports: [{name: http, containerPort: 8080}]
          env: [{name: fprocess, value: figlet -w 80}, {name: write_timeout, value: 1m}]
          resources: {limits: {memory: 256Mi, cpu: 500m}, requests: {cpu: 10m}}
          livenessProbe: {exec: {command: [cat, /tmp/.lock]}}
          readinessProbe: {httpGet: {path: /_/health, port: 8080}}
          securityContext: {readOnlyRootFilesystem: true}
          volumeMounts:
            - {name: figlet-projected-secrets, readOnly: true, mountPath: /var/openfaas/secrets}
            - {name: temp, mountPath: /tmp}
      volumes:
        - name: figlet-projected-secrets
          projected: {sources: [{secret: {name: token, items: [{key: token, path: token}]}}, {secret: {name: api-key}}]}
        - {name: temp, emptyDir: {}}
`

// deployment reads a Deployment after some replacements of its text.
func deployment(t *testing.T, replace ...string) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := yaml.UnmarshalStrict([]byte(strings.NewReplacer(replace...).Replace(figlet)), d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Everything that a user gave the function comes over, and nothing that faas-netes added.
func TestDeployment(t *testing.T) {
	o := fromDeployment(deployment(t))
	want := v1alpha1.FunctionSpec{
		Image: "ghcr.io/openfaas/figlet:latest", Process: "figlet -w 80", Environment: map[string]string{"write_timeout": "1m"},
		Labels:      map[string]string{"team": "blue", "com.openfaas.scale.min": "2", "com.openfaas.scale.max": "9"},
		Annotations: map[string]string{"topic": "cron"}, Constraints: []string{"disktype=ssd"}, Secrets: []string{"api-key", "hub", "token"},
		Limits: &v1alpha1.Resources{CPU: "500m", Memory: "256Mi"}, Requests: &v1alpha1.Resources{CPU: "10m"}, ReadOnlyRootFilesystem: true,
	}
	if !reflect.DeepEqual(o.Spec, want) || o.Err != nil || len(o.Lost) > 0 || o.Name != "figlet" || o.Source != FromDeployment {
		text, _ := json.Marshal(o.Spec)
		t.Errorf("%s, %v, lost %q", text, o.Err, o.Lost)
	}
}

// What has no field here is named.
func TestDeploymentLoses(t *testing.T) {
	for lost, replace := range map[string][]string{
		"the container istio-proxy":                      {"      volumes:\n", "        - {name: istio-proxy, image: i}\n      volumes:\n"},
		"the init container wait":                        {"      volumes:\n", "      initContainers: [{name: wait, image: i}]\n      volumes:\n"},
		"the volume temp":                                {"emptyDir: {}", "emptyDir: {medium: Memory}"},
		"the volume data":                                {"      volumes:\n", "      volumes:\n        - {name: data, hostPath: {path: /data}}\n"},
		"the variable key, whose value comes from":       {"{name: fprocess, value: figlet -w 80}", "{name: key, valueFrom: {fieldRef: {fieldPath: metadata.name}}}"},
		"the meaning of $(…) in the variable write":      {"value: 1m", "value: $(A)"},
		"variables from ConfigMaps":                      {"env: [", "envFrom: [{configMapRef: {name: c}}]\n          env: ["},
		"the container's command":                        {"env: [", "args: [--x]\n          env: ["},
		"port 9000":                                      {"containerPort: 8080", "containerPort: 9000"},
		"the liveness probe":                             {"exec: {command: [cat, /tmp/.lock]}", "tcpSocket: {port: 8080}"},
		"limits of ephemeral-storage":                    {"memory: 256Mi", "ephemeral-storage: 1Gi"},
		"tolerations: a profile (com.openfaas.profile)":  {"      volumes:\n", "      tolerations: [{operator: Exists}]\n      volumes:\n"},
		"the user ID: a profile (com.openfaas.profile)":  {"      volumes:\n", "      securityContext: {runAsUser: 1}\n      volumes:\n"},
		"secrets in /run/secrets: they are in /var/open": {"/var/openfaas/secrets", "/run/secrets"},
	} {
		if o := fromDeployment(deployment(t, replace...)); len(o.Lost) != 1 || !strings.HasPrefix(o.Lost[0], lost) || o.Err != nil {
			t.Errorf("want %q, got %q, %v", lost, o.Lost, o.Err)
		}
	}
	o := fromDeployment(deployment(t, "topic: cron", "com.openfaas.profile: gpu", "      volumes:\n", "      tolerations: [{operator: Exists}]\n      volumes:\n"))
	if len(o.Lost) > 0 || o.Spec.Annotations["com.openfaas.profile"] != "gpu" {
		t.Errorf("with a profile: %q, %v", o.Lost, o.Spec.Annotations)
	}
	o = fromDeployment(deployment(t, "path: /_/health", "path: /ready", "      volumes:\n", "      serviceAccountName: reader\n      volumes:\n"))
	if a := o.Spec.Annotations; a["com.openfaas.ready.http.path"] != "/ready" || a["com.openfaas.serviceaccount"] != "reader" || len(o.Lost) > 0 {
		t.Errorf("%v, %q", a, o.Lost)
	}
}

func TestDeploymentOfOthers(t *testing.T) {
	for why, replace := range map[string][]string{
		"another tool has made this one": {"labels: {faas_function: figlet}\n", "labels: {faas_function: other}\n"},
		"names no image":                 {"image: ghcr.io/openfaas/figlet:latest", `image: ""`},
		"constraints":                    {"disktype: ssd", `"not a label!": x`},
	} {
		if o := fromDeployment(deployment(t, replace...)); o.Err == nil || !strings.Contains(o.Err.Error(), why) {
			t.Errorf("want %q, got %v", why, o.Err)
		}
	}
	if o := fromDeployment(&appsv1.Deployment{}); o.Err == nil {
		t.Error("a Deployment without containers is a function")
	}
}

// object reads a Function of openfaas.com.
func anObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte("apiVersion: openfaas.com/v1\nkind: Function\n"+text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

const nodeinfo = `
metadata: {name: nodeinfo-object, namespace: openfaas-fn}
spec:
  name: nodeinfo
  handler: node main.js
  image: ghcr.io/openfaas/nodeinfo:latest
  labels: {com.openfaas.scale.min: "2"}
  annotations: {topic: cron}
  environment: {write_debug: "true"}
  limits: {cpu: 200m, memory: 256Mi, nvidia.com/gpu: "1"}
  requests: {cpu: 10m}
  constraints: [pool=a]
  secrets: [key]
  readOnlyRootFilesystem: true
`

func TestObject(t *testing.T) {
	o := fromObject(anObject(t, nodeinfo))
	want := v1alpha1.FunctionSpec{Image: "ghcr.io/openfaas/nodeinfo:latest", Process: "node main.js", Environment: map[string]string{"write_debug": "true"},
		Labels: map[string]string{"com.openfaas.scale.min": "2"}, Annotations: map[string]string{"topic": "cron"}, Constraints: []string{"pool=a"}, Secrets: []string{"key"},
		Limits: &v1alpha1.Resources{CPU: "200m", Memory: "256Mi", GPU: "1"}, Requests: &v1alpha1.Resources{CPU: "10m"}, ReadOnlyRootFilesystem: true}
	if !reflect.DeepEqual(o.Spec, want) || o.Err != nil || o.Name != "nodeinfo" || len(o.Lost) > 0 {
		t.Errorf("%+v", o)
	}
	o = fromObject(anObject(t, nodeinfo+"  replicas: 3\n  scale: {max: 3}\n"))
	if !slices.Equal(o.Lost, []string{"the field replicas", "the field scale"}) {
		t.Errorf("lost %q", o.Lost)
	}
	for _, wrong := range []string{"metadata: {name: a}\nspec: {image: [1]}", "metadata: {name: a}\nspec: {}", "metadata: {name: a}\nspec: 5", "metadata: {name: a}\nspec: {image: i, limits: {cpu: -1}}"} {
		if o := fromObject(anObject(t, wrong)); o.Err == nil || o.Name != "a" {
			t.Errorf("%s: %+v", wrong, o)
		}
	}
}

// No Deployment makes the reader fail.
func FuzzDeployment(f *testing.F) {
	f.Add(figlet)
	f.Add("spec: {template: {spec: {containers: [{}], volumes: [{name: a}]}}}")
	f.Fuzz(func(t *testing.T, text string) {
		d := &appsv1.Deployment{}
		if yaml.Unmarshal([]byte(text), d) != nil {
			return
		}
		if o := fromDeployment(d); o.Err == nil && o.Spec.Image == "" {
			t.Errorf("a function without an image: %+v", o)
		}
	})
}
