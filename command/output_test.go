package command

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/faas-infer/faas-infer/command/commandtest"
)

// Every command that prints JSON prints YAML, too.
func TestEveryTableHasFormats(t *testing.T) {
	var missing []string
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Flags().Lookup("json") != nil && c.Flags().Lookup("output") == nil {
			missing = append(missing, c.CommandPath())
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(NewRootCommand())
	if len(missing) > 0 {
		t.Errorf("no --output: %v", missing)
	}
	file := commandtest.ZooModel(t, "mnist", 1)
	text, err := execute(t, "model", "show", file, "-o", "yaml")
	var graph map[string]any
	if err != nil || strings.Contains(text, "{\n") || yaml.Unmarshal([]byte(text), &graph) != nil || graph["operators"] == nil {
		t.Errorf("%v\n%.300s", err, text)
	}
	same, err := execute(t, "model", "show", file, "--json")
	if again, err := execute(t, "model", "show", file, "-o", "json"); err != nil || again != same {
		t.Errorf("%v\n%.300s", err, again)
	}
	if table, err := execute(t, "model", "show", file, "-o", "table"); err != nil || !strings.Contains(table, "OPERATOR") {
		t.Errorf("%v\n%.300s", err, table)
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := execute(t, "model", "show", file, "-o", "xml"); err == nil || !strings.Contains(err.Error(), "table, wide, json, yaml") {
		t.Error(err)
	}
}
