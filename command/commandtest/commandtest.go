// Package commandtest lets tests run the program's commands: in the test's process, or in another one, for
// which the test binary becomes the program. Begin reading at [Main].
package commandtest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// env makes a test binary the program, for commands that start it again.
const env = "FAAS_INFER_TEST_COMMAND"

// Main is a package's TestMain. run is the program; it returns the exit code. Children of the tests, too, are
// the program.
func Main(m *testing.M, run func() int) {
	if os.Getenv(env) != "" {
		os.Exit(run())
	}
	if err := os.Setenv(env, "1"); err != nil { // Whatever the tests start is the program.
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// Run executes a command with the arguments of this process until SIGTERM and returns the exit code.
func Run(root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	root.SilenceErrors, root.SilenceUsage = true, true
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Execute runs a command with arguments in this process and returns what it prints.
func Execute(t *testing.T, root *cobra.Command, arguments ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	root.SetArgs(arguments)
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SilenceErrors, root.SilenceUsage = true, true
	err = root.ExecuteContext(t.Context())
	return out.String(), err
}

// Command is this test binary as the program, with arguments. The test's package calls [Main].
func Command(arguments ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], arguments...)
	c.Env = os.Environ()
	return c
}

// UntilReady starts an instance and returns its first log line once it has said that it is ready. It is
// killed when the test ends.
func UntilReady(t *testing.T, c *exec.Cmd) []byte {
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

// Client sends requests to a Unix socket.
func Client(t *testing.T, socket string) *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// ZooModel writes a model of the zoo and returns its file.
func ZooModel(t *testing.T, name string, seed uint64) (file string) {
	t.Helper()
	m, err := zoo.Make(name, seed)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), name+".onnx")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	return file
}
