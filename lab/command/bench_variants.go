package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/lab/variants"
)

func newVariantsBenchCommand() *cobra.Command {
	var b variants.Bench
	var asJSON bool
	c := &cobra.Command{
		Use:   "variants",
		Short: "Time decisions about variants of models, and compare INFaaS' integer program with HiGHS",
		Long: `variants times the choice of a variant among 10,000 (INFaaS, Algorithm 1): for queries
that name a model, for others, and with no variant loaded. It then solves random
instances of INFaaS' integer program (§4.2.1) for 50 and 100 architectures that share a
cluster, and compares the costs for 100 with those of HiGHS. The first run fetches HiGHS
from PyPI.`,
		Example: `  faas-infer-lab bench variants
  faas-infer-lab bench variants --programs 20 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.Decisions < 100 || b.Programs < 1 {
				return errors.New("--decisions must be at least 100, --programs at least 1")
			}
			r, err := variants.Run(cmd.Context(), fmt.Sprintf("bench variants --decisions %d --programs %d", b.Decisions, b.Programs), b)
			if err != nil {
				return err
			}
			return r.Print(cmd.OutOrStdout(), asJSON)
		},
	}
	c.Flags().IntVar(&b.Decisions, "decisions", 100_000, "number of queries of each kind")
	c.Flags().IntVar(&b.Programs, "programs", 10, "number of integer programs of each size")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
