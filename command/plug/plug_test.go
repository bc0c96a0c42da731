package plug

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A subcommand is added below its parent. A parent that is not there and a name that is taken panic.
func TestCommand(t *testing.T) {
	program := func() *cobra.Command {
		root, model := &cobra.Command{Use: "program"}, &cobra.Command{Use: "model"}
		model.AddCommand(&cobra.Command{Use: "show"})
		root.AddCommand(model)
		return root
	}
	for _, c := range []struct {
		parent, name string
		panics       bool
	}{{"model", "cut", false}, {"", "cut", false}, {"model", "show", true}, {"mode", "cut", true}, {"", "model", true}} {
		t.Run(c.parent+" "+c.name, func(t *testing.T) {
			defer func(before []added) { commands = before }(commands)
			Command(c.parent, func() *cobra.Command { return &cobra.Command{Use: c.name} })
			root := program()
			defer func() {
				found, rest, err := root.Find(strings.Fields(c.parent + " " + c.name))
				if panicked := recover() != nil; panicked != c.panics || !panicked && (err != nil || len(rest) > 0 || found.Name() != c.name) {
					t.Errorf("panics: %v; found %v, %v, %v", panicked, found.Name(), rest, err)
				}
			}()
			AddTo(root)
		})
	}
}
