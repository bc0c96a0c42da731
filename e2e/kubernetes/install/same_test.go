package install

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// onlyHelm is an annotation that only Helm reads.
const onlyHelm = "helm.sh/resource-policy"

// ofInstallation are labels with which each way to install says what it has installed.
var ofInstallation = []string{
	"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart",
}

// The chart and the manifests have the same objects, without options and with all of them.
func TestSame(t *testing.T) {
	for _, test := range []struct {
		name                   string
		options, files, values []string
	}{
		{name: "plain", options: []string{"namespaces"}},
		{name: "all but GPUs", options: without(options, "gpu"), values: []string{
			"gateway.enabled=true", "nats.enabled=true", "prometheus.enabled=true", "dashboard.enabled=true", "builder.enabled=true",
			"builder.base=registry.example.com/faas-infer/base:latest", "functions.allNamespaces=true", "defaultDeny=true", "functions.manageNamespaces=true", "copies.enabled=true", "copies.generateKey=false", "nats.credentialsSecret=nats-auth",
		}},
		{name: "GPUs", options: []string{"namespaces", "all-namespaces", "gpu"}, files: []string{"node-agent.yaml"}, values: []string{"functions.allNamespaces=true", "nodeAgent.enabled=true", "functions.podSecurity=privileged"}},
		{name: "device plugin", options: []string{"namespaces", "gpu", "gpu-device-plugin"}, files: []string{"node-agent.yaml"}, values: []string{
			"nodeAgent.enabled=true", "functions.podSecurity=privileged", "nodeAgent.devicePluginGPUs=1",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			manifests, chart := read(t, kustomized(t, test.options, test.files)), read(t, rendered(t, test.values...))
			// Helm does not make the namespace that it installs to.
			delete(manifests, "Namespace /openfaas")
			for _, key := range slices.Sorted(maps.Keys(manifests)) {
				if _, ok := chart[key]; !ok {
					t.Errorf("the chart lacks %s", key)
				}
			}
			maps.DeleteFunc(chart, func(_ string, o metav1.Unstructured) bool { return o.GetAnnotations()["helm.sh/hook"] != "" })
			for _, key := range slices.Sorted(maps.Keys(chart)) {
				object, ok := manifests[key]
				if !ok {
					t.Errorf("the manifests lack %s", key)
					continue
				}
				for _, d := range differences(plain(object), plain(chart[key]), key) {
					t.Error(d)
				}
			}
		})
	}
}

// plain returns an object without the parts that only Helm reads, and the labels of its installation.
func plain(o metav1.Unstructured) any {
	for _, path := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
		labels, ok, _ := metav1.NestedStringMap(o.Object, path...)
		if !ok {
			continue
		}
		maps.DeleteFunc(labels, func(key, _ string) bool { return slices.Contains(ofInstallation, key) })
		_ = metav1.SetNestedStringMap(o.Object, labels, path...) // It was a map of strings.
	}
	annotations := o.GetAnnotations()
	delete(annotations, onlyHelm)
	if len(annotations) == 0 {
		annotations = nil
	}
	o.SetAnnotations(annotations)
	return o.Object
}

// differences lists where two values differ.
func differences(manifests, chart any, at string) (all []string) {
	switch m := manifests.(type) {
	case map[string]any:
		c, _ := chart.(map[string]any)
		names := slices.Sorted(maps.Keys(m))
		for name := range c {
			if _, ok := m[name]; !ok {
				names = append(names, name)
			}
		}
		for _, name := range names {
			all = append(all, differences(m[name], c[name], at+"."+name)...)
		}
		return all
	case []any:
		if c, ok := chart.([]any); ok && len(c) == len(m) {
			for i := range m {
				all = append(all, differences(m[i], c[i], fmt.Sprintf("%s[%d]", at, i))...)
			}
			return all
		}
	}
	if reflect.DeepEqual(manifests, chart) {
		return nil
	}
	return []string{fmt.Sprintf("%s: the manifests have %v, the chart %v", at, manifests, chart)}
}

// Other values of the chart have their effect.
func TestValues(t *testing.T) {
	text := rendered(t, "image.repository=r.example.com/p", "image.tag=v2", "replicas=3", "nats.url=nats://n.example.com:4333", "gateway.enabled=true",
		"functions.namespace=models", "extraArgs={--log-level=debug,--node-selector=pool=models}", "imagePullSecrets={regcred}", "networkPolicies=false")
	for _, want := range []string{"r.example.com/p:v2", "replicas: 3", "--nats=nats://n.example.com:4333", `value: "n.example.com"`, `value: "4333"`, "name: models", `"--log-level=debug"`, "{name: regcred}"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s", want)
		}
	}
	for _, not := range []string{"openfaas-fn", "kind: NetworkPolicy", "faas-infer-namespaces"} {
		if strings.Contains(text, not) {
			t.Errorf("there is %s", not)
		}
	}
	if _, err := helm(t, "builder.enabled=true"); err == nil || !strings.Contains(err.Error(), "builder.base") {
		t.Errorf("a builder without a base: %v", err)
	}
}

// A release with any name in any namespace finds its own objects: the replicas each other through
// their Service, the gateway and Prometheus the provider, and all of them their roles.
func TestAnyRelease(t *testing.T) {
	everything := []string{"gateway.enabled=true", "nats.enabled=true", "prometheus.enabled=true", "dashboard.enabled=true", "functions.allNamespaces=true", "functions.namespace=models"}
	for _, name := range []string{"x", strings.Repeat("x", 53)} { // Helm allows no longer name.
		text, err := helmAs(t, name, "serving", everything...)
		if err != nil {
			t.Fatal(err)
		}
		all := read(t, text)
		for key, object := range all {
			kind, limit := object.GetKind(), 253
			if kind == "Service" || kind == "Deployment" || kind == "StatefulSet" {
				limit = 63
			}
			if len(object.GetName()) > limit {
				t.Errorf("%s has a name of %d characters", key, len(object.GetName()))
			}
			if kind == "RoleBinding" || kind == "ClusterRoleBinding" {
				role, _, _ := metav1.NestedString(object.Object, "roleRef", "kind")
				of, _, _ := metav1.NestedString(object.Object, "roleRef", "name")
				namespace := ""
				if role == "Role" {
					namespace = object.GetNamespace()
				}
				if _, ok := all[role+" "+namespace+"/"+of]; !ok {
					t.Errorf("%s: there is no %s %s", key, role, of)
				}
			}
		}
		if _, ok := all["Service serving/"+name]; !ok {
			t.Errorf("%s: the provider has no Service", name)
		}
		for _, want := range []string{"--service=" + name + "\n", "--functions-namespace=models\n", "{name: function_namespace, value: models}",
			`value: "http://` + name + `.serving.svc.cluster.local:8081/"`, name + "-replicas.serving.svc", "--nats=nats://nats.serving.svc.cluster.local:4222"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: there is no %s", name, want)
			}
		}
		for _, not := range []string{"openfaas-fn", "namespace: openfaas\n", ".openfaas.svc"} {
			if i := strings.Index(text, not); i >= 0 {
				t.Errorf("%s: there is %s: %s", name, not, text[max(0, i-80):min(len(text), i+80)])
			}
		}
	}
	for _, bad := range []string{"1st", "a.b"} {
		if _, err := helmAs(t, bad, "serving"); err == nil || !strings.Contains(err.Error(), "the name of a Service") {
			t.Errorf("a release named %q: %v", bad, err)
		}
	}
}
