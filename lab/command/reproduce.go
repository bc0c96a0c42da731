package command

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/reproduction"
)

// newReproduceCommand returns "faas-infer-lab reproduce".
func newReproduceCommand() *cobra.Command {
	var dir, keep string
	var asJSON bool
	c := &cobra.Command{
		Use:   "reproduce SEED",
		Short: "Repeat a paper's evaluation: each published figure beside ours, and why not",
		Long: `reproduce runs all that belongs to one paper and prints a table: each published value,
the value that the published system has in simulation, faas-infer's own, and whether the
paper was repeated, or why not. The commands that it runs stand on the page; each can be
run alone.

--plot DIR also writes a page, DIR/SEED.md, with all tables, and the drawings in DIR/SEED.
The pages in docs/reproduction are made this way.

--keep DIR keeps the outcome of each part there once the part has ended. A later run takes
what DIR has and calculates the rest, so that a run that was cut off can go on. It does not
check that the same faas-infer-lab made the outcomes: table and page name their commits.
Remove a part's file to calculate it again.

infless takes longest: 29 minutes on two cores of an AMD EPYC, beside other work (commits
df57c7cb96f1 and c929437cd99a).

` + namedList("Seeds", seedList()),
		Example: `  faas-infer-lab reproduce infaas
  faas-infer-lab reproduce infless --keep parts --plot docs/reproduction
  faas-infer-lab reproduce batch --plot docs/reproduction
  faas-infer-lab reproduce gillis --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%d seeds given, reproduce takes one: %s", len(args), strings.Join(seedNames(), ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			seed, err := reproduction.ByName(args[0])
			if err != nil {
				return err
			}
			if err := makeDir("plot", dir); err != nil {
				return err
			}
			if err := makeDir("keep", keep); err != nil {
				return err
			}
			o, err := reproduction.Run(cmd.Context(), seed, reproduction.Options{
				Keep: keep, Progress: report.ProgressBar(os.Stderr, "reproducing "+seed.Name), Ended: ended(cmd.ErrOrStderr(), keep),
			})
			if err != nil {
				return err
			}
			if dir != "" {
				if err := o.Write(dir); err != nil {
					return fmt.Errorf("--plot: %w", err)
				}
			}
			if asJSON {
				return o.Report.JSON(cmd.OutOrStdout())
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n%s, commit %s\n\n", o.Report.Command, seed.Paper, o.Report.Machine, o.Report.Commit)
			return o.Table(cmd.OutOrStdout())
		},
	}
	c.Flags().StringVar(&dir, "plot", "", "directory for the page and the drawings (SVG)")
	c.Flags().StringVar(&keep, "keep", "", "directory that keeps the outcome of each finished part; a part that it has is not run again")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object with all results")
	return c
}

// ended returns what writes a line of each part, nil if no outcomes are kept.
func ended(w io.Writer, keep string) func(p *reproduction.Part, had bool) {
	if keep == "" {
		return nil
	}
	return func(p *reproduction.Part, had bool) {
		if had {
			fmt.Fprintf(w, "%s: taken from %s, of commit %s\n", p.Name, keep, p.Commit)
			return
		}
		fmt.Fprintf(w, "%s: took %.0f s, kept in %s\n", p.Name, p.Took.Seconds(), keep)
	}
}

func seedList() (rows [][2]string) {
	for _, s := range reproduction.Seeds() {
		rows = append(rows, [2]string{s.Name, s.Paper})
	}
	return rows
}

func seedNames() (names []string) {
	for _, s := range reproduction.Seeds() {
		names = append(names, s.Name)
	}
	return names
}
