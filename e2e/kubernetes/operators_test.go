package kubernetes_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/profile/shares"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/measuring"
)

// standInGPU is the CPU's engine as a GPU on which a run takes the same time on any share.
type standInGPU struct{ *onnxruntime.Engine }

func (e standInGPU) Prepare(ctx context.Context, rows int, inputs []tensor.Tensor) error {
	_, err := e.Run(ctx, rows, inputs)
	return err
}

func (e standInGPU) Repeat(context.Context) (profiler.DeviceTimes, error) { return e.Times(), nil }

func (standInGPU) Times() profiler.DeviceTimes {
	return profiler.DeviceTimes{In: 2, Compute: 30, Out: 1}
}

// exported writes a file of operators' profiles of a model on a GPU.
func exported(t *testing.T, file, model, name string) {
	t.Helper()
	graph := filepath.Join(t.TempDir(), "graph.onnx")
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	if err := onnxruntime.SaveExtended(model, graph); err != nil {
		t.Fatal(err)
	}
	db := &database.Database{}
	for _, percent := range []int{20, 100} {
		child := shares.OperatorsChild{Graphs: []string{graph}, Batches: []int{1, 32}, Percent: percent, Machine: name, Log: io.Discard, CPU: func() time.Duration { return 0 },
			Open: func(file string, _ int) (measuring.DeviceEngine, error) {
				e, err := onnxruntime.Open(onnxruntime.Options{Model: file, Threads: 1})
				return standInGPU{e}, err
			}}
		found, err := child.Measure(t.Context())
		if err != nil || len(found.Unmeasured) > 0 {
			t.Fatal(found.Unmeasured, err)
		}
		for _, r := range found.Rows {
			db.Add(r)
		}
	}
	text, err := db.Export(database.Provenance{}, func(string, string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// learnsOperators adds a GPU to the node. The times on it of a model that is served on cores follow from
// a ConfigMap with its operators' profiles, made as docs/gpus.md says.
func (f *fixture) learnsOperators(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if _, err := run(f.program("faas-infer"), "model", "make", "mnist", "--out", dir+"/mnist.onnx"); err != nil {
		t.Fatal(err)
	}
	exported(t, dir+"/operators.jsonl", dir+"/mnist.onnx", gpu.Kind("NVIDIA T4", "580.1"))
	f.image(t, "function", dir+"/mnist.onnx", "--base", f.base, "--push", f.RegistryHost()+"/functions/mnist:latest")
	f.kubectl(t, `apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: mnist, namespace: openfaas-fn}
spec: {image: "functions/mnist:latest", annotations: {com.openfaas.slo.latency: 20s}}
`, "apply", "-f", "-")
	node := f.kubectl(t, "", "get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
	i := gpu.Inventory{Driver: "580.1", Sharing: gpu.MPS, PipeDirectory: "/run/mps", Devices: []gpu.Device{{UUID: "GPU-a", Model: "NVIDIA T4", Memory: 16 << 30, SMs: 40}}}
	f.kubectl(t, "", "annotate", "node", node, gpu.InventoryAnnotation+"="+i.String())
	problem := func(want bool) {
		t.Helper()
		await(t, "the function's problem", func() error {
			got := f.kubectl(t, "", "get", "function", "mnist", "-n", "openfaas-fn", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
			if strings.Contains(got, "no operators of NVIDIA T4, driver 580.1") != want {
				return fmt.Errorf("it says %q", got)
			}
			return nil
		})
	}
	problem(true)
	if _, err := run("gzip", "--keep", dir+"/operators.jsonl"); err != nil {
		t.Fatal(err)
	}
	f.kubectl(t, "", "-n", "openfaas", "create", "configmap", "gpu-operators", "--from-file="+dir+"/operators.jsonl.gz")
	f.kubectl(t, "", "-n", "openfaas", "label", "configmap", "gpu-operators", "faas-infer.dev/operators=true")
	problem(false)
	await(t, "the provider to say what it found", func() error {
		text, err := os.ReadFile(f.providerLog)
		if err == nil && (!strings.Contains(string(text), "imported operators' profiles") || !strings.Contains(string(text), "found the model's times on the GPU")) {
			err = fmt.Errorf("its log does not")
		}
		return err
	})
	f.kubectl(t, "", "delete", "function/mnist", "-n", "openfaas-fn")
	f.kubectl(t, "", "annotate", "node", node, gpu.InventoryAnnotation+"-")
}
