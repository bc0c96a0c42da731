package command

import (
	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/lab/harmonybatch"
)

func newHarmonyBatchCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "harmonybatch",
		Short: "Compare ways to group applications of one model: HarmonyBatch's, none, all in one, and the best",
		Long: `harmonybatch calculates what a request costs at the prices of serverless functions with cores or a part
of a GPU, if applications of one model with different objectives share functions and batches: in the groups of
HarmonyBatch (IWQoS 2024), each alone, all in one, and in the cheapest groups that there are. Costs are parts of
BATCH's, which gives each application a function on cores. Times and applications are the paper's.`,
		Example: "  faas-infer-lab bench harmonybatch",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := harmonybatch.Run("bench harmonybatch")
			if err != nil {
				return err
			}
			return r.Print(cmd.OutOrStdout(), asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
