package instances

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// TestInstanceProcess prepares a model, starts an instance as a process, as
// the provider does, asks it and ends it with SIGTERM.
func TestInstanceProcess(t *testing.T) {
	folder := t.TempDir()
	file, socket := filepath.Join(folder, "mnist.onnx"), filepath.Join(folder, "s")
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	prepare := commandtest.Command("instance", "prepare", "--model", file, "--cache", filepath.Join(folder, "cache"))
	out, err := prepare.Output()
	if err != nil {
		t.Fatalf("prepare: %v (is the library there? run `make onnxruntime`)", err)
	}
	prepared, _, _ := strings.Cut(string(out), "\n")

	serve := commandtest.Command("instance", "--model", file, "--prepared", prepared, "--name", "mnist.openfaas-fn",
		"--max-batch", "4", "--max-rows", "8", "--body-limit", "65536", "--listen", "unix://"+socket)
	start := time.Now()
	log := commandtest.UntilReady(t, serve)
	t.Logf("ready after %v", time.Since(start))
	var started struct {
		Message string  `json:"message"`
		Load    float64 `json:"load_ms"`
		Run     float64 `json:"first_run_ms"`
	}
	if err := json.Unmarshal(log, &started); err != nil || started.Message != "ready" || started.Load <= 0 || started.Run <= 0 {
		t.Errorf("it logged %s: %v", log, err)
	}
	askInstance(t, socket)
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := serve.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// askInstance sends one good and several bad requests to a socket.
func askInstance(t *testing.T, socket string) {
	t.Helper()
	client := commandtest.Client(t, socket)
	pixels := strings.Repeat("0.5,", 28*28-1) + "0.5"
	for body, want := range map[string]string{
		`{"inputs":[{"name":"image","shape":[1,1,28,28],"datatype":"FP32","data":[` + pixels + `]}]}`: `200 {"model_name"`,
		`{"inputs":[{"name":"image","shape":[1,1,28,28],"datatype":"FP32","data":[1]}]}`:              `400 {"error":"input \"image\" has 1 elements`,
		`{"inputs":[{"name":"image","shape":[9,1,28,28],"datatype":"FP32","data":[1]}]}`:              `400 {"error":"input \"image\" has 9 rows; at most 8 in one request`,
		strings.Repeat(" ", 65537): `413 {"error":"the body is larger than the limit of 65536 bytes`,
	} {
		response, err := client.Post("http://instance/v2/models/mnist/infer", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if got := fmt.Sprintf("%d %s", response.StatusCode, text); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}

func TestInstanceRefuses(t *testing.T) {
	for wrong, arguments := range map[string][]string{
		"--model is missing": {"instance"},
		"neither unix":       {"instance", "--model", "m.onnx", "--listen", "127.0.0.1:80"},
		"give both":          {"instance", "prepare"},
	} {
		if _, err := execute(t, arguments...); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%v: got %v, want %q", arguments, err, wrong)
		}
	}
}
