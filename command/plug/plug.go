// Package plug holds the subcommands that rooms of papers add to the program. It knows none of them, and
// does not run them. Begin reading at [Command].
package plug

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// added is a subcommand with the path of its parent.
type added struct {
	parent string
	create func() *cobra.Command
}

var commands []added

// Command adds a subcommand to a command of the program, such as "model"; "" is the program itself. Rooms of
// papers call it when they are initialised.
func Command(parent string, create func() *cobra.Command) {
	commands = append(commands, added{parent, create})
}

// AddTo makes the subcommands and adds them to a program. A parent that is not there, or a name that is
// taken, panics.
func AddTo(root *cobra.Command) {
	for _, a := range commands {
		parent, rest, err := root.Find(strings.Fields(a.parent))
		if err != nil || len(rest) > 0 {
			panic("there is no command " + a.parent + " for a subcommand")
		}
		c := a.create()
		if slices.ContainsFunc(parent.Commands(), func(other *cobra.Command) bool { return other.Name() == c.Name() }) {
			panic("two commands are named " + parent.CommandPath() + " " + c.Name())
		}
		parent.AddCommand(c)
	}
}
