package children

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/store"
)

// remembering returns models on a store, as a provider that starts has them. end closes the
// store, as at the end of a provider.
func remembering(t *testing.T, state string) (m *Models, end func()) {
	t.Helper()
	kept, err := store.Open(filepath.Join(state, "faas-infer.db"))
	if err != nil {
		t.Fatal(err)
	}
	m = &Models{Config: Config{Prepared: filepath.Join(state, "prepared")}}
	if err := m.KeepIn(kept, zerolog.Nop()); err != nil {
		t.Fatal(errors.Join(err, kept.Close()))
	}
	return m, func() {
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A file whose hash is remembered is not read until it changes.
func TestRemember(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model.onnx")
	write(t, file, "one")
	m := &Models{}
	m.Remember(file, "remembered")
	if hash, err := m.Hash(file); err != nil || hash != "remembered" {
		t.Errorf("the file was read: %s, %v", hash, err)
	}
	write(t, file, "other")
	if hash, err := m.Hash(file); err != nil || hash == "remembered" {
		t.Errorf("a changed file has the hash %s, %v", hash, err)
	}
	m.Remember(filepath.Join(t.TempDir(), "gone", "model.onnx"), "nothing")
}

// After a restart a model file is neither read nor prepared again, unless it has changed.
func TestModelsAreRememberedOverARestart(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	file, gone, prepared := filepath.Join(dir, "model.onnx"), filepath.Join(dir, "gone.onnx"), t.TempDir()
	write(t, file, "one")
	write(t, gone, "two")
	m, end := remembering(t, state)
	for _, f := range []string{file, gone} {
		seen, err := m.look(f)
		if err != nil {
			t.Fatal(err)
		}
		seen.hash = "remembered" // A file that is read again gets its real hash.
		m.keep(f, seen, "", prepared)
	}
	end()

	m, end = remembering(t, state)
	if hash, err := m.Hash(file); err != nil || hash != "remembered" {
		t.Errorf("the file was read again: hash %s, %v", hash, err)
	}
	if got, err := m.Prepare(t.Context(), file); err != nil || got != prepared {
		t.Errorf("prepared in %q, %v", got, err)
	}
	end()

	// Another program, library or CPU prepares the model again, but need not read it.
	kept, err := store.Open(filepath.Join(state, "faas-infer.db"))
	if err != nil {
		t.Fatal(err)
	}
	known, err := kept.Models()
	if err != nil {
		t.Fatal(err)
	}
	was := known[file]
	was.Preparer = "another"
	if err := errors.Join(kept.PutModel(file, was), os.Remove(gone), kept.Close()); err != nil {
		t.Fatal(err)
	}
	m, end = remembering(t, state)
	if seen, ok := m.known(file); !ok || seen.hash != "remembered" || seen.ready != "" {
		t.Errorf("after an update %+v", seen)
	}
	if _, ok := m.known(gone); ok {
		t.Error("a file that is gone is remembered")
	}
	end()

	// The same size and time, but another file.
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file+".new", "ano")
	if err := errors.Join(os.Chtimes(file+".new", time.Time{}, info.ModTime()), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
	m, end = remembering(t, state)
	if hash, err := m.Hash(file); err != nil || hash == "remembered" {
		t.Errorf("a replaced file was not read: %s, %v", hash, err)
	}
	end()
}

// The hash of what Python runs depends on the interpreter, too.
func TestManifestsAreNotRemembered(t *testing.T) {
	state, file := t.TempDir(), filepath.Join(t.TempDir(), bundle.ManifestFile)
	m, end := remembering(t, state)
	m.seen[file] = seenModel{stamp: "s", hash: "h"}
	m.keep(file, m.seen[file], "", "prepared")
	known, err := m.kept.Models()
	if err != nil || len(known) != 0 {
		t.Errorf("remembered %v, %v", known, err)
	}
	if m.seen[file].ready != "prepared" {
		t.Error("this process forgot where the model is prepared")
	}
	end()
}

// Two files are read at the same time: one that cannot be read to its end does not keep
// another from being read.
func TestFilesAreReadAtTheSameTime(t *testing.T) {
	var m Models
	slow, quick := filepath.Join(t.TempDir(), "slow.onnx"), filepath.Join(t.TempDir(), "quick.onnx")
	write(t, quick, "q")
	unlock := m.reading.Lock(slow) // As while it is read.
	defer unlock()
	if _, err := m.Hash(quick); err != nil {
		t.Error(err)
	}
}

// A model larger than the machine is refused by its size: reading a sparse file of 1 TiB would take a core for
// many minutes.
func TestModelLargerThanTheMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vast.onnx")
	write(t, file, "")
	if err := os.Truncate(file, 1<<40); err != nil {
		t.Skip(err)
	}
	m := &Models{}
	m.Largest = 8 << 30
	_, hashed := m.Hash(file)
	checked := m.Check(t.Context(), file, func(string) bool { return false })
	for _, err := range []error{hashed, checked} {
		if !errors.Is(err, latency.ErrPermanent) || !strings.Contains(err.Error(), "vast.onnx has 1048576 MiB with its weights, and this machine has 8192 MiB") {
			t.Errorf("%v", err)
		}
	}
}
