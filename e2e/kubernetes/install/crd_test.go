package install

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// definition is the text of the custom resource definition.
func definition(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "yaml", "crd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// inGroup returns the definition in an API group of a test, in which the test may change it.
func inGroup(t *testing.T, group string) string {
	t.Helper()
	return strings.ReplaceAll(definition(t), "faas-infer.dev", group)
}

// define applies a definition and waits until the API server serves it.
func define(t *testing.T, text, group string) {
	t.Helper()
	kubectl(t, text, "apply", "--server-side", "--force-conflicts", "-f", "-")
	kubectl(t, "", "wait", "--for=condition=Established", "crd/functions."+group, "--timeout=60s")
}

// function returns a Function with a spec as JSON.
func function(group, version, name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":"Function","metadata":{"name":%q,"namespace":"default"},"spec":%s}`, group+"/"+version, name, spec)
}

// The API server refuses what can never work, with the sentence of the rule, and nothing that the
// provider accepts.
func TestRules(t *testing.T) {
	const group = "rules.example.com"
	define(t, inGroup(t, group), group)
	create := func(spec string) error {
		_, err := cluster.Kubectl(t.Context(), function(group, "v1alpha1", "x", spec), "create", "--dry-run=server", "-f", "-")
		return err
	}
	for spec, want := range map[string]string{
		`{"image":"i","limits":{"cpu":"-1"}}`:                                                      "must be a Kubernetes quantity above 0",
		`{"image":"i","limits":{"cpu":"0"}}`:                                                       "must be a Kubernetes quantity above 0",
		`{"image":"i","requests":{"memory":"128 MB"}}`:                                             "must be a Kubernetes quantity above 0",
		`{"image":"i","limits":{"gpu":"0.5"}}`:                                                     "must be a whole number of GPUs",
		`{"image":"i","annotations":{"com.openfaas.slo.latency":"0"}}`:                             "com.openfaas.slo.latency must be a time above 0",
		`{"image":"i","annotations":{"com.openfaas.slo.latency":"0s"}}`:                            "com.openfaas.slo.latency must be a time above 0",
		`{"image":"i","annotations":{"com.openfaas.slo.latency":"0h0.0ms"}}`:                       "com.openfaas.slo.latency must be a time above 0",
		`{"image":"i","annotations":{"com.openfaas.slo.latency":"-50ms"}}`:                         "com.openfaas.slo.latency must be a time above 0",
		`{"image":"i","labels":{"com.openfaas.scale.min":"5","com.openfaas.scale.max":"3"}}`:       "com.openfaas.scale.min must not be above com.openfaas.scale.max",
		`{"image":"i","annotations":{"com.openfaas.scale.min":"10","com.openfaas.scale.max":"9"}}`: "com.openfaas.scale.min must not be above com.openfaas.scale.max",
		`{"image":"i","replicas":-1}`:                                                              "spec.replicas",
		`{"image":""}`:                                                                             "spec.image",
	} {
		if err := create(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	for _, spec := range []string{
		`{"image":"i"}`,
		`{"image":"i","limits":{"cpu":"0.5","memory":"1.5Gi","gpu":"0"},"requests":{"cpu":"250m","memory":"64M","gpu":""}}`,
		`{"image":"i","limits":{"cpu":"","memory":"1e9"}}`,
		`{"image":"i","labels":{"com.openfaas.scale.min":"2","com.openfaas.scale.max":"2"}}`,
		`{"image":"i","labels":{"com.openfaas.scale.min":"5","com.openfaas.scale.max":"0"}}`,
		`{"image":"i","labels":{"com.openfaas.scale.min":"five","com.openfaas.scale.max":"3"}}`, // The condition Accepted says why not.
		`{"image":"i","annotations":{"com.openfaas.slo.latency":"0.05s"}}`,
		`{"image":"i","annotations":{"com.openfaas.slo.latency":"1m0s"}}`,
		`{"image":"i","annotations":{"com.openfaas.slo.latency":"soon"}}`,
	} {
		if err := create(spec); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

// A function from before the rules, which they would refuse, keeps its status up to date and can
// be mended.
func TestRulesForOldFunctions(t *testing.T) {
	const group = "older.example.com"
	var crd map[string]any
	if err := yaml.Unmarshal([]byte(inGroup(t, group)), &crd); err != nil {
		t.Fatal(err)
	}
	// The scale subresource needs the number of instances that it shows.
	of, _, _ := metav1.NestedSlice(crd, "spec", "versions")
	path, _, _ := metav1.NestedString(of[0].(map[string]any), "subresources", "scale", "specReplicasPath")
	number := strings.TrimPrefix(path, ".spec.")
	dropRules(crd)
	old, err := json.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	define(t, string(old), group)
	kubectl(t, function(group, "v1alpha1", "old", `{"image":"i",`+strconv.Quote(number)+`:1,"limits":{"cpu":"0"},"labels":{"com.openfaas.scale.min":"5","com.openfaas.scale.max":"3"}}`), "create", "-f", "-")
	define(t, inGroup(t, group), group)
	resource := "functions." + group + "/old"
	await(t, "the rules hold", func(ctx context.Context) error {
		_, err := cluster.Kubectl(ctx, function(group, "v1alpha1", "new", `{"image":"i","limits":{"cpu":"0"}}`), "create", "--dry-run=server", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), "above 0") {
			return fmt.Errorf("a new function: %w", err)
		}
		return nil
	})
	kubectl(t, "", "patch", resource, "--subresource=status", "--type=merge", "-p", `{"status":{"replicas":1,"availableReplicas":1,"selector":"faas_function=old"}}`)
	kubectl(t, "", "label", resource, "team=a")
	kubectl(t, "", "patch", resource, "--type=merge", "-p", `{"spec":{"limits":{"cpu":"1"}}}`)
	if got := kubectl(t, "", "get", resource, "-o", "jsonpath={.status.availableReplicas} {.spec.limits.cpu}"); got != "1 1" {
		t.Errorf("it has %q", got)
	}
	// Autoscalers and budgets find its pods.
	if got := kubectl(t, "", "get", "--raw", "/apis/"+group+"/v1alpha1/namespaces/default/functions/old/scale"); !strings.Contains(got, `"selector":"faas_function=old"`) {
		t.Errorf("its scale is %s", got)
	}
}

// dropRules removes the rules in CEL from a definition.
func dropRules(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "x-kubernetes-validations")
		for _, inner := range v {
			dropRules(inner)
		}
	case []any:
		for _, inner := range v {
			dropRules(inner)
		}
	}
}

// The steps of docs/kubernetes/operating.md, "Versions of the API", lead from v1alpha1 to v1beta1: no step
// loses a function or stops a client that uses a version that is served.
func TestNextVersion(t *testing.T) {
	const group = "next.example.com"
	resource := func(version string) string { return "functions." + version + "." + group }
	// edit applies the definition with its first version's copies.
	edit := func(versions ...string) error {
		var crd map[string]any
		if err := yaml.Unmarshal([]byte(inGroup(t, group)), &crd); err != nil {
			t.Fatal(err)
		}
		spec := crd["spec"].(map[string]any)
		first := spec["versions"].([]any)[0].(map[string]any)
		var all []any
		for _, v := range versions {
			name, how, _ := strings.Cut(v, " ")
			one := map[string]any{}
			for key, value := range first {
				one[key] = value
			}
			one["name"], one["served"], one["storage"] = name, !strings.Contains(how, "unserved"), strings.Contains(how, "stored")
			all = append(all, one)
		}
		spec["versions"] = all
		text, err := json.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		_, err = cluster.Kubectl(t.Context(), string(text), "apply", "--server-side", "--force-conflicts", "-f", "-")
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const spec = `{"image":"i","replicas":2,"annotations":{"com.openfaas.slo.latency":"50ms"}}`
	images := func(version string) func(context.Context) error {
		return func(ctx context.Context) error {
			got, err := cluster.Kubectl(ctx, "", "get", resource(version), "-n", "default", "-o", `jsonpath={range .items[*]}{.apiVersion} {.metadata.name} {.spec.annotations.com\.openfaas\.slo\.latency},{end}`)
			if err == nil && !slices.Equal(strings.Split(got, ","), []string{group + "/" + version + " a 50ms", group + "/" + version + " b 50ms", ""}) {
				err = fmt.Errorf("there is %q", got)
			}
			return err
		}
	}
	must(edit("v1alpha1 stored"))
	kubectl(t, "", "wait", "--for=condition=Established", "crd/functions."+group, "--timeout=60s")
	kubectl(t, function(group, "v1alpha1", "a", spec), "create", "-f", "-")
	// 1. Both versions are served, with one schema. No conversion is needed.
	must(edit("v1alpha1 stored", "v1beta1"))
	await(t, "a function in the new version", func(ctx context.Context) error {
		_, err := cluster.Kubectl(ctx, function(group, "v1beta1", "b", spec), "apply", "-f", "-")
		return err
	})
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		await(t, "all functions in "+version, images(version))
	}
	// 2. The new version is stored, and every function is written once.
	must(edit("v1alpha1", "v1beta1 stored"))
	if err := edit("v1beta1 stored"); err == nil || !strings.Contains(err.Error(), "storedVersions") {
		t.Errorf("the old version can be removed while functions are stored in it: %v", err)
	}
	for _, name := range []string{"a", "b"} {
		text := kubectl(t, "", "get", resource("v1beta1"), name, "-n", "default", "-o", "json")
		kubectl(t, text, "replace", "-f", "-")
	}
	kubectl(t, "", "patch", "crd", "functions."+group, "--subresource=status", "--type=merge", "-p", `{"status":{"storedVersions":["v1beta1"]}}`)
	await(t, "the old version is still served", images("v1alpha1"))
	// 3. The old version is served no more, and then removed.
	must(edit("v1alpha1 unserved", "v1beta1 stored"))
	must(edit("v1beta1 stored"))
	await(t, "the new version remains", images("v1beta1"))
	await(t, "the old version is gone", func(ctx context.Context) error {
		if out, err := cluster.Kubectl(ctx, "", "get", "--raw", "/apis/"+group+"/v1alpha1/functions"); err == nil {
			return fmt.Errorf("it answers %s", out)
		}
		return nil
	})
}
