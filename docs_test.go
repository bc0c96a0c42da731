package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command"
	lab "github.com/faas-infer/faas-infer/lab/command"
)

// documents returns the documents that describe the program: those at the root, the
// guide's and those on the design.
func documents(t *testing.T) []string {
	t.Helper()
	guide, err := filepath.Glob("docs/*.md")
	if err != nil || len(guide) == 0 {
		t.Fatalf("the guide has no pages: %v", err)
	}
	design, err := filepath.Glob("docs/design/*.md")
	if err != nil || len(design) == 0 {
		t.Fatalf("there are no pages on the design: %v", err)
	}
	repeated, err := filepath.Glob("docs/reproduction/*.md")
	if err != nil || len(repeated) == 0 {
		t.Fatalf("there are no pages on the papers: %v", err)
	}
	onKubernetes, err := filepath.Glob("docs/kubernetes/*.md")
	if err != nil || len(onKubernetes) == 0 {
		t.Fatalf("there are no pages on Kubernetes: %v", err)
	}
	return slices.Concat([]string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "BENCHMARKS.md"}, guide, design, repeated, onKubernetes)
}

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tableRows returns the cells of the table below a header that begins with first.
func tableRows(t *testing.T, text, first string) (rows [][]string) {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n| "+first+" |")
	if !found {
		t.Fatalf("there is no table that begins with %q", first)
	}
	for i, line := range strings.Split(rest, "\n") {
		switch {
		case i < 2: // The header's end, and the line below it.
		case !strings.HasPrefix(line, "|"):
			return rows
		default:
			cells := strings.Split(strings.Trim(line, "|"), " | ")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

var quoted = regexp.MustCompile("`([^`\n]*)`")

// spans returns the texts in backquotes, except those that a line's end breaks.
func spans(text string) (all []string) {
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// subcommand finds the command that the words after a program's name call, and the
// words left over.
func subcommand(program string, words []string) (c *cobra.Command, rest []string) {
	c = command.NewRootCommand()
	if program == "faas-infer-lab" {
		c = lab.NewRootCommand()
	}
	for len(words) > 0 {
		next := slices.IndexFunc(c.Commands(), func(s *cobra.Command) bool { return s.Name() == words[0] })
		if next < 0 {
			break
		}
		c, words = c.Commands()[next], words[1:]
	}
	c.InitDefaultHelpFlag()
	return c, words
}

var (
	called = regexp.MustCompile(`(?:^|[ /(])(faas-infer|faas-infer-lab) ([a-z][^|;&)#]*)`)
	aFlag  = regexp.MustCompile(`--[a-z][a-z-]*`)
)

// The flags and subcommands that the documents name exist.
func TestFlagsInDocuments(t *testing.T) {
	for _, name := range documents(t) {
		text := strings.ReplaceAll(document(t, name), "\\\n", "")
		var calls []string
		for _, part := range strings.Split(text, "```") {
			calls = append(calls, strings.Split(part, "\n")...)
		}
		for _, call := range append(calls, spans(text)...) {
			// In prose the program's name is followed by other words.
			if !strings.Contains(call, "faas-infer ") && !strings.Contains(call, "faas-infer-lab ") || strings.Contains(call, "`") {
				continue
			}
			for _, m := range called.FindAllStringSubmatch(call, -1) {
				c, rest := subcommand(m[1], strings.Fields(m[2]))
				if !c.HasParent() && strings.Contains(call, "bin/faas-infer") {
					t.Errorf("%s: no such command: %s", name, call)
				}
				for _, flag := range aFlag.FindAllString(strings.Join(rest, " "), -1) {
					if c.HasParent() && c.Flag(strings.TrimPrefix(flag, "--")) == nil {
						t.Errorf("%s: %s has no flag %s: %s", name, c.CommandPath(), flag, call)
					}
				}
			}
		}
	}
	for _, of := range []string{"provider", "up"} {
		c, _ := subcommand("faas-infer", []string{of})
		for _, cells := range tableRows(t, document(t, "docs/reference.md"), "flag") {
			if flag := strings.TrimPrefix(spans(cells[0])[0], "--"); c.Flag(flag) == nil {
				t.Errorf("docs/reference.md: %s has no flag --%s", of, flag)
			}
		}
	}
}

// metric matches where the provider's code makes a metric: by a helper or by its whole
// name.
var metric = regexp.MustCompile(`(?:histogram|counter|gauge|name)\("([a-z_]+)"|BuildFQName\(namespace, "", "([a-z_]+)"`)

// The table of metrics has exactly the names that the provider's code makes.
func TestMetricsTable(t *testing.T) {
	made := map[string]bool{}
	for _, s := range sources(t) {
		if s.test() || !within(s.folder, "provider") {
			continue
		}
		text, prefix := document(t, s.name), ""
		if !strings.Contains(text, "prometheus.BuildFQName(") {
			continue
		}
		if within(s.folder, "provider/async") {
			prefix = "async_"
		}
		for _, m := range metric.FindAllStringSubmatch(text, -1) {
			made[prefix+m[1]+m[2]] = true
		}
	}
	shown := map[string]bool{}
	for _, cells := range tableRows(t, document(t, "docs/design/metrics.md"), "name `faas_infer_…`") {
		for _, name := range spans(cells[0]) {
			shown[name] = true
			if !made[name] {
				t.Errorf("the table has faas_infer_%s, which no code makes", name)
			}
		}
	}
	for name := range made {
		if !shown[name] {
			t.Errorf("the table lacks faas_infer_%s", name)
		}
	}
}

// key matches an annotation of OpenFaaS that the provider's code names. For health and
// readiness probes it matches the beginning of the name.
var key = regexp.MustCompile(`"(com\.openfaas\.(?:(?:slo|infer|scale|retry)\.[a-z_.-]+|(?:health|ready)\.http\.|profile|serviceaccount|limits\.gpu))"`)

// annotated lists the folders that read annotations.
var annotated = []string{"provider/annotation", "provider/async/retry", "cluster/kubernetes/podspec"}

// The reference has every annotation that the provider reads, and its tables have no
// other.
func TestAnnotationTables(t *testing.T) {
	read := map[string]bool{}
	for _, s := range sources(t) {
		if s.test() || !slices.Contains(annotated, s.folder) {
			continue
		}
		for _, m := range key.FindAllStringSubmatch(document(t, s.name), -1) {
			read[m[1]] = true
		}
	}
	text := document(t, "docs/reference.md")
	for _, part := range strings.SplitAfter(text, "\n### ")[1:] {
		if !strings.Contains(part, "\n| key |") {
			continue
		}
		for _, cells := range tableRows(t, part, "key") {
			name := spans(cells[0])[0]
			if !read[name] {
				t.Errorf("docs/reference.md has %s, which no code reads", name)
			}
		}
	}
	for name := range read {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/reference.md lacks %s", name)
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fenced  = regexp.MustCompile("(?s)```.*?\n```")
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the anchors of a document's headings.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		plain := dropped.ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(plain, " ", "-"))
	}
	return all
}

// Links between the documents lead to a file and a heading.
func TestLinksInDocuments(t *testing.T) {
	for _, name := range documents(t) {
		text := fenced.ReplaceAllString(document(t, name), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			to := text
			if file != "" {
				file = filepath.Join(filepath.Dir(name), filepath.FromSlash(file))
				if _, err := os.Stat(file); err != nil {
					t.Errorf("%s links to %s: %v", name, m[1], err)
					continue
				}
				if anchor == "" {
					continue // It may be a folder.
				}
				to = document(t, file)
			}
			if anchor != "" && !slices.Contains(anchors(to), anchor) {
				t.Errorf("%s links to %s, and there is no such heading", name, m[1])
			}
		}
	}
}
