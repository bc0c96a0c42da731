package annotation

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// deployment returns a valid deployment with extra annotations.
func deployment(annotations map[string]string) types.FunctionDeployment {
	all := map[string]string{SLOLatency: "200ms"}
	maps.Copy(all, annotations)
	return types.FunctionDeployment{Service: "resnet-50", Image: "resnet-50:latest", Annotations: &all}
}

func TestParseDefaults(t *testing.T) {
	got, err := Parse(deployment(nil))
	if err != nil {
		t.Fatal(err)
	}
	want := Inference{IsInference: true, SLO: 200 * time.Millisecond, Shortest: 200 * time.Millisecond, Percentile: 99, MaxBatch: 32,
		ZeroDuration: 15 * time.Minute, ScaleType: TypeRPS, ScaleTarget: 5}
	if got != want {
		t.Errorf("Parse = %+v, want %+v", got, want)
	}
}

func TestParseEverything(t *testing.T) {
	d := deployment(map[string]string{
		SLOLatency: "1m30s", SLOLatencyMin: "50ms", SLOPercentile: "99.9", InferModel: "onnx/model.onnx",
		InferMaxBatch: "1024", InferPolicy: "infless", InferKeepAlive: "5m", "topic": "photos",
		InferPartition: "latency", InferPartitionInstances: "16",
	})
	d.Namespace = "team-a"
	d.Labels = &map[string]string{ScaleMin: "1", ScaleMax: "4", InferPolicy: "infless", "com.openfaas.scale.zero": "true"}
	d.Limits = &types.FunctionResources{Memory: "1Gi", CPU: "1"}
	d.Requests = &types.FunctionResources{Memory: "128Mi", CPU: "500m", NvidiaGPU: "0"}
	d.EnvVars = map[string]string{"LOG": "a=b"}
	d.Secrets = []string{"api-key", "tls.crt"}
	got, err := Parse(d)
	if err != nil {
		t.Fatal(err)
	}
	want := Inference{
		IsInference: true, SLO: 90 * time.Second, Shortest: 50 * time.Millisecond, Percentile: 99.9, PercentileStated: true, Model: "onnx/model.onnx",
		MaxBatch: 1024, Partition: PartitionLatency, PartitionInstances: 16, Policy: batching.InFlessName, KeepAlive: 5 * time.Minute, MinReplicas: 1, MaxReplicas: 4,
		Limits:    cluster.Resources{CPU: 1000, Memory: 1 << 30},
		Requests:  cluster.Resources{CPU: 500, Memory: 128 << 20},
		ScaleZero: true, ZeroDuration: 15 * time.Minute, ScaleType: TypeRPS, ScaleTarget: 5,
	}
	if got != want {
		t.Errorf("Parse = %+v, want %+v", got, want)
	}
}

func TestParseLabelsAlone(t *testing.T) {
	d := types.FunctionDeployment{Service: "mnist", Image: "mnist", Labels: &map[string]string{SLOLatency: "50ms"}}
	got, err := Parse(d)
	if err != nil || got.SLO != 50*time.Millisecond {
		t.Errorf("Parse = %+v, %v; want an SLO of 50ms", got, err)
	}
}

func TestParseWithoutSLO(t *testing.T) {
	got, err := Parse(types.FunctionDeployment{Service: "env", Image: "functions/alpine:latest"})
	if err != nil || got.IsInference {
		t.Errorf("Parse = %+v, %v; want an ordinary function", got, err)
	}
}

func TestParseRefusesValues(t *testing.T) {
	long := strings.Repeat("9", 500)
	for _, c := range []struct{ key, value string }{
		{InferShadow, "on"}, {InferShadow, ""}, {InferPartition, "on"}, {InferPartition, ""}, {InferPartitionInstances, "1"}, {InferPartitionInstances, "65"}, {InferPartitionInstances, "4"},
		{SLOLatency, "0"}, {SLOLatency, "0s"}, {SLOLatency, "-5ms"}, {SLOLatency, "fast"}, {SLOLatency, ""},
		{SLOLatency, "10us"}, {SLOLatency, "200"}, {SLOLatency, "10m1ns"}, {SLOLatency, "200 ms"}, {SLOLatency, long + "h"},
		{SLOLatencyMin, "0s"}, {SLOLatencyMin, "50"}, {SLOLatencyMin, "11m"},
		{SLOPercentile, "0"}, {SLOPercentile, "100"}, {SLOPercentile, "NaN"}, {SLOPercentile, "-1"},
		{SLOPercentile, "99%"}, {SLOPercentile, "1e1"}, {SLOPercentile, "0x10"}, {SLOPercentile, "99."}, {SLOPercentile, "9.9.9"},
		{InferModel, ""}, {InferModel, "."}, {InferModel, "/etc/passwd"}, {InferModel, "../model.onnx"},
		{InferModel, "a/../../model.onnx"}, {InferModel, `a\b`}, {InferModel, "a\x00b"},
		{InferMaxBatch, "0"}, {InferMaxBatch, "-1"}, {InferMaxBatch, "1025"}, {InferMaxBatch, "1000000000"},
		{InferMaxBatch, "many"}, {InferMaxBatch, "1.5"}, {InferMaxBatch, long},
		{InferPolicy, "fifo"}, {InferPolicy, ""}, {InferPolicy, "Shared"},
		{InferKeepAlive, "0s"}, {InferKeepAlive, "-1m"}, {InferKeepAlive, "25h"}, {InferKeepAlive, "forever"},
		{ScaleMin, "-1"}, {ScaleMin, "10001"}, {ScaleMax, "x"}, {ScaleZero, "yes"}, {ScaleZeroDuration, "0s"},
		{ScaleType, "cpu"}, {ScaleTarget, "0"}, {ScaleTarget, "-5"}, {ScaleTargetProportion, "1.1"},
		{"com.openfaas.slo.latncy", "1s"}, {"com.openfaas.infer.", "x"}, {"com.openfaas.infer.batch", "4"},
	} {
		_, err := Parse(deployment(map[string]string{c.key: c.value}))
		wantSentence(t, err, c.key)
	}
}

func TestParseRefusesFields(t *testing.T) {
	for _, c := range []struct {
		key  string
		edit func(d *types.FunctionDeployment)
	}{
		{"service", func(d *types.FunctionDeployment) { d.Service = "" }},
		{"service", func(d *types.FunctionDeployment) { d.Service = "ResNet" }},
		{"service", func(d *types.FunctionDeployment) { d.Service = "-a" }},
		{"service", func(d *types.FunctionDeployment) { d.Service = "a.b" }},
		{"service", func(d *types.FunctionDeployment) { d.Service = "../a" }},
		{"service", func(d *types.FunctionDeployment) { d.Service = strings.Repeat("a", 64) }},
		{"namespace", func(d *types.FunctionDeployment) { d.Namespace = "a/b" }},
		{"image", func(d *types.FunctionDeployment) { d.Image = "  " }},
		{"envVars.", func(d *types.FunctionDeployment) { d.EnvVars = map[string]string{"": "x"} }},
		{"envVars.A=B", func(d *types.FunctionDeployment) { d.EnvVars = map[string]string{"A=B": "x"} }},
		{"envVars.A", func(d *types.FunctionDeployment) { d.EnvVars = map[string]string{"A": "\x00"} }},
		{"envVars.A", func(d *types.FunctionDeployment) { d.EnvVars = map[string]string{"A": strings.Repeat("x", 128<<10)} }},
		{"envVars", func(d *types.FunctionDeployment) {
			d.EnvVars = map[string]string{}
			for i := range 40_000 { // Each takes a pointer and a prefix, too.
				d.EnvVars[fmt.Sprint("A", i)] = ""
			}
		}},
		{"envProcess", func(d *types.FunctionDeployment) { d.EnvProcess = "cat " + strings.Repeat("x", 128<<10) }},
		{"secrets", func(d *types.FunctionDeployment) { d.Secrets = []string{"../../etc/passwd"} }},
		{"secrets", func(d *types.FunctionDeployment) { d.Secrets = []string{"a..b"} }},
		{"secrets", func(d *types.FunctionDeployment) { d.Secrets = []string{strings.Repeat("a.", 127) + "a"} }},
		{"limits.cpu", func(d *types.FunctionDeployment) { d.Limits = &types.FunctionResources{CPU: "half"} }},
		{"limits.memory", func(d *types.FunctionDeployment) { d.Limits = &types.FunctionResources{Memory: "128m"} }},
		{"limits.memory", func(d *types.FunctionDeployment) { d.Limits = &types.FunctionResources{Memory: "128"} }}, // no unit
		{"limits.memory", func(d *types.FunctionDeployment) { d.Limits = &types.FunctionResources{Memory: "1Mi"} }},
		{"limits.memory", func(d *types.FunctionDeployment) { d.Limits = &types.FunctionResources{Memory: "15Mi"} }}, // enough for a program
		{"limits.nvidia.com/gpu", func(d *types.FunctionDeployment) { d.Limits = &types.FunctionResources{NvidiaGPU: "1"} }},
		{ScaleFactor, func(d *types.FunctionDeployment) { d.Labels = &map[string]string{ScaleFactor: "20%"} }},
		{"limits.amd.com/gpu", func(d *types.FunctionDeployment) { d.Limits = &types.FunctionResources{AmdGPU: "half"} }},
		{"requests.memory", func(d *types.FunctionDeployment) {
			d.Limits = &types.FunctionResources{Memory: "64Mi"}
			d.Requests = &types.FunctionResources{Memory: "65Mi"}
		}},
		{"requests.cpu", func(d *types.FunctionDeployment) {
			d.Limits = &types.FunctionResources{CPU: "1"}
			d.Requests = &types.FunctionResources{CPU: "1001m"}
		}},
		{ScaleMin, func(d *types.FunctionDeployment) { d.Labels = &map[string]string{ScaleMin: "3", ScaleMax: "2"} }},
		{ScaleMin, func(d *types.FunctionDeployment) { d.Labels = &map[string]string{ScaleMin: "0", ScaleZero: "false"} }},
		{"limits.cpu", func(d *types.FunctionDeployment) { d.Limits = &types.FunctionResources{CPU: "99m"} }},
		{SLOLatency, func(d *types.FunctionDeployment) { d.Labels = &map[string]string{SLOLatency: "300ms"} }},
	} {
		d := deployment(nil)
		c.edit(&d)
		_, err := Parse(d)
		wantSentence(t, err, c.key)
	}
}

// wantSentence fails unless err is an Error that names key and stays short.
func wantSentence(t *testing.T, err error, key string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Key != key || e.HTTPStatus() != 400 {
		t.Errorf("error %v, want an *Error for %q", err, key)
		return
	}
	if s := e.Error(); !strings.HasPrefix(s, key+" is ") || e.Why == "" || len(s) > 1000 {
		t.Errorf("%q does not name the key and the reason", s)
	}
}

func TestErrorNamesValueAndExample(t *testing.T) {
	_, err := Parse(deployment(map[string]string{SLOLatency: "fast"}))
	want := `com.openfaas.slo.latency is "fast": it must be a duration above 0 and at most 10m, for example "200ms"`
	if err == nil || err.Error() != want {
		t.Errorf("error %v\nwant  %s", err, want)
	}
}

// A value that earlier versions took is refused with the way out. A stored function goes on without it.
func TestRemovedValueNamesTheWayOut(t *testing.T) {
	stored := deployment(map[string]string{InferShadow: "always"})
	if in, err := ParseStored(stored); err != nil || in.Shadow != ShadowAuto || (*stored.Annotations)[InferShadow] != "always" {
		t.Errorf("a stored deployment: %q, %v, %v", in.Shadow, err, *stored.Annotations)
	}
	_, err := Parse(stored)
	want := `com.openfaas.infer.shadow is "always": this value of earlier versions is no more; set it to auto, which starts shadows where that is the cheapest way`
	if err == nil || err.Error() != want {
		t.Errorf("error %v\nwant  %s", err, want)
	}
}

func FuzzParse(f *testing.F) {
	for _, v := range []string{"200ms", "0", "-5ms", "fast", "99", "model.onnx", "../x", "32", "1000000000", "shared", "128Mi", "500m"} {
		for _, k := range []string{SLOLatency, SLOPercentile, InferModel, InferMaxBatch, InferPolicy, InferKeepAlive, ScaleMin, "com.openfaas.infer.x"} {
			f.Add("mnist", k, v, v)
		}
	}
	f.Fuzz(func(t *testing.T, service, key, value, quantity string) {
		d := types.FunctionDeployment{Service: service, Image: "mnist", Annotations: &map[string]string{key: value},
			Labels: &map[string]string{SLOLatency: "1s"}, Limits: &types.FunctionResources{CPU: quantity, Memory: quantity}}
		in, err := Parse(d)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Why == "" || len(err.Error()) > 1200 {
				t.Fatalf("error %v is no short *Error", err)
			}
			return
		}
		if !IsName(service) || in.SLO <= 0 || in.SLO > LongestSLO || in.Percentile <= 0 || in.Percentile >= 100 ||
			in.MaxBatch < 1 || in.MaxBatch > LargestBatch || in.KeepAlive < 0 || in.Limits.CPU < 0 || in.Limits.Memory < 0 {
			t.Fatalf("accepted %+v", in)
		}
		if strings.HasPrefix(in.Model, "/") || strings.HasPrefix(in.Model, "..") {
			t.Fatalf("model %q leaves the bundle", in.Model)
		}
	})
}

// An ordinary function may ask for whole GPUs.
func TestParseTakesWholeGPUs(t *testing.T) {
	d := types.FunctionDeployment{Service: "train", Image: "x", Limits: &types.FunctionResources{NvidiaGPU: "2"}}
	if in, err := Parse(d); err != nil || in.Limits.GPU != 200 {
		t.Errorf("%+v, %v", in.Limits, err)
	}
}
