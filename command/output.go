package command

import (
	"bytes"
	"strings"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
)

// withOutput gives --output to all commands that print JSON with --json and have no --output of their own.
func withOutput(c *cobra.Command) {
	for _, sub := range c.Commands() {
		withOutput(sub)
	}
	flags := c.Flags()
	asJSON := flags.Lookup("json")
	if asJSON == nil || c.RunE == nil || flags.Lookup("output") != nil {
		return
	}
	short := "o"
	if flags.ShorthandLookup(short) != nil {
		short = ""
	}
	out := &report.Output{}
	flags.VarP(out, "output", short, "how to print the result: "+strings.Join(report.Formats, ", ")+"; wide is table here")
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if !out.Raw() {
			return run(c, args)
		}
		if err := asJSON.Value.Set("true"); err != nil {
			return err
		}
		w := c.OutOrStdout()
		var text bytes.Buffer
		c.SetOut(&text)
		err := run(c, args)
		c.SetOut(w)
		if text.Len() == 0 {
			return err
		}
		if failed := out.WriteJSON(w, text.Bytes()); failed != nil {
			return failed
		}
		return err // Some commands print a result and fail because of it.
	}
}
