package python_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/instance/python/environment"
)

func TestCheckDoesNotRunAHandler(t *testing.T) {
	for source, want := range map[string]string{
		"def handle(batch): return batch\nimport nosuchmodule\nraise ValueError": "",
		"from mine import handle":                "",
		"from mine import *":                     "",
		"handle = lambda batch: batch":           "",
		"def load(path): pass":                   "handler.py has no function handle(batch)",
		"def handle(batch)\n    return batch":    "handler.py, line 1: SyntaxError: expected ':'",
		"async def handle(batch): return batch ": "",
	} {
		err := python.Check(t.Context(), write(t, map[string]string{"bundle.yaml": handlerManifest, "handler.py": source}))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", source, err, want)
		}
	}
}

// A model for TensorFlow that is no Keras file is refused with what it is.
func TestCheckRefusesOtherFiles(t *testing.T) {
	const manifest = "engine: tensorflow\nmodel: model.keras\n"
	for text, want := range map[string]string{
		"\x89HDF\r\n\x1a\n":    "",
		"GGUF\x03\x00\x00\x00": "model.keras: not a Keras file: it is a language model in GGUF",
		"":                     "it is an empty file",
	} {
		err := python.Check(t.Context(), write(t, map[string]string{"bundle.yaml": manifest, "model.keras": text}))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A changed file gives another prepared bundle. A prepared bundle does not change with its
// original.
func TestPreparedBundles(t *testing.T) {
	manifest := write(t, map[string]string{"bundle.yaml": handlerManifest, "handler.py": "def handle(batch): pass", "data/words": "one"})
	cache := t.TempDir()
	first, err := python.Prepare(t.Context(), manifest, cache)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := python.Prepare(t.Context(), manifest, cache); err != nil || again != first {
		t.Errorf("again: %s, %v", again, err)
	}
	words := filepath.Join(filepath.Dir(manifest), "data/words")
	if err := os.WriteFile(words, []byte("two"), 0o644); err != nil {
		t.Fatal(err)
	}
	if second, err := python.Prepare(t.Context(), manifest, cache); err != nil || second == first {
		t.Errorf("changed: %s, %v", second, err)
	}
	p, err := python.Read(first)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(p.Dir, "data/words")); err != nil || string(text) != "one" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestRequirementsThatCannotBeInstalled(t *testing.T) {
	t.Setenv("PIP_NO_INDEX", "1") // The answer is the same, and sooner.
	_, err := python.Prepare(t.Context(), write(t, map[string]string{
		"bundle.yaml": handlerManifest + "requirements: r.txt\n", "handler.py": "def handle(batch): pass", "r.txt": "no-such-distribution-anywhere==1\n",
	}), t.TempDir())
	if !errors.Is(err, environment.ErrRequirements) || !strings.Contains(err.Error(), "No matching distribution found for ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

func TestTheScriptMakesTheSameEnvironment(t *testing.T) {
	env, err := environment.Ensure(t.Context(), "python", "")
	if err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), "../../scripts/python.sh", "python").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(said)); got != env.Python {
		t.Errorf("the script says %s, and it is %s", got, env.Python)
	}
}
