package python_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/instance/python"
)

// warmth keeps a warm process of a prepared bundle's environment.
func warmth(t testing.TB, p python.Prepared) *python.Warmth {
	t.Helper()
	w, err := python.NewWarmth(filepath.Join(t.TempDir(), "warm"), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	ready, err := w.Keep(p)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-ready:
	case <-time.After(2 * time.Minute):
		t.Fatal("the warm process does not get ready")
	}
	return w
}

// A forked process belongs to its instance: it has the instance's environment, limits and log, and
// ends with it.
func TestForkedFromAWarmProcess(t *testing.T) {
	p := handler(t, head+`
import os, resource, sys
def load(path):
    print("libraries", "numpy" in sys.modules, "variable", os.environ.get("FAAS_INFER_TEST"), resource.getrlimit(resource.RLIMIT_CPU)[0])
def handle(batch):
    if batch[0]["x"][0, 0] == 1: os._exit(7)
    return [r["x"] + os.getppid() for r in batch]
`)
	w := warmth(t, p)
	t.Setenv("FAAS_INFER_TEST", "mine")
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CPU, &limit); err != nil {
		t.Fatal(err)
	}
	bound := unix.Rlimit{Cur: min(limit.Max, 1_000_000), Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_CPU, &bound); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_CPU, &limit) }() // It may be raised to the hard one.
	e, l := serve(t, p, func(o *python.Options) { o.Warm = w.Dir() })
	if _, forked := e.LoadTime(); !forked {
		t.Errorf("it was not forked:\n%s", l)
	}
	l.Await(t, fmt.Sprintf("libraries True variable mine %d", bound.Cur), 1)
	out, err := e.Run(t.Context(), 1, floats("x", 0))
	if err != nil || int(values(out[0])[0]) == os.Getpid() {
		t.Errorf("%v %v", out, err)
	}
	if _, err := e.Run(t.Context(), 1, floats("x", 1)); err == nil || !strings.Contains(err.Error(), "exited with status 7") {
		t.Errorf("%v", err)
	}
	if _, err := e.Run(t.Context(), 1, floats("x", 0)); err != nil {
		t.Errorf("after it was replaced: %v", err)
	}
}

// Instances outlive the warm process, and start without one.
func TestTheWarmProcessEnds(t *testing.T) {
	p := handler(t, head+"def handle(batch): return [r['x'] for r in batch]")
	w := warmth(t, p)
	with := func(o *python.Options) { o.Warm = w.Dir() }
	// An interpreter with NumPy takes more than 10 MiB and less than 1 GiB.
	if held := w.Memory(); held < 10<<20 || held > 1<<30 || w.Memory() < held {
		t.Errorf("the warm process is said to hold %d bytes, then %d", held, w.Memory())
	}
	forked, _ := serve(t, p, with)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if held := w.Memory(); held != 0 {
		t.Errorf("ended, it is said to hold %d bytes", held)
	}
	if _, err := forked.Run(t.Context(), 1, floats("x", 1)); err != nil {
		t.Errorf("the forked one: %v", err)
	}
	e, _ := serve(t, p, with)
	if _, forked := e.LoadTime(); forked {
		t.Error("it was forked from nothing")
	}
	if _, err := w.Keep(p); err == nil {
		t.Error("a closed one keeps another")
	}
}
