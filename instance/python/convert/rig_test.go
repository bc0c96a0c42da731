package convert

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/instance/python/script"
)

// models holds the directories of the test models by framework.
var models = struct {
	sync.Mutex
	dirs map[Kind]string
}{dirs: map[Kind]string{}}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, dir := range models.dirs {
		_ = os.RemoveAll(dir)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

// made is the directory with a framework's test models, written once.
func made(t *testing.T, of Kind, script string) string {
	t.Helper()
	models.Lock()
	defer models.Unlock()
	if dir := models.dirs[of]; dir != "" {
		return dir
	}
	e, err := environment.Find(t.Context(), of.converter().engine, "")
	if err != nil || !e.Made() {
		t.Fatalf("run scripts/python.sh %s first (%v)", of.converter().engine, err)
	}
	dir, err := os.MkdirTemp("", "convert")
	if err != nil {
		t.Fatal(err)
	}
	models.dirs[of] = dir
	if out, err := exec.CommandContext(t.Context(), e.Python, filepath.Join("testdata", script), dir).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return dir
}

func tensorflow(t *testing.T) string { return made(t, Keras, "tensorflowmodels.py") }
func torch(t *testing.T) string      { return made(t, Torch, "torchmodels.py") }
func tabular(t *testing.T) string    { return made(t, Pickle, "tabularmodels.py") }

// options returns the command's options without flags.
func options(t *testing.T, in, out string) Options {
	t.Helper()
	var log bytes.Buffer
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return Options{
		In: in, Out: filepath.Join(t.TempDir(), out), Batches: []int{1, 3, 8}, Below: 2, Seed: 1, Tolerance: 1e-4,
		Log: &log, Step: func(step string) { t.Log(step) },
	}
}

// converts runs it and checks what holds of every conversion.
func converts(t *testing.T, o Options) *Result {
	t.Helper()
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Differences) != len(r.Outputs)*len(o.Batches) || r.Bytes == 0 {
		t.Errorf("%+v", r)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(o.Out), ".convert-*"))
	if _, gone := os.Stat(o.Out); err != nil || gone != nil || len(left) > 0 {
		t.Errorf("%v, %v, left %v", gone, err, left)
	}
	t.Logf("%s: largest difference %.3g", filepath.Base(o.In), r.Largest())
	return r
}

// together runs several jobs in one process, because a framework takes seconds to import.
// It returns each job's last event by the name of its output, beside which its arrays are.
func together(t *testing.T, from Kind, all ...Options) map[string]event {
	t.Helper()
	e, err := environment.Find(t.Context(), from.converter().engine, "")
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	if err := script.Unpack(scripts, work); err != nil {
		t.Fatal(err)
	}
	var jobs bytes.Buffer
	for _, o := range all {
		kind, to, err := o.check()
		if err != nil {
			t.Fatal(err)
		}
		request, err := o.request(job{From: kind, To: to, Out: o.Out, work: filepath.Dir(o.Out)})
		if err != nil {
			t.Fatal(err)
		}
		jobs.Write(append(request, '\n'))
	}
	c := exec.CommandContext(t.Context(), e.Python, filepath.Join("testdata", "together.py"), work, strings.TrimSuffix(from.converter().script, ".py"))
	var log bytes.Buffer
	c.Stdin, c.Stderr = &jobs, &log
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	events := map[string]event{}
	for line := range bytes.Lines(out) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if e.Done != nil || e.Error != "" {
			events[filepath.Base(all[len(events)].Out)] = e
		}
	}
	if t.Failed() || len(events) != len(all) {
		t.Errorf("%d of %d\n%s", len(events), len(all), log.String())
	}
	return events
}
