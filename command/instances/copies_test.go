package instances

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/instance/copies"
	"github.com/faas-infer/faas-infer/instance/cuda"
)

// sharing starts an instance of a model with a directory of copies, and returns its process and its first
// log line.
func sharing(t *testing.T, model, dir string, more ...string) (pid int, log string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	c := commandtest.Command(append([]string{"instance", "--model", model, "--listen", "unix://" + socket}, more...)...)
	c.Env = append(c.Env, copies.Env+"="+dir)
	log = string(commandtest.UntilReady(t, c))
	t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	return c.Process.Pid, log
}

// mapped returns the device and inode of a file that a process has mapped, "" if it has none of that name.
func mapped(t *testing.T, pid int, name string) string {
	t.Helper()
	maps, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "maps"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if fields := strings.Fields(line); len(fields) == 6 && filepath.Base(fields[5]) == name {
			return fields[3] + " " + fields[4]
		}
	}
	return ""
}

// The first instance prepares the model, and all map the same file.
func TestInstancesShareACopy(t *testing.T) {
	model, dir := commandtest.ZooModel(t, "resnet-20", 1), t.TempDir()
	var files []string
	for i := range 2 {
		pid, log := sharing(t, model, dir)
		if made := strings.Contains(log, "prepared the model"); made != (i == 0) {
			t.Errorf("instance %d says %s", i, log)
		}
		file := mapped(t, pid, "weights.bin")
		if file == "" {
			file = mapped(t, pid, "model.ort")
		}
		files = append(files, file)
	}
	if slices.Contains(files, "") || files[0] != files[1] {
		t.Errorf("they have mapped %q", files)
	}
	// A tidier sees that they use it.
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		t.Error("nobody holds the directory")
	}
}

// An instance that cannot have a copy loads the model as it is.
func TestInstanceWithoutACopy(t *testing.T) {
	model := commandtest.ZooModel(t, "mnist", 1)
	if _, log := sharing(t, model, filepath.Join(t.TempDir(), "none")); !strings.Contains(log, "no such file") {
		t.Errorf("without a directory it says %s", log)
	}
	dir := t.TempDir()
	for _, want := range []string{"has 64 MiB: raise the function's memory limit", "failed or was killed"} {
		if _, log := sharing(t, model, dir, "--memory", strconv.Itoa(64<<20)); !strings.Contains(log, want) {
			t.Errorf("it says %s, not %q", log, want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the directory holds %v, %v", entries, err)
	}
}

// An attempt that was killed on a GPU keeps engines from making a copy for an hour.
func TestCopyOnGPUAfterAKill(t *testing.T) {
	dir := t.TempDir()
	shared, err := copies.Hold(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	f := &Flags{Model: "/bundle/model.onnx", shared: shared}
	var log bytes.Buffer
	keeps := func(why, want string) (end func()) {
		t.Helper()
		o := cuda.Options{Copies: "/prepared", Content: "hash"}
		log.Reset()
		end = f.keepOnGPU(t.Context(), &o, zerolog.New(&log))
		if o.Copies != want || (o.Content == "") != (want == "") || strings.Contains(log.String(), "failed or was killed") != (want == "") {
			t.Errorf("%s: %q, %q, and it says %s", why, o.Copies, o.Content, &log)
		}
		return end
	}
	first := keeps("the first", dir)
	keeps("one beside it", dir)()
	first()
	keeps("after it", dir)()
	marker := filepath.Join(dir, ".making-cuda")
	if err := os.WriteFile(marker, []byte("begun\n"), 0o644); err != nil { // As a killed one leaves it.
		t.Fatal(err)
	}
	keeps("after a kill", "")()
	hour := time.Now().Add(-time.Hour)
	if err := os.Chtimes(marker, hour, hour); err != nil {
		t.Fatal(err)
	}
	keeps("an hour after it", dir)
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "cuda-1"), 0o755), os.WriteFile(filepath.Join(dir, "cuda-1/manifest.json"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	keeps("with a copy", dir)()
	if text, err := os.ReadFile(marker); err != nil || len(text) == 0 {
		t.Errorf("an instance with a copy has ended another's attempt: %q, %v", text, err)
	}
	f.shared = nil
	keeps("without a directory", "/prepared")()
}

// The size of a model includes weights in files of their own.
func TestWeightOf(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{"a.onnx": 10, "b.onnx": 100, "a.onnx.data": 1000} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if size, err := weightOf(filepath.Join(dir, "a.onnx")); size != 1010 || err != nil {
		t.Errorf("%d, %v", size, err)
	}
	if _, err := weightOf(filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "none") {
		t.Error(err)
	}
}
