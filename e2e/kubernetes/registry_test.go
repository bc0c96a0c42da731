package kubernetes_test

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	onnx "github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/zoo"
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

// cut is a model that no instance can load with its limit, so that several answer together.
const cut = `apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: cut, namespace: openfaas-fn}
spec:
  image: %s/functions/cut:latest
  limits: {memory: 200Mi}
  annotations: {com.openfaas.slo.latency: 20s, com.openfaas.infer.partition: auto, com.openfaas.infer.max-batch: "1"}
  labels: {com.openfaas.scale.min: "1"}
`

// chainWidth is the width of the model of cut.
const chainWidth = 2560

// chain writes a model of three products with 25 MiB of weights each. A plan for so few layers is
// found soon.
func chain(t *testing.T) (file string) {
	t.Helper()
	identity, err := zoo.Make("identity", 1)
	if err != nil {
		t.Fatal(err)
	}
	p := proto.Clone(identity.Proto()).(*onnxpb.ModelProto)
	g := p.Graph
	for _, v := range []*onnxpb.ValueInfoProto{g.Input[0], g.Output[0]} {
		v.Type.GetTensorType().Shape.Dim[1].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: chainWidth}
	}
	at, end := g.Node[0].Input[0], g.Node[0].Output[0]
	g.Node = nil
	for _, to := range []string{"first", "second", end} {
		g.Initializer = append(g.Initializer, &onnxpb.TensorProto{Name: proto.String(to + "-weights"), Dims: []int64{chainWidth, chainWidth},
			DataType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)), RawData: make([]byte, 4*chainWidth*chainWidth)})
		g.Node = append(g.Node, &onnxpb.NodeProto{OpType: proto.String("MatMul"), Name: proto.String(to), Input: []string{at, to + "-weights"}, Output: []string{to}})
		at = to
	}
	m, err := onnx.FromProto(p)
	file = filepath.Join(t.TempDir(), "cut.onnx")
	if err == nil {
		err = m.WriteFile(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// chainInput is a request to it.
func chainInput() string {
	return fmt.Sprintf(`{"instances": [[%s]]}`, strings.TrimSuffix(strings.Repeat("0,", chainWidth), ","))
}

// firstAnswer returns how soon after it is ready a provider must have answered for each function
// that runs: 2 s, or ten times what ask takes on this machine while nothing is amiss.
func firstAnswer(t *testing.T, ask func() error) time.Duration {
	t.Helper()
	slowest := time.Duration(0)
	for range 3 {
		began := time.Now()
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(began))
	}
	return max(2*time.Second, 10*slowest)
}

// The registry is away. A provider that has been killed, and starts on another machine without
// any file, serves all functions that run: models, and ordinary ones among a dozen others.
func TestRegistryAway(t *testing.T) {
	f := shared(t)
	f.pushAlpine(t)
	f.pushDigits(t)
	host := f.RegistryHost()
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
	soon := firstAnswer(t, func() error { return ask(url) })
	f.killProvider()
	t.Cleanup(testcluster.HangRegistry(f.Cluster))
	began := time.Now()
	url = f.provider(t, "two")
	ready := time.Now()
	err := ask(url)
	took := time.Since(ready)
	t.Logf("a provider without a registry is ready after %v, and has answered for both functions %v later", ready.Sub(began).Round(time.Millisecond), took.Round(time.Millisecond))
	if err != nil || took > soon {
		t.Errorf("after %v: %v", took, err)
	}
	list, err := get(t.Context(), http.MethodGet, url+"/system/functions", "")
	if err != nil || strings.Contains(list, "problem") || strings.Count(list, `"image"`) != 2+idles {
		t.Errorf("listed %s, %v", list, err)
	}
}

// The registry is away. A provider that has been killed, and starts on another machine without any
// file, goes on with the instances that answer together for a cut model.
func TestRegistryAwayForCutModels(t *testing.T) {
	f := shared(t)
	f.image(t, "function", chain(t), "--base", f.base, "--push", f.RegistryHost()+"/functions/cut:latest")
	url := f.provider(t, "one")
	f.kubectl(t, fmt.Sprintf(cut, f.RegistryHost()), "apply", "-f", "-")
	members := func() string {
		return f.kubectl(t, "", "get", "pods", "-n", "openfaas-fn", "-l", "faas_function=cut", "-o", "jsonpath={.items[*].metadata.name}")
	}
	ask := func() error {
		got, err := get(t.Context(), http.MethodPost, url+"/function/cut", chainInput())
		if err == nil && !strings.Contains(got, "predictions") {
			err = errors.New(got)
		}
		return err
	}
	began := time.Now()
	for err := ask(); err != nil; err = ask() { // It is planned with CPU time that nothing else needs.
		if time.Since(began) > 3*moment {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	t.Logf("the cut model answers %v after it was deployed", time.Since(began).Round(time.Millisecond))
	await(t, "the status to have the weights", func() error {
		if got := f.kubectl(t, "", "get", "functions/cut", "-n", "openfaas-fn", "-o", "jsonpath={.status.deployed.spec.resolved.models[0].weights}"); got == "" {
			return errors.New("it has none")
		}
		return nil
	})
	before, soon := members(), firstAnswer(t, ask)
	f.killProvider()
	t.Cleanup(testcluster.HangRegistry(f.Cluster))
	url = f.provider(t, "two")
	ready := time.Now()
	err := ask()
	took := time.Since(ready)
	t.Logf("a provider without a registry has answered for a cut model %v after it was ready", took.Round(time.Millisecond))
	if now := members(); err != nil || took > soon || now != before || len(strings.Fields(now)) < 2 {
		t.Errorf("after %v: %v; the members are %s, and were %s", took, err, now, before)
	}
	list, err := get(t.Context(), http.MethodGet, url+"/system/functions", "")
	if err != nil || strings.Contains(list, "problem") {
		t.Errorf("listed %s, %v", list, err)
	}
}
