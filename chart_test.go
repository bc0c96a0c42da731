package main_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	chartValues = "yaml/chart/faas-infer/values.yaml"
	chartReadme = "yaml/chart/faas-infer/README.md"
)

var update = flag.Bool("update", false, "write what is generated")

// The table in the chart's README has all values, with the defaults and the comments of values.yaml.
// go test -run TestChartReadme . -update writes it.
func TestChartReadme(t *testing.T) {
	var values yaml.Node
	if err := yaml.Unmarshal([]byte(document(t, chartValues)), &values); err != nil {
		t.Fatal(err)
	}
	v := valuesTable{commented: map[string]bool{}}
	v.add(t, "", values.Content[0])
	const begin, end = "<!-- values:begin -->\n", "<!-- values:end -->"
	text := document(t, chartReadme)
	before, rest, found := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the values", chartReadme)
	}
	want := before + begin + "| value | default | what it is |\n| --- | --- | --- |\n" + strings.Join(v.rows,
		"") + end + after
	if text == want {
		return
	}
	if !*update {
		t.Fatalf("%s is not up to date: run go test -run TestChartReadme . -update", chartReadme)
	}
	if err := os.WriteFile(chartReadme, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// valuesTable collects the rows of a table of values.
type valuesTable struct {
	rows []string
	// commented are the values that have a comment.
	commented map[string]bool
}

// add adds the values of a map whose keys begin with a prefix.
func (v *valuesTable) add(t *testing.T, prefix string, values *yaml.Node) {
	t.Helper()
	for i := 0; i+1 < len(values.Content); i += 2 {
		key, value := values.Content[i], values.Content[i+1]
		name := prefix + key.Value
		what := v.describe(key.HeadComment, name)
		if what == "" {
			t.Errorf("%s: %s has no comment", chartValues, name)
		}
		if !splits(value) {
			v.row(name, jsonOf(t, value), what)
			continue
		}
		v.row(name, "", what)
		v.add(t, name+".", value)
	}
}

// describe returns what a value is: its comment, or that it is as another one with the same name.
func (v *valuesTable) describe(comment, name string) string {
	if comment != "" {
		v.commented[name] = true
		lines := strings.Split(comment, "\n")
		for i, line := range lines {
			lines[i] = strings.TrimSpace(strings.TrimPrefix(line, "#"))
		}
		return strings.Join(lines, " ")
	}
	switch name[strings.LastIndex(name, ".")+1:] {
	case "enabled":
		return "Turns it on."
	case "annotations":
		return "Its annotations."
	case "labels":
		return "Its labels."
	}
	for rest := name; ; {
		_, after, found := strings.Cut(rest, ".")
		if !found {
			return ""
		}
		if v.commented[after] {
			return "As `" + after + "`."
		}
		// Monitors have the same keys.
		if v.commented["podMonitor."+after] {
			return "As `podMonitor." + after + "`."
		}
		rest = after
	}
}

// splits says whether a value is shown key by key: one of its keys turns it on, or has a comment.
func splits(value *yaml.Node) bool {
	if value.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i+1 < len(value.Content); i += 2 {
		key := value.Content[i]
		if key.Value == "enabled" || key.HeadComment != "" || splits(value.Content[i+1]) {
			return true
		}
	}
	return false
}

// row adds a row.
func (v *valuesTable) row(name, value, what string) {
	if value != "" {
		value = "`" + value + "`"
	}
	v.rows = append(v.rows, fmt.Sprintf("| `%s` | %s | %s |\n", name, strings.ReplaceAll(value, "|", `\|`),
		strings.ReplaceAll(what, "|", `\|`)))
}

// jsonOf returns a value as JSON.
func jsonOf(t *testing.T, value *yaml.Node) string {
	t.Helper()
	var decoded any
	if err := value.Decode(&decoded); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(decoded)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
