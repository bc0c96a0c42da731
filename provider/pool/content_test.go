package pool

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hashed returns the content of a bundle by its files. A hash is the file's text.
func hashed(t *testing.T, bundle string) (sum, apart string) {
	t.Helper()
	p := New(Options{Hash: func(file string) (string, error) {
		text, err := os.ReadFile(file)
		return fmt.Sprintf("%d %q", len(text), text[:min(9, len(text))]), err
	}})
	sum, apart, err := p.content(bundle, filepath.Join(bundle, "model.onnx"), "m")
	if err != nil {
		t.Fatal(err)
	}
	return sum, apart
}

// lay writes a bundle with these files. A text that begins with "-> " is a link.
func lay(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if to, is := strings.CutPrefix(text, "-> "); err == nil && is {
			err = os.Symlink(to, path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A bundle's content is what an instance reads, whether it lies in the bundle or behind links.
func TestContentOfBundles(t *testing.T) {
	large := strings.Repeat("x", largeFile)
	outside := lay(t, map[string]string{"one": "weights 1", "two": "weights 2", "large": large, "dir/x": "x"})
	plain := map[string]string{"model.onnx": "graph", "weights": "weights 1", "sub/labels": "cat"}
	first, _ := hashed(t, lay(t, plain))
	with := func(name, text string) map[string]string {
		other := map[string]string{name: text}
		for n, text := range plain {
			if n != name {
				other[n] = text
			}
		}
		return other
	}
	for what, c := range map[string]struct {
		files map[string]string
		same  bool
	}{
		"the same":                  {plain, true},
		"a linked file":             {with("weights", "-> "+outside+"/one"), true},
		"another linked file":       {with("weights", "-> "+outside+"/two"), false},
		"a link to nothing":         {with("weights", "-> nowhere"), false},
		"a file more":               {with("more", ""), false},
		"another name":              {map[string]string{"model.onnx": "graph", "weight": "weights 1", "sub/labels": "cat"}, false},
		"another byte":              {with("sub/labels", "cas"), false},
		"a large linked file":       {with("weights", "-> "+outside+"/large"), false},
		"a link inside the bundle":  {with("again", "-> sub"), false},
		"a link in a circle inside": {with("sub/again", "-> .."), false},
		"a tokenizer":               {with("tokenizer.json", "{}"), false},
	} {
		sum, apart := hashed(t, lay(t, c.files))
		if (sum == first) != c.same || apart != "" {
			t.Errorf("%s: the same is %v, want %v; apart %q", what, sum == first, c.same, apart)
		}
	}
	if _, apart := hashed(t, lay(t, with("data", "-> "+outside+"/dir"))); !strings.Contains(apart, "data in its bundle is a link to") {
		t.Errorf("a bundle with a directory elsewhere: %q", apart)
	}
}

// A bundle whose directory is a link has the content of that directory.
func TestContentOfALinkedBundle(t *testing.T) {
	for _, weights := range []string{"1", "2"} {
		dir := lay(t, map[string]string{"model.onnx": "graph", "weights": weights})
		link := filepath.Join(t.TempDir(), "bundle")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		sum, _ := hashed(t, dir)
		if linked, apart := hashed(t, link); linked != sum || apart != "" {
			t.Errorf("weights %s: the link has another content; %q", weights, apart)
		}
	}
}

// Functions of one model do not share instances if their tokenizers or what they do with texts differ.
func TestTextsAreContent(t *testing.T) {
	files := map[string]string{"model.onnx": "graph", "tokenizer.json": "{}", "bundle.yaml": "text: {max_length: 8}"}
	first, _ := hashed(t, lay(t, files))
	for name, text := range map[string]string{"tokenizer.json": `{"a":1}`, "bundle.yaml": "text: {max_length: 9}"} {
		other := maps.Clone(files)
		other[name] = text
		if sum, _ := hashed(t, lay(t, other)); sum == first {
			t.Errorf("another %s is the same content", name)
		}
	}
}
