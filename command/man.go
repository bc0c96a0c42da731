package command

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/faas-infer/faas-infer/command/report"
)

// newManCommand returns "faas-infer man".
func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write a man page for each command",
		Long:  `man writes pages of section 1 into a directory, which it makes if it is missing. They have all flags.
Their date is today, or $SOURCE_DATE_EPOCH.`,
		Example: `  faas-infer man ~/.local/share/man/man1
  man faas-infer-up`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := c.Root()
			root.DisableAutoGenTag = true
			header := &doc.GenManHeader{Section: "1", Source: "faas-infer " + report.Version(), Manual: "faas-infer"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "Wrote the man pages in %s.\n", args[0])
			return nil
		},
	}
}
