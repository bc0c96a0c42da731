package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/faas-infer/faas-infer/instance/engine"
)

const record engine.Record = "record.json"

func bundle(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sub", "file"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestHashesTellContents(t *testing.T) {
	seen := map[string]string{}
	for name, c := range map[string]struct{ text, beside string }{"one": {"a", "x"}, "two": {"b", "x"}, "three": {"a", "y"}} {
		dir := bundle(t, c.text)
		hash, err := engine.HashPrepared(dir, c.beside)
		if err != nil || seen[hash] != "" {
			t.Errorf("%s has the hash %s of %q, %v", name, hash, seen[hash], err)
		}
		seen[hash] = name
		if again, err := engine.HashPrepared(bundle(t, c.text), c.beside); err != nil || again != hash {
			t.Errorf("%s elsewhere has %s, %v, and not %s", name, again, err, hash)
		}
	}
	if _, err := engine.HashPrepared(filepath.Join(t.TempDir(), "none"), ""); err == nil {
		t.Error("no directory has a hash")
	}
}

// Keep gives every concurrent caller the complete directory.
func TestKeepingTogether(t *testing.T) {
	from, cache := bundle(t, "a"), t.TempDir()
	dir := filepath.Join(cache, "deep", "kept")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			err := record.Keep(from, dir, func(kept string) any { return map[string]string{"at": kept} })
			if err != nil || !record.In(dir) {
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	var told map[string]string
	if err := record.Read(dir, &told); err != nil || told["at"] != filepath.Join(dir, "bundle") {
		t.Errorf("%v, %v", told, err)
	}
	if text, err := os.ReadFile(filepath.Join(told["at"], "sub", "file")); err != nil || string(text) != "a" {
		t.Errorf("%q, %v", text, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
		t.Errorf("%d things are left, %v", len(entries), err)
	}
}

func TestWhatIsNotPrepared(t *testing.T) {
	dir := t.TempDir()
	var into map[string]string
	if err := record.Read(dir, &into); err == nil || record.In(dir) || !strings.Contains(err.Error(), "the prepared model") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, string(record)), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := record.Read(dir, &into); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("%v", err)
	}
}
