package install

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/kubernetes"
)

var (
	option  = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| ")
	address = regexp.MustCompile(`https?://\S+`)
	path    = regexp.MustCompile(`\b(?:yaml|scripts|docs)/[a-z][a-zA-Z0-9./-]*[a-z]`)
)

// documents returns the pages on Kubernetes, one after the other.
func documents(t *testing.T) string {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(root, "docs", "kubernetes", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("there are no pages: %v", err)
	}
	var all strings.Builder
	for _, page := range append([]string{filepath.Join(root, "docs", "kubernetes.md")}, pages...) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// The files and options that the pages on Kubernetes name exist.
func TestDocument(t *testing.T) {
	document := documents(t)
	for _, name := range path.FindAllString(address.ReplaceAllString(document, ""), -1) {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
	_, table, _ := strings.Cut(document, "| option |")
	table, _, _ = strings.Cut(table, "\n## ")
	var named []string
	for _, m := range option.FindAllStringSubmatch(table, -1) {
		named = append(named, m[1])
	}
	slices.Sort(named)
	entries, err := os.ReadDir(filepath.Join(root, "yaml", "options"))
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, e := range entries {
		there = append(there, e.Name())
	}
	if !slices.Equal(named, there) {
		t.Errorf("the table has the options %q, there are %q", named, there)
	}
}

// The provider has the flags in the manifests, and the image commands have those in the
// document.
func TestFlags(t *testing.T) {
	checkFlags(t, kustomized(t, options, nil), 5)
	for _, call := range regexp.MustCompile(`faas-infer-kubernetes (image [a-z]+)((?:[^\n\\]|\\\n)*)`).FindAllStringSubmatch(documents(t), -1) {
		c, rest, err := kubernetes.NewRootCommand().Find(strings.Fields(call[1]))
		if err != nil || len(rest) > 0 {
			t.Errorf("there is no command %s: %v", call[1], err)
			continue
		}
		for _, m := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(call[2], -1) {
			if c.Flag(m[1]) == nil {
				t.Errorf("%s has no flag --%s", call[1], m[1])
			}
		}
	}
}

// checkFlags checks that the provider has the flags that objects give it, at least so many.
func checkFlags(t *testing.T, text string, least int) {
	t.Helper()
	provider, _, err := kubernetes.NewRootCommand().Find([]string{"provider"})
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = strings.Cut(text, "- provider\n")
	text, _, _ = strings.Cut(text, "env:")
	flags := regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(text, -1)
	if len(flags) < least {
		t.Fatalf("the provider has only the flags %q", flags)
	}
	for _, m := range flags {
		if provider.Flag(m[1]) == nil {
			t.Errorf("the provider has no flag --%s", m[1])
		}
	}
}
