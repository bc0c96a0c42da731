package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/e2e/guide"
)

// documents returns the documents that describe the programs.
func documents(t *testing.T) []string {
	t.Helper()
	all, err := guide.Documents(".")
	if err != nil {
		t.Fatal(err)
	}
	return all
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

// The flags and subcommands that the documents name exist. The lab's are tested there.
func TestFlagsInDocuments(t *testing.T) {
	for _, name := range documents(t) {
		for _, wrong := range guide.WrongCalls(document(t, name), command.NewRootCommand) {
			t.Errorf("%s: %s", name, wrong)
		}
	}
	for _, of := range []string{"provider", "up"} {
		c, _ := guide.Subcommand(command.NewRootCommand(), []string{of})
		for _, cells := range tableRows(t, document(t, "docs/reference.md"), "flag") {
			if flag := strings.TrimPrefix(guide.Spans(cells[0])[0], "--"); c.Flag(flag) == nil {
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
		for _, name := range guide.Spans(cells[0]) {
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
var annotated = []string{"provider/annotation", "provider/async/retry", "cluster/kubernetes/podspec", "papers/batch", "papers/infaas"}

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
			name := guide.Spans(cells[0])[0]
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

// The actions of workflows are given by commits, which nobody can move, with the version that a person reads.
func TestActionsAreGivenByCommits(t *testing.T) {
	pinned := regexp.MustCompile(`^[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	files, err := filepath.Glob(".github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("workflows: %v, %v", files, err)
	}
	for _, name := range files {
		for line := range strings.Lines(document(t, name)) {
			if _, action, found := strings.Cut(line, "uses: "); found && !pinned.MatchString(strings.TrimSpace(action)) {
				t.Errorf("%s: %q is not OWNER/NAME@COMMIT # vMAJOR.MINOR.PATCH", name, strings.TrimSpace(action))
			}
		}
	}
}
