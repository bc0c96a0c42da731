package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const tritonSettings = `backend: "python"
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "twice" data_type: TYPE_FP32 dims: [ 2 ] } ]
`

const tritonModel = `
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for r in requests:
            x = pb_utils.get_input_tensor_by_name(r, "x").as_numpy()
            if (x == 404).any(): raise RuntimeError("no 404 here")
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("twice", 2 * x)]))
        return answers
`

// tritonBundle writes the bundle NAME:latest of a model that Triton runs.
func (p *place) tritonBundle(t *testing.T, name, model string) {
	t.Helper()
	dir := filepath.Join(p.bundles, name, "latest")
	write(t, model, 0o644, dir, "model", "1", "model.py")
	write(t, tritonSettings, 0o644, dir, "model", "config.pbtxt")
	write(t, "engine: triton\nmodel: model\n", 0o644, dir, "bundle.yaml")
}

// A function whose model Triton runs is measured, batched and replaced like any other.
func TestModelServers(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	d := p.provider(t, suite.binary)
	p.tritonBundle(t, "twice", tritonModel)
	p.tritonBundle(t, "broken", "import no_such_module\n")
	p.tritonBundle(t, "unread", tritonModel)
	write(t, "input [", 0o644, p.bundles, "unread", "latest", "model", "config.pbtxt")
	if a := d.put(t, http.MethodPost, function("unread", "unread:latest", "5s")); a.status != http.StatusBadRequest {
		t.Errorf("settings that cannot be read: %d %s", a.status, a.body)
	} else {
		wantWords(t, a.body, "config.pbtxt: line 1: input: ']' is missing")
	}
	d.deploy(t, scaled(function("twice", "twice:latest", "30s"), "1", "1"))
	d.awaitReady(t, "twice", 1)
	d.deploy(t, scaled(function("broken", "broken:latest", "2s"), "1", "1"))
	d.awaitProblem(t, "broken", "the model server exited with status 1", "no_such_module")

	// At first only single requests may be measured. The rest is measured with CPU time that nothing else needs.
	d.await(t, patience, "a batch of several requests", func() bool {
		d.askTwice(t, 64)
		_, _, larger := d.batches(t, "twice")
		return larger
	})
	a := do(t, client(t), http.MethodPost, d.function("twice"), []byte(`{"instances":[[404,1]]}`))
	if a.status != http.StatusInternalServerError {
		t.Errorf("a model that throws: %d %s", a.status, a.body)
	}
	wantWords(t, a.body, "no 404 here")

	var killed []int
	d.await(t, patience, "one server for one instance", func() bool { // While a larger instance succeeds it there are two.
		killed = p.modelServers(t, "twice")
		return len(killed) == 1
	})
	if err := syscall.Kill(killed[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.await(t, patience, "another server in its place", func() bool {
		now := p.modelServers(t, "twice")
		return len(now) == 1 && now[0] != killed[0]
	})
	d.await(t, patience, "an answer of the new server", func() bool {
		a := do(t, client(t), http.MethodPost, d.function("twice"), []byte(`{"instances":[[1,2]]}`))
		return a.status == http.StatusOK
	})
	d.askTwice(t, 8)
	left := p.modelServers(t, "twice")
	d.stop(t)
	for _, pid := range left {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("the server %d has outlived its instance", pid)
		}
	}
}

// askTwice sends a number of requests at once and checks that each gets its own answer.
func (d *daemon) askTwice(t *testing.T, requests int) {
	t.Helper()
	c := client(t)
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			a, err := try(c, http.MethodPost, d.function("twice"), fmt.Appendf(nil, `{"instances":[[%d,0.5]]}`, i))
			if want := fmt.Sprintf(`{"predictions":[[%d,1]]}`, 2*i); err != nil || a.status != http.StatusOK || a.body != want {
				t.Errorf("request %d: %d %s, %v, want %s", i, a.status, a.body, err, want)
			}
		})
	}
	all.Wait()
}

// modelServers returns the tritonserver processes of a function's instances.
func (p *place) modelServers(t *testing.T, function string) (pids []int) {
	t.Helper()
	instances := p.instancesOf(function)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		name, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if !strings.HasSuffix(name, "(tritonserver") || len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil && slices.Contains(instances, parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}
