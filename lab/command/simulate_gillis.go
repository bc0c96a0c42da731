package command

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/gillis"
)

// newSimulateGillisCommand returns "faas-infer-lab simulate gillis".
func newSimulateGillisCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "gillis",
		Short: "Repeat the evaluation of Gillis with its published coefficients",
		Long: `gillis plans how models are cut over functions on Lambda, Google Cloud Functions and
KNIX, with the coefficients of Gillis' release (ICDCS 2021): the least latency (Fig. 9 and
10), large models against a pipeline (Fig. 11), and the least cost under an SLO (Fig. 13).
"gillis" has the published options and gives the
master a part whenever it fits; "ours" has the same computation and network, our options,
and our codec as measured on this machine. The paper's figures stand in the notes.`,
		Example: `  faas-infer-lab simulate gillis
  faas-infer-lab simulate gillis --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := gillis.Run(cmd.Context(), "simulate gillis", report.ProgressBar(os.Stderr, "planning"))
			if err != nil {
				return err
			}
			if asJSON {
				return r.JSON(cmd.OutOrStdout())
			}
			return r.Table(cmd.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
