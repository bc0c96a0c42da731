package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/annotation"
)

// pythonBundle writes the bundle NAME:latest with a handler, and further files as pairs of
// name and content.
func (p *place) pythonBundle(t *testing.T, name, handler string, files ...string) {
	t.Helper()
	dir := filepath.Join(p.bundles, name, "latest")
	manifest := "engine: python\nhandler: handler.py\n"
	for i := 0; i < len(files); i += 2 {
		write(t, files[i+1], 0o644, dir, files[i])
		manifest += "requirements: " + files[i] + "\n"
	}
	write(t, handler, 0o644, dir, "handler.py")
	write(t, manifest, 0o644, dir, "bundle.yaml")
	if onCluster != nil {
		if err := onCluster.push(dir, name+":latest"); err != nil {
			t.Fatal(err)
		}
	}
}

// declared is the beginning of these tests' handlers.
const declared = `
inputs = {"x": ("float32", [1])}
outputs = {"y": ("float32", [1])}
`

// problem returns the reason in a function's status why it is not served.
func (d *daemon) problem(t *testing.T, name string) string {
	t.Helper()
	return problemOf(d.status(t, name))
}

func problemOf(s types.FunctionStatus) string {
	if s.Annotations == nil {
		return ""
	}
	return (*s.Annotations)[annotation.InferProblem]
}

// awaitProblem waits until a function's status says all of these words.
func (d *daemon) awaitProblem(t *testing.T, name string, words ...string) {
	t.Helper()
	d.await(t, patience, fmt.Sprintf("%q in the status of %s", words, name), func() bool {
		got := d.problem(t, name)
		for _, w := range words {
			if !strings.Contains(got, w) {
				return false
			}
		}
		return true
	})
}

func limited(f types.FunctionDeployment, memory string) types.FunctionDeployment {
	f.Limits = &types.FunctionResources{Memory: memory}
	return f
}

// A user's handler answers as its function, on this machine and in a container.
func TestPythonFunction(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	d := p.provider(t, suite.binary)
	p.pythonBundle(t, "twice", declared+`
import sys, numpy as np
def load(path): print("loaded by Python", sys.version_info[:2], "from", np.__file__, file=sys.stderr)
def handle(batch):
    if batch[0]["x"][0, 0] == 7: raise ValueError("sevens are not wanted")
    return [2 * r["x"] for r in batch]
`)
	d.deploy(t, scaled(limited(function("twice", "twice:latest", "30s"), "512Mi"), "1", "1"))
	d.awaitReady(t, "twice", 1)
	for body, want := range map[string]string{`{"instances":[[3],[4]]}`: `{"predictions":[[6],[8]]}`, `{"instances":[[7]]}`: "ValueError: sevens are not wanted"} {
		if a := do(t, client(t), http.MethodPost, d.function("twice"), []byte(body)); !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s, want %s", body, a.status, a.body, want)
		}
	}
	// What a process prints may come a moment after its answer.
	d.await(t, patience, "what the handler printed, in the logs", func() bool {
		logs := do(t, d.own, http.MethodGet, d.url+"/system/logs?name=twice&follow=false", nil).body
		return strings.Contains(logs, "loaded by Python") && strings.Contains(logs, "sevens are not wanted") && strings.Contains(logs, "Traceback")
	})
	d.stop(t)
}

// A handler that exceeds its function's memory loses only its own batch, however it takes
// the memory. Its users get the reason.
func TestPythonOutOfMemory(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	d := p.provider(t, suite.binary)
	p.pythonBundle(t, "grows", declared+`
import os
kept = []
def handle(batch):
    what = batch[0]["x"][0, 0]
    if what == 1: bytearray(8 << 30)
    while what == 2: kept.append(bytearray(b"x") * (16 << 20))
    if what == 3:  # Not this process's own: only the kernel sees it.
        file = os.memfd_create("large")
        for _ in range(512): os.write(file, bytes(1 << 20))
    return [r["x"] for r in batch]
`)
	d.deploy(t, scaled(limited(function("grows", "grows:latest", "30s"), "256Mi"), "1", "1"))
	d.awaitReady(t, "grows", 1)
	c := client(t)
	ask := func(what int) answer {
		return do(t, c, http.MethodPost, d.function("grows"), fmt.Appendf(nil, `{"instances":[[%d]]}`, what))
	}
	const limit = "(limit 192 MiB)" // The instance itself takes the rest.
	words := map[int][]string{1: {"MemoryError", "ran out of memory", limit}, 2: {"ran out of memory", limit}, 3: {"ran out of memory", "killed by the kernel"}}
	for what := 1; what <= len(words); what++ {
		if what == 3 && len(p.cgroups()) == 0 {
			t.Log("there are no cgroups here: the kernel ends nothing")
			continue
		}
		if a := ask(what); a.status != http.StatusInternalServerError {
			t.Errorf("way %d: %d %s", what, a.status, a.body)
		} else {
			wantWords(t, a.body, words[what]...)
		}
		if a := ask(0); a.status != http.StatusOK {
			t.Errorf("after way %d: %d %s", what, a.status, a.body)
		}
	}
	d.stop(t)
}

// The status of a function that cannot be served has the reason, and no longer has it after
// a fix.
func TestPythonThatCannotBeServed(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.extra = append(p.extra, "PIP_NO_INDEX=1") // The answer is the same, and sooner.
	d := p.provider(t, suite.binary)
	good := declared + "def handle(batch): return [r['x'] for r in batch]\n"
	p.pythonBundle(t, "unmet", good, "requirements.txt", "no-such-distribution-anywhere==1\n")
	p.pythonBundle(t, "large", good+"def load(path): return bytearray(b'x') * (1 << 29)\n")
	p.pythonBundle(t, "raises", good+"def load(path): raise OSError('no weights')\n")
	p.pythonBundle(t, "headless", declared+"def load(path): pass\n")
	p.pythonBundle(t, "short", declared+"def handle(batch): return []\n")

	if a := d.put(t, http.MethodPost, function("headless", "headless:latest", "5s")); a.status != http.StatusBadRequest {
		t.Errorf("a handler without handle: %d %s", a.status, a.body)
	} else {
		wantWords(t, a.body, "handler.py has no function handle(batch)")
	}
	for name, words := range map[string][]string{
		"unmet": {"the requirements cannot be installed", "No matching distribution found for"},
		"large": {"before it was ready", "load the model", "out of memory"}, "raises": {"OSError: no weights"},
		"short": {"handle gave 0 answers for a batch of 1"},
	} {
		t.Run(name, func(t *testing.T) {
			d.deploy(t, scaled(limited(function(name, name+":latest", "5s"), "256Mi"), "1", "1"))
			d.awaitProblem(t, name, words...)
			a := do(t, client(t), http.MethodPost, d.function(name), []byte(`{"instances":[[1]]}`))
			if a.status != http.StatusServiceUnavailable {
				t.Errorf("%d %s", a.status, a.body)
			}
			wantWords(t, a.body, words[0])
		})
	}
	p.pythonBundle(t, "unmet", good)
	d.deploy(t, scaled(function("unmet", "unmet:latest", "5s"), "1", "1"))
	d.awaitReady(t, "unmet", 1)
	if a := do(t, client(t), http.MethodPost, d.function("unmet"), []byte(`{"instances":[[1]]}`)); a.status != http.StatusOK || d.problem(t, "unmet") != "" {
		t.Errorf("mended: %d %s, %q", a.status, a.body, d.problem(t, "unmet"))
	}
	if a := do(t, client(t), http.MethodPost, d.function("unmet"), []byte(`{"inputs":[{"name":"x","shape":[1,1],"datatype":"INT32","data":[1]}]}`)); a.status != http.StatusBadRequest {
		t.Errorf("a wrong type: %d %s", a.status, a.body)
	}
	d.stop(t)
}
