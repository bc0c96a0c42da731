package kubernetes_test

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// digits is a model, idle an ordinary function that keeps no instance.
const (
	digits = `apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: digits, namespace: openfaas-fn}
spec: {image: %s/functions/digits:latest, annotations: {com.openfaas.slo.latency: 1s}, labels: {com.openfaas.scale.min: "1"}}
`
	idle = `---
apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: idle-%d, namespace: openfaas-fn}
spec: {image: %s/functions/alpine:latest, process: cat, replicas: 0}
`
)

// firstAnswer is how soon after it is ready a provider must have answered for each function
// that runs.
const firstAnswer = 2 * time.Second

// The registry is away. A provider that has been killed, and starts on another machine without
// any file, serves all functions that run: models, and ordinary ones among a dozen others.
func TestRegistryAway(t *testing.T) {
	f := start(t, testcluster.Options{})
	bundles, model := t.TempDir(), filepath.Join(t.TempDir(), "digits.onnx")
	if err := bundle.WriteBuiltin(bundles); err != nil {
		t.Fatal(err)
	}
	if _, err := run(f.program("faas-infer"), "model", "make", "mnist", "--out", model); err != nil {
		t.Fatal(err)
	}
	host := f.RegistryHost()
	f.image(t, "function", bundles+"/functions/alpine/latest", "--base", f.base, "--push", host+"/functions/alpine:latest")
	f.image(t, "function", model, "--base", f.base, "--push", host+"/functions/digits:latest")
	url := f.provider(t, "one")
	manifests := fmt.Sprintf(digits, host) + "---\n" + strings.Replace(fmt.Sprintf(echo, "cat"), "image: functions", "image: "+host+"/functions", 1)
	const idles = 12
	for n := range idles {
		manifests += fmt.Sprintf(idle, n, host)
	}
	f.kubectl(t, manifests, "apply", "-f", "-")
	ask := func(url string) error {
		got, err := get(t.Context(), http.MethodPost, url+"/function/digits", blackPicture)
		if err == nil && !strings.Contains(got, "predictions") {
			err = errors.New(got)
		}
		echoed, failed := get(t.Context(), http.MethodPost, url+"/function/echo", "hello")
		if failed == nil && strings.TrimSpace(echoed) != "hello" {
			failed = errors.New(echoed)
		}
		return errors.Join(err, failed)
	}
	await(t, "both functions", func() error { return ask(url) })
	await(t, "the status to have the image", func() error {
		got := f.kubectl(t, "", "get", "functions", "-n", "openfaas-fn", "-o", `jsonpath={.items[?(@.metadata.name=="digits")].status.deployed.spec.resolved.reference} {.items[*].status.deployed.revision}`)
		if !strings.Contains(got, "/functions/digits@sha256:") || len(strings.Fields(got)) != 1+2+idles {
			return errors.New(got)
		}
		return nil
	})
	f.killProvider()
	testcluster.HangRegistry(f.Cluster)
	began := time.Now()
	url = f.provider(t, "two")
	ready := time.Now()
	err := ask(url)
	took := time.Since(ready)
	t.Logf("a provider without a registry is ready after %v, and has answered for both functions %v later", ready.Sub(began).Round(time.Millisecond), took.Round(time.Millisecond))
	if err != nil || took > firstAnswer {
		t.Errorf("after %v: %v", took, err)
	}
	list, err := get(t.Context(), http.MethodGet, url+"/system/functions", "")
	if err != nil || strings.Contains(list, "problem") || strings.Count(list, `"image"`) != 2+idles {
		t.Errorf("listed %s, %v", list, err)
	}
}
