package control

import (
	"maps"
	"regexp"
	"testing"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/annotation"
)

// paperKey is an annotation that a paper reads.
const paperKey = "com.openfaas.infer.of-a-paper"

func init() { annotation.Register(annotation.Key{Name: paperKey}) }

// deployed is a function with every field set.
func deployed() types.FunctionDeployment {
	return types.FunctionDeployment{
		Service: "f", Namespace: "n", Image: "mnist:latest", EnvProcess: "cat",
		EnvVars: map[string]string{"A": "1", "B": "2"}, Secrets: []string{"s"},
		Labels:      &map[string]string{"team": "x", "com.openfaas.scale.min": "1"},
		Annotations: &map[string]string{"com.openfaas.slo.latency": "50ms", "topic": "t"},
		Limits:      &types.FunctionResources{Memory: "128Mi", CPU: "500m"},
	}
}

func of(d types.FunctionDeployment) string {
	return fingerprintOf(d, "bundle", "model", "secrets", "engine")
}

// with returns a copy of a map with one more entry.
func with(m *map[string]string, key, value string) *map[string]string {
	other := maps.Clone(*m)
	other[key] = value
	return &other
}

func TestWhatInstancesAreStartedBy(t *testing.T) {
	hex := regexp.MustCompile(`^[0-9a-f]{64}$`)
	first := of(deployed())
	if !hex.MatchString(first) || of(deployed()) != first {
		t.Fatalf("%q, then %q", first, of(deployed()))
	}
	seen := map[string]string{first: "as it was"}
	for name, change := range map[string]func(d *types.FunctionDeployment){
		"program":          func(d *types.FunctionDeployment) { d.EnvProcess = "env" },
		"variable":         func(d *types.FunctionDeployment) { d.EnvVars["A"] = "2" },
		"another variable": func(d *types.FunctionDeployment) { d.EnvVars["C"] = "1" },
		"secret":           func(d *types.FunctionDeployment) { d.Secrets = nil },
		"limit":            func(d *types.FunctionDeployment) { d.Limits.CPU = "1" },
		"label":            func(d *types.FunctionDeployment) { d.Labels = with(d.Labels, "team", "y") },
		"annotation":       func(d *types.FunctionDeployment) { d.Annotations = with(d.Annotations, "topic", "u") },
		"model":            func(d *types.FunctionDeployment) { d.Annotations = with(d.Annotations, annotation.InferModel, "m") },
		"largest batch":    func(d *types.FunctionDeployment) { d.Annotations = with(d.Annotations, annotation.InferMaxBatch, "4") },
		"name":             func(d *types.FunctionDeployment) { d.Service = "g" },
		"read-only":        func(d *types.FunctionDeployment) { d.ReadOnlyRootFilesystem = true },
	} {
		d := deployed()
		change(&d)
		got := of(d)
		if other, known := seen[got]; known {
			t.Errorf("with another %s it is as with another %s", name, other)
		}
		seen[got] = name
	}
	for i := range 4 {
		what := []string{"bundle", "model", "secrets", "engine"}
		what[i] += "'"
		got := fingerprintOf(deployed(), what[0], what[1], what[2], what[3])
		if other, known := seen[got]; known {
			t.Errorf("with %v it is as with another %s", what, other)
		}
		seen[got] = what[i]
	}
	if fingerprintOf(deployed(), "a", "bc", "", "") == fingerprintOf(deployed(), "ab", "c", "", "") {
		t.Error("what follows each other runs into one")
	}
}

// Changes of scaling and batching do not replace instances, nor does another name for the
// same image.
func TestWhatRunningInstancesStayFor(t *testing.T) {
	first := of(deployed())
	for name, change := range map[string]func(d *types.FunctionDeployment){
		"the image's name": func(d *types.FunctionDeployment) { d.Image = "mnist:1.0" },
		"how many":         func(d *types.FunctionDeployment) { d.Labels = with(d.Labels, "com.openfaas.scale.max", "9") },
		"the objective": func(d *types.FunctionDeployment) {
			d.Annotations = with(d.Annotations, "com.openfaas.slo.latency", "1s")
		},
		"how often again": func(d *types.FunctionDeployment) {
			d.Annotations = with(d.Annotations, "com.openfaas.retry.attempts", "3")
		},
		"the policy": func(d *types.FunctionDeployment) {
			d.Annotations = with(d.Annotations, annotation.InferPolicy, "infless")
		},
		"what a paper reads": func(d *types.FunctionDeployment) {
			d.Annotations = with(d.Annotations, paperKey, "small")
		},
		"who may call": func(d *types.FunctionDeployment) {
			d.Annotations = with(with(d.Annotations, annotation.InferAccess, "keys"), annotation.InferRate, "1/s")
		},
		"how long they idle": func(d *types.FunctionDeployment) {
			d.Annotations = with(d.Annotations, annotation.InferKeepAlive, "5m")
		},
	} {
		d := deployed()
		if change(&d); of(d) != first {
			t.Errorf("%s changes it", name)
		}
	}
	if deployed := deployed(); (*deployed.Labels)["com.openfaas.scale.min"] != "1" {
		t.Error("the deployment was changed")
	}
}

// No labels, an empty map and only ignored labels give the same fingerprint. The
// deployment's own labels do not change.
func TestNoLabels(t *testing.T) {
	var nothing map[string]string
	want := ""
	for i, labels := range []*map[string]string{nil, &nothing, {}, {"com.openfaas.scale.min": "1"}} {
		d := deployed()
		d.Labels = labels
		got := of(d)
		if i > 0 && got != want {
			t.Errorf("labels %v make another", labels)
		}
		if want = got; labels != nil && i == 3 && len(*labels) != 1 {
			t.Error("the deployment's labels were changed")
		}
	}
}
