package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// kservePython is the variable with a Python that has the package kserve, whose client is then tried, too. It is not among
// the tests' own: with what it needs it takes 480 MB.
const kservePython = "FAAS_INFER_KSERVE_PYTHON"

// Triton's client calls a function over gRPC, and grpcurl, which knows the services by reflection.
func TestGRPCClients(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.identity(t)
	d := p.provider(t, suite.binary)
	d.deploy(t, scaled(function("identity", "identity:latest", "20s"), "1", "1"))
	address := strings.TrimPrefix(d.url, "http://")

	curl, err := script("grpcurl.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		arguments []string
		word      string
	}{
		{[]string{address, "list"}, "inference.GRPCInferenceService"},
		{[]string{address, "describe", "inference.ModelInferRequest"}, "raw_input_contents"},
		{[]string{address, "grpc.health.v1.Health/Check"}, "SERVING"},
		{[]string{"-d", `{"name": "identity"}`, address, "inference.GRPCInferenceService/ModelReady"}, `"ready": true`},
		{[]string{"-d", `{"model_name": "identity", "inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 8],
			"contents": {"fp32_contents": [1, 2, 3, 4, 5, 6, 7, 0.5]}}]}`, address, "inference.GRPCInferenceService/ModelInfer"}, "0.5"},
	} {
		out, err := exec.Command(curl, append([]string{"-plaintext"}, c.arguments...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.word) {
			t.Errorf("grpcurl %q: %v, %s", c.arguments, err, out)
		}
	}

	pythons := map[string]string{"grpc_triton.py": clientsPython(t)}
	if python := os.Getenv(kservePython); python != "" {
		pythons["grpc_kserve.py"] = python
	}
	for file, python := range pythons {
		out, err := exec.Command(python, filepath.Join("testdata", file), address, "identity", "input", "output", strconv.Itoa(width)).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
		t.Logf("%s", out)
	}
}
