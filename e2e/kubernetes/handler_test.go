package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// iris is the function of the template onnx-go-infer. Its objective is loose: requests must
// not be refused because the machine is busy.
const iris = `apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: iris, namespace: openfaas-fn}
spec:
  image: functions/iris:latest
  annotations: {com.openfaas.slo.latency: 20s}
  labels: {com.openfaas.scale.min: "1"}
`

// irises has one flower of each kind.
const irises = `{"instances": [[5.1, 3.5, 1.4, 0.2], [5.9, 2.8, 4.2, 1.3], [6.7, 3.0, 5.6, 2.3]]}`

// deployIris builds the template's image like its Dockerfile, with the handler compiled
// without a C library. It deploys the image and waits for its answers.
func (f *fixture) deployIris(t *testing.T, url string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../templates/onnx-go-infer")); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s", "-o", "function/handler", ".")
	c.Dir, c.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOPROXY=off", "GOTOOLCHAIN=local")
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("compile the template's handler: %v\n%s", err, text)
	}
	f.image(t, "function", filepath.Join(dir, "function"), "--base", f.base, "--push", f.RegistryHost()+"/functions/iris:latest")
	f.kubectl(t, iris, "apply", "-f", "-")
	await(t, "the irises' kinds", func() error { return askIris(t, url) })
}

// askIris returns an error unless each flower has its kind.
func askIris(t *testing.T, url string) error {
	text, err := get(t.Context(), http.MethodPost, url+"/function/iris", irises)
	if err != nil {
		return err
	}
	var answer struct{ Predictions [][]int }
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return fmt.Errorf("it answers %s: %w", text, err)
	}
	if fmt.Sprint(answer.Predictions) != "[[0] [1] [2]]" {
		return fmt.Errorf("the kinds are %v: %s", answer.Predictions, text)
	}
	return nil
}
