package local

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
)

// options returns how the tests run instances: as the test binary itself, in the role
// that the function's environment names. bare uses no rights.
func options(dir string, bare bool) Options {
	return Options{
		Dir:      dir,
		NodeName: "here",
		Total:    &cluster.Resources{CPU: 4000, Memory: 1 << 30},
		Command: func(_ cluster.InstanceSpec, socket string) (argv, env []string) {
			self, err := os.Executable()
			if err != nil {
				panic(err)
			}
			// The race detector makes every exit take a second.
			return []string{self, socket}, []string{"GORACE=atexit_sleep_ms=0"}
		},
		NoCgroups: bare,
		NoSandbox: bare,
		Logger:    zerolog.Nop(),
	}
}

func spec(id, role string) cluster.InstanceSpec {
	return cluster.InstanceSpec{
		ID: cluster.InstanceID(id), Function: "f.openfaas-fn", Node: "here",
		Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 500}},
		Env:    map[string]string{envRole: role},
	}
}

// eachWay runs a test with all rights that this user has, and with none.
func eachWay(t *testing.T, test func(t *testing.T, bare bool)) {
	t.Run("with rights", func(t *testing.T) { test(t, false) })
	t.Run("without", func(t *testing.T) { test(t, true) })
}

// open makes a backend that is closed with the test.
func open(t *testing.T, options Options) *Backend {
	t.Helper()
	b, err := New(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		instances, _ := b.Instances(context.Background())
		for _, instance := range instances {
			stopNow(t, b, instance.ID)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func stopNow(t *testing.T, b *Backend, id cluster.InstanceID) {
	t.Helper()
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Stop(now, id); err != nil {
		t.Error(err)
	}
}

func begin(t *testing.T, b *Backend, spec cluster.InstanceSpec) cluster.Instance {
	t.Helper()
	instance, err := b.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return instance
}

// expect waits for the next event, which must be of this instance and state.
func expect(t *testing.T, b *Backend, id cluster.InstanceID, state cluster.State) cluster.Instance {
	t.Helper()
	select {
	case event, ok := <-b.Events():
		if !ok || event.ID != id || event.State != state {
			t.Fatalf("event %+v, want %s %s", event, id, state)
		}
		return event
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s did not become %s", id, state)
	}
	return cluster.Instance{}
}

func pidOf(t *testing.T, b *Backend, id cluster.InstanceID) int {
	t.Helper()
	r, err := b.layout.read(id)
	if err != nil || r.Process == nil {
		t.Fatalf("state %+v, %v", r, err)
	}
	return r.Process.PID
}

// ask sends a request to an instance and returns the answer's body.
func ask(t *testing.T, instance cluster.Instance, path string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, Dial: func(_, _ string) (net.Conn, error) {
		return net.Dial(instance.Network, instance.Address)
	}}}
	response, err := client.Get("http://instance" + path)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

// nothingLeft fails if anything of any instance exists.
func nothingLeft(t *testing.T, b *Backend) {
	t.Helper()
	if ids, err := b.layout.list(); err != nil || len(ids) != 0 {
		t.Errorf("directories left: %v, %v", ids, err)
	}
	if b.tree != nil {
		if names, err := b.tree.Names(); err != nil || len(names) != 0 {
			t.Errorf("cgroups left: %v, %v", names, err)
		}
	}
	if b.layout.sockets != "" {
		if entries, err := os.ReadDir(b.layout.sockets); err != nil || len(entries) != 0 {
			t.Errorf("sockets left: %v, %v", entries, err)
		}
	}
	if pids := processesOf(t, b); len(pids) != 0 {
		t.Errorf("processes left: %v", pids)
	}
}

// processesOf finds every process of any instance of this backend.
func processesOf(t *testing.T, b *Backend) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range paths {
		environ, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(environ), b.layout.mark("")) {
			found = append(found, path)
		}
	}
	return found
}
