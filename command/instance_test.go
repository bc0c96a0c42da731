package command

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// instanceHelper is the environment variable by which TestInstanceProcess
// starts this test binary as the faas-infer command.
const instanceHelper = "FAAS_INFER_TEST_INSTANCE"

// TestInstanceProcess prepares a model, starts an instance as a process, as
// the provider does, asks it and ends it with SIGTERM.
func TestInstanceProcess(t *testing.T) {
	if arguments := os.Getenv(instanceHelper); arguments != "" {
		root := NewRootCommand()
		root.SetArgs(strings.Split(arguments, "\n"))
		if code := Run(root); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		return
	}
	folder := t.TempDir()
	file, socket := filepath.Join(folder, "mnist.onnx"), filepath.Join(folder, "s")
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	prepare := helperCommand("instance", "prepare", "--model", file, "--cache", filepath.Join(folder, "cache"))
	out, err := prepare.Output()
	if err != nil {
		t.Fatalf("prepare: %v (is the library there? run `make onnxruntime`)", err)
	}
	prepared, _, _ := strings.Cut(string(out), "\n")

	serve := helperCommand("instance", "--model", file, "--prepared", prepared, "--name", "mnist.openfaas-fn",
		"--max-batch", "4", "--max-rows", "8", "--body-limit", "65536", "--listen", "unix://"+socket)
	start := time.Now()
	log := startUntilReady(t, serve)
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

// helperCommand is this test binary as the faas-infer command.
func helperCommand(arguments ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], "-test.run", "^TestInstanceProcess$")
	c.Env = append(os.Environ(), instanceHelper+"="+strings.Join(arguments, "\n"))
	return c
}

// startUntilReady starts the command and returns its first log line once the line says
// that it is ready.
func startUntilReady(t *testing.T, c *exec.Cmd) []byte {
	t.Helper()
	ready, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	c.ExtraFiles = []*os.File{theirs}
	c.Env = append(c.Env, instance.ReadyEnv+"=3")
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill() })
	theirs.Close()
	log, err := bufio.NewReader(stderr).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(ready); string(said) != "ready\n" || err != nil {
		t.Fatalf("it said %q, %v, and logged %s", said, err, log)
	}
	return log
}

// askInstance sends one good and several bad requests to a socket.
func askInstance(t *testing.T, socket string) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
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
		root := NewRootCommand()
		root.SetArgs(arguments)
		if err := root.ExecuteContext(context.Background()); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%v: got %v, want %q", arguments, err, wrong)
		}
	}
}
