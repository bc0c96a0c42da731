package install

import (
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// recommended are the labels that Kubernetes and Helm recommend for every object, and ofPods those of pods.
var (
	recommended = append([]string{"app.kubernetes.io/version", "app.kubernetes.io/managed-by",
		"helm.sh/chart"}, ofPods...)
	ofPods = []string{
		"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component",
		"app.kubernetes.io/part-of",
	}
)

// lacking lists the labels of want that are missing or empty.
func lacking(labels map[string]string, want []string) (missing []string) {
	for _, key := range want {
		if labels[key] == "" {
			missing = append(missing, key)
		}
	}
	return missing
}

// Every object and every pod of the chart has the recommended labels, and those that the values add.
func TestLabels(t *testing.T) {
	all := read(t, rendered(t, append([]string{"tls.enabled=true", "tls.certManager.enabled=true",
		"commonLabels.team=a", `commonAnnotations.example\.com/owner=b`}, everything...)...))
	for key, o := range all {
		if missing := lacking(o.GetLabels(), append(recommended, "team")); len(missing) > 0 {
			t.Errorf("%s lacks the labels %v", key, missing)
		}
		if o.GetAnnotations()["example.com/owner"] != "b" {
			t.Errorf("%s has the annotations %v", key, o.GetAnnotations())
		}
	}
	for key, pod := range pods(t, all) {
		labels, _, _ := metav1.NestedStringMap(pod, "metadata", "labels")
		if missing := lacking(labels, append(ofPods, "team")); len(missing) > 0 {
			t.Errorf("the pods of %s lack the labels %v", key, missing)
		}
	}
	// Labels of the values cannot change what selectors find.
	all = read(t, rendered(t, "commonLabels.app\\.kubernetes\\.io/component=x",
		"podLabels.app\\.kubernetes\\.io/name=x"))
	labels, _, _ := metav1.NestedStringMap(all["Deployment openfaas/faas-infer"].Object, "spec", "template",
		"metadata", "labels")
	if labels["app.kubernetes.io/component"] != "provider" || labels["app.kubernetes.io/name"] != "faas-infer" {
		t.Errorf("the provider's pods have the labels %v", labels)
	}
	// A build number in the chart's version is no label's value.
	out, err := exec.CommandContext(t.Context(), program(t), "package", filepath.Join(root, "yaml", "chart",
		"faas-infer"), "--version", "1.2.3+build.4",
		"--app-version", "v1.2.3+build.4", "--destination", t.TempDir()).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	file := strings.TrimSpace(string(out[strings.LastIndex(string(out), "/tmp/"):]))
	for key, o := range read(t, renderedOf(t, file)) {
		labels := o.GetLabels()
		if labels["helm.sh/chart"] != "faas-infer-1.2.3_build.4" ||
			labels["app.kubernetes.io/version"] != "v1.2.3_build.4" {
			t.Errorf("%s has the labels %v", key, labels)
		}
	}
}

// renderedOf returns Helm's output for a chart in a file or a directory.
func renderedOf(t *testing.T, chart string, values ...string) string {
	t.Helper()
	args := []string{"template", "faas-infer", chart, "--namespace", "openfaas", "--kube-version",
		testcluster.Version}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	out, err := exec.CommandContext(t.Context(), program(t), args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// earlier is the chart of version 0.1.0, as it was before the recommended labels.
const earlier = "../testdata/faas-infer-0.1.0.tgz"

// earlierValues are values of chart 0.1 that turn on all that it can install, with images as it named them.
var earlierValues = []string{
	"gateway.enabled=true", "nats.enabled=true", "prometheus.enabled=true", "dashboard.enabled=true",
	"builder.enabled=true",
	"builder.base=registry.example.com/base", "functions.allNamespaces=true",
	"functions.manageNamespaces=true", "nodeAgent.enabled=true",
	"functions.podSecurity=privileged", "functions.newNamespaces.podSecurity=privileged",
	"copies.enabled=true", "prometheusRule.enabled=true",
	"image.repository=r.example.com/faas-infer/provider", "image.tag=v1", "imagePullSecrets={regcred}",
	"gateway.image=r.example.com/gateway:1", "nats.image=r.example.com/nats:2",
	"prometheus.image=r.example.com/prometheus:v3",
}

// An upgrade from chart 0.1 with its values keeps every object by its name, and changes nothing that Kubernetes
// forbids to change.
func TestUpgradeKeepsSelectors(t *testing.T) {
	before, after := read(t, renderedOf(t, earlier, earlierValues...)), read(t, rendered(t, earlierValues...))
	immutable := map[string][][]string{
		"Deployment": {{"spec", "selector"}}, "DaemonSet": {{"spec", "selector"}},
		"StatefulSet": {{"spec", "selector"}, {"spec", "serviceName"}, {"spec", "volumeClaimTemplates"}},
		"RoleBinding": {{"roleRef"}}, "ClusterRoleBinding": {{"roleRef"}},
		"Service":               {{"spec", "clusterIP"}},
		"PersistentVolumeClaim": {{"spec"}},
	}
	for key, old := range before {
		o, ok := after[key]
		if !ok {
			t.Errorf("%s is gone", key)
			continue
		}
		for _, path := range immutable[o.GetKind()] {
			was, _, _ := metav1.NestedFieldCopy(old.Object, path...)
			is, _, _ := metav1.NestedFieldCopy(o.Object, path...)
			if !reflect.DeepEqual(was, is) {
				t.Errorf("%s: %v was %v, is %v", key, path, was, is)
			}
		}
	}
	was, is := pods(t, before), pods(t, after)
	for key := range was {
		for _, what := range [][]string{{"spec", "serviceAccountName"}, {"spec", "imagePullSecrets"}} {
			a, _, _ := metav1.NestedFieldCopy(was[key], what...)
			b, _, _ := metav1.NestedFieldCopy(is[key], what...)
			if !reflect.DeepEqual(a, b) {
				t.Errorf("%s: %v was %v, is %v", key, what, a, b)
			}
		}
		a, _, _ := metav1.NestedSlice(was[key], "spec", "volumes")
		b, _, _ := metav1.NestedSlice(is[key], "spec", "volumes")
		if b = slices.DeleteFunc(b, isOptional(a)); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: the volumes were %v, are %v", key, a, b)
		}
		if a, b := images(was[key]), images(is[key]); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: the images were %v, are %v", key, a, b)
		}
	}
}

// isOptional reports whether a volume is none of those before, and is of a secret that need not exist.
func isOptional(before []any) func(volume any) bool {
	return func(volume any) bool {
		optional, _, _ := metav1.NestedBool(volume.(map[string]any), "secret", "optional")
		return optional && !slices.ContainsFunc(before, func(b any) bool { return reflect.DeepEqual(b, volume) })
	}
}

// images lists the images of a pod's containers.
func images(pod map[string]any) (names []string) {
	containers, _, _ := metav1.NestedSlice(pod, "spec", "containers")
	for _, c := range containers {
		names = append(names, c.(map[string]any)["image"].(string))
	}
	return names
}
