package guide

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests can parse the pages, and the index has all pages. The root's TestLinksInDocuments
// follows the links.
func TestPages(t *testing.T) {
	index := read(t, "../../docs/README.md")
	for _, pattern := range []string{"*.md", "kubernetes/*.md"} {
		files, err := filepath.Glob(filepath.Join("../../docs", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("the guide has no pages %s: %v", pattern, err)
		}
		for _, file := range files {
			name, err := filepath.Rel("../../docs", file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Parse(read(t, file)); err != nil {
				t.Errorf("docs/%s: %v", name, err)
			}
			if name != "README.md" && !strings.Contains(index, "]("+name+")") {
				t.Errorf("docs/README.md does not lead to %s", name)
			}
		}
	}
}

// What a page makes in the reader's home. The first group is a name that no other page may use.
var (
	madeFolder   = regexp.MustCompile(`mkdir (?:-p )?\.\./([a-z-]+)`)
	madeFunction = regexp.MustCompile(`(?:faas-cli deploy --name|faas-cli new --lang [a-z-]+) ([a-z0-9-]+)`)
	madeImage    = regexp.MustCompile(`faas-infer (?:model )?bundle .*--image ([a-z0-9-]+)`)
	madeSecret   = regexp.MustCompile(`secret create ([a-z0-9-]+)`)
	inStack      = regexp.MustCompile(`(?m)^  ([a-z0-9-]+):\n    (?:image|lang|skip_build):`)
	listens      = regexp.MustCompile(`(?:--listen[a-z-]*|http\.server|-l) (?:127\.0\.0\.1)?:?([0-9]{4,5})`)
)

// A reader can follow the pages in any order in one home: each has its own folder, functions, images, secrets and ports.
// The state may be where XDG_STATE_HOME says.
func TestPagesShareNoNames(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	owner := map[string]string{}
	for _, file := range files {
		page := filepath.Base(file)
		if page == "kubernetes.md" || page == "from-faas-netes.md" {
			continue // A cluster has no home.
		}
		blocks, err := Parse(read(t, file))
		if err != nil {
			t.Fatal(err)
		}
		for kind, names := range namesIn(blocks) {
			for _, name := range names {
				key := kind + " " + name
				if owner[key] != "" && owner[key] != page {
					t.Errorf("%s and %s both use the %s", owner[key], page, key)
				}
				owner[key] = page
			}
		}
		for _, b := range blocks {
			for line := range strings.Lines(b.Text) {
				if strings.Contains(line, ".local/state") && !strings.HasPrefix(line, "STATE=${XDG_STATE_HOME:-~/.local/state}/faas-infer") {
					t.Errorf("%s, line %d: the state may be elsewhere: %s", page, b.Line, line)
				}
			}
		}
	}
	if len(owner) < 30 {
		t.Errorf("only %d names: %v", len(owner), owner)
	}
}

// A page says what its commands fetch when they run the first time.
func TestPagesSayWhatTheyFetch(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, file := range files {
		text := read(t, file)
		blocks, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			for command, says := range map[string]string{
				"make ready": "fetches ONNX Runtime", "scripts/python.sh": "Making it", "faas-infer model convert": "into your cache",
				"infer.variants: auto": "into your cache", "requirements:": "installs the packages",
			} {
				if b.Omitted == "" && strings.Contains(b.Text, command) {
					found[command] = true
					if !strings.Contains(strings.Join(strings.Fields(text), " "), says) {
						t.Errorf("%s, line %d: %q fetches packages, and the page does not say so: %q", filepath.Base(file), b.Line, command, says)
					}
				}
			}
		}
	}
	if len(found) < 4 {
		t.Errorf("only %v fetch something", found)
	}
}

// namesIn returns the names that a page uses, by their kind.
func namesIn(blocks []Block) map[string][]string {
	names := map[string][]string{}
	for _, b := range blocks {
		if b.Omitted != "" {
			continue
		}
		for kind, pattern := range map[string]*regexp.Regexp{
			"folder": madeFolder, "function": madeFunction, "image": madeImage, "secret": madeSecret, "port": listens,
		} {
			for _, m := range pattern.FindAllStringSubmatch(b.Text, -1) {
				names[kind] = append(names[kind], m[1])
			}
		}
		if b.File != "" && strings.Contains(b.Text, "\nfunctions:\n") {
			for _, m := range inStack.FindAllStringSubmatch(b.Text, -1) {
				names["function"] = append(names["function"], m[1])
			}
		}
	}
	return names
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
