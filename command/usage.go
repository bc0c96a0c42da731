package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageExit is the exit code after a wrong call of the program: an unknown command or flag, a wrong
// number of arguments, a missing flag, or a value that the program refuses before it does anything.
const usageExit = 2

// usageError is a wrong call of the program.
type usageError struct{ error }

// Unwrap returns the error without its mark.
func (e usageError) Unwrap() error { return e.error }

// usage marks an error as a wrong call, nil as nil.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// strict makes a program refuse unknown subcommands at every level, where cobra prints the help and reports
// success, and marks errors about arguments and flags as wrong calls.
func strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(wrongFlag)
	refuseUnknown(root)
}

func refuseUnknown(c *cobra.Command) {
	for _, sub := range c.Commands() {
		refuseUnknown(sub)
	}
	validate := c.Args
	switch {
	case c.Parent() != nil && c.Parent().Parent() == nil && c.Name() == "help":
		validate = helpTopic
	case c.HasSubCommands() && !c.Runnable():
		validate = func(c *cobra.Command, words []string) error {
			if len(words) > 0 {
				return unknownCommand(c, words[0])
			}
			return nil
		}
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	case validate == nil:
		validate = cobra.ArbitraryArgs
	}
	c.Args = func(c *cobra.Command, words []string) error {
		if err := validate(c, words); err != nil {
			if strings.HasSuffix(err.Error(), fmt.Sprintf("for %q", c.CommandPath())) && !c.HasSubCommands() { // Of [cobra.NoArgs].
				err = fmt.Errorf("%s takes no arguments, but was given %q", c.CommandPath(), words[0])
			} else if strings.Contains(err.Error(), "arg(s)") { // Of [cobra.ExactArgs] and the like.
				err = fmt.Errorf("the usage is %q, but %s given", strings.TrimSuffix(c.UseLine(), " [flags]"), numberOf(len(words)))
			}
			return usage(seeHelp(c, err))
		}
		return usage(errors.Join(c.ValidateRequiredFlags(), c.ValidateFlagGroups()))
	}
}

// helpTopic refuses "help" for a command that does not exist.
func helpTopic(c *cobra.Command, words []string) error {
	at, rest, err := c.Root().Find(words)
	if err != nil || len(rest) > 0 && !at.HasSubCommands() {
		return nil // The rest are arguments of the command.
	}
	if len(rest) > 0 {
		return unknownCommand(at, rest[0])
	}
	return nil
}

func unknownCommand(c *cobra.Command, word string) error {
	c.SuggestionsMinimumDistance = 2
	return fmt.Errorf("unknown command %q for %q%s", word, c.CommandPath(), didYouMean(c.SuggestionsFor(word)))
}

// wrongFlag explains an error of a command's flags. A flag of an unknown subcommand is unknown, too: then
// the subcommand is the error.
func wrongFlag(c *cobra.Command, err error) error {
	if words := c.Flags().Args(); len(words) > 0 && c.HasSubCommands() {
		return usage(seeHelp(c, unknownCommand(c, words[0])))
	}
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, "--"+f.Name)
			}
		})
		err = fmt.Errorf("%w%s", err, didYouMean(similar("--"+unknown.GetSpecifiedName(), names)))
	}
	return usage(seeHelp(c, err))
}

func seeHelp(c *cobra.Command, err error) error {
	if strings.HasSuffix(err.Error(), "?") {
		return fmt.Errorf("%w See %s --help", err, c.CommandPath())
	}
	return fmt.Errorf("%w; see %s --help", err, c.CommandPath())
}

// numberOf says how many arguments there were.
func numberOf(n int) string {
	switch n {
	case 0:
		return "no argument was"
	case 1:
		return "1 argument was"
	}
	return fmt.Sprintf("%d arguments were", n)
}

// similar returns the names that a word may have been meant for, by cobra's own measure.
func similar(word string, names []string) []string {
	c := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		c.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	return c.SuggestionsFor(word)
}

// didYouMean asks about names, "" about none.
func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	if len(names) > 3 {
		names = names[:3]
	}
	return "; did you mean " + strings.Join(names, " or ") + "?"
}
