package kubernetes_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

const echo = `apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: echo, namespace: openfaas-fn}
spec: {image: functions/alpine:latest, process: %s, labels: {com.openfaas.scale.min: "1"}}
`

// kubectl deploys, updates and deletes functions, as faas-cli does. An invalid one gets the
// reason in its status, and the others keep running. Their usage is shown while there is a
// metrics server. When that stops, nothing else does.
func TestKubectl(t *testing.T) {
	f := shared(t)
	f.pushAlpine(t)
	f.kubectl(t, "", "apply", "-f", "../../yaml/rbac.yaml")
	f.metricsServer(t)
	url := f.provider(t, "one")
	answers := func(process, want string) {
		t.Helper()
		f.kubectl(t, fmt.Sprintf(echo, process), "apply", "-f", "-")
		await(t, "the answer of "+process, func() error {
			got, err := get(t.Context(), http.MethodPost, url+"/function/echo", "hello")
			if err == nil && strings.TrimSpace(got) != want {
				err = fmt.Errorf("it answered %q", got)
			}
			return err
		})
	}
	answers("cat", "hello")
	f.kubectl(t, "", "wait", "--for=condition=Ready", "function/echo", "-n", "openfaas-fn", "--timeout=3m")
	answers("wc -c", "5")
	f.deployIris(t, url)
	f.showsUsage(t, url, map[string]string{"echo": "hello", "iris": irises})
	onceOnly := f.missesUsage(t, url, "echo", "iris")

	f.saysWhatIsWrong(t)

	onceOnly()
	f.learnsOperators(t)
	answers("cat", "hello")
	if err := askIris(t, url); err != nil {
		t.Error(err)
	}
	f.kubectl(t, "", "delete", "function/echo", "-n", "openfaas-fn")
	await(t, "the function to go", func() error {
		if got, err := get(t.Context(), http.MethodPost, url+"/function/echo", "hello"); err == nil || !strings.Contains(err.Error(), "404") {
			return fmt.Errorf("it answers %q, %w", got, errors.Join(err))
		}
		return nil
	})
	await(t, "its pods to go", func() error {
		if left := f.kubectl(t, "", "get", "pods", "-n", "openfaas-fn", "-l", "faas_function=echo", "-o", "name"); left != "" {
			return errors.New(left)
		}
		return nil
	})
}

// saysWhatIsWrong creates invalid functions, and one whose image does not exist.
func (f *fixture) saysWhatIsWrong(t *testing.T) {
	t.Helper()
	const function = `apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: %s, namespace: openfaas-fn}
spec: {image: %q, %s}
`
	for _, c := range []struct{ name, image, more, condition, word string }{
		{"nonsense", "functions/alpine:latest", `process: cat, labels: {com.openfaas.scale.min: "many"}`, "Accepted", "com.openfaas.scale.min"},
		{"secretless", "functions/alpine:latest", `process: cat, secrets: [not-there]`, "Accepted", "not-there"},
		{"nowhere", "functions/nowhere:latest", `process: cat, labels: {com.openfaas.scale.min: "1"}`, "Ready", "functions/nowhere"},
		{"unplaced", "functions/alpine:latest", `process: cat, constraints: ["disktype=none-such"], labels: {com.openfaas.scale.min: "1"}`, "Ready", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Long before waiting for an instance is given up. A machine that stands still
			// tells late, but not each time.
			const soon, tries = time.Minute, 3
			took := time.Hour
			for try := 0; try < tries && took > soon; try++ {
				took = f.saidAfter(t, c.name, fmt.Sprintf(function, c.name, c.image, c.more), c.condition, c.word)
			}
			if took > soon {
				t.Errorf("it was said after %v, more than %v", took, soon)
			}
		})
	}
}

// saidAfter applies a function, waits until a condition is false with a word of the reason,
// deletes the function, and returns how long the condition took.
func (f *fixture) saidAfter(t *testing.T, name, manifest, condition, word string) (took time.Duration) {
	t.Helper()
	began := time.Now()
	f.kubectl(t, manifest, "apply", "-f", "-")
	await(t, "the status", func() error {
		got := f.kubectl(t, "", "get", "function", name, "-n", "openfaas-fn", "-o",
			fmt.Sprintf(`jsonpath={.status.conditions[?(@.type==%q)].status} {.status.conditions[?(@.type==%q)].message}`, condition, condition))
		if !strings.HasPrefix(got, "False") || !strings.Contains(got, word) || len(got) < len("False and why") {
			return fmt.Errorf("condition %s is %q", condition, got)
		}
		took = time.Since(began)
		t.Logf("after %v: %s", took.Round(time.Millisecond), got)
		return nil
	})
	f.kubectl(t, "", "delete", "function", name, "-n", "openfaas-fn")
	return took
}
