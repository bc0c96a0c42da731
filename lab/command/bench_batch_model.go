package command

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/lab/batchmodel"
)

func newBatchModelCommand() *cobra.Command {
	var file string
	var asJSON bool
	c := &cobra.Command{
		Use:   "batch-model",
		Short: "Compare BATCH's latency model and the exact one with simulated percentiles",
		Long: `batch-model compares two models of the latency behind a dispatching buffer: the one
that BATCH (SC 2020) prints, and the exact one. It compares them with the percentiles
of long simulations, with each other on the service times of BATCH's evaluation, and
with the latencies of a recording's requests. It also compares the calculation for a
bounded number of instances with a simulation of their queue, and prints how long an
evaluation takes.

--vectors reads other test vectors, in the form of the built-in ones: a JSON array of
objects with Name, Arrival, D0 and D1 (the arrival process in 1/s), B, T (s), S (S[k-1]
s for a batch of k), SimP50, SimP95 and SimP99 (s).`,
		Example: `  faas-infer-lab bench batch-model
  faas-infer-lab bench batch-model --vectors my-vectors.json --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			vectors, err := readVectors(file)
			if err != nil {
				return err
			}
			name := "bench batch-model"
			if file != "" {
				name += " --vectors " + file
			}
			outcome, err := batchmodel.Run(name, vectors)
			if err != nil {
				return err
			}
			return printBatchModel(cmd.OutOrStdout(), outcome, asJSON)
		},
	}
	c.Flags().StringVar(&file, "vectors", "", "file of test vectors (default: the built-in ones)")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// readVectors reads the vectors of a file, or the built-in ones if file is "".
func readVectors(file string) ([]batchmodel.Vector, error) {
	if file == "" {
		return batchmodel.Builtin()
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("--vectors: %w", err)
	}
	defer f.Close()
	vectors, err := batchmodel.ReadVectors(f)
	if err != nil {
		return nil, fmt.Errorf("--vectors %s: %w", file, err)
	}
	return vectors, nil
}

func printBatchModel(out io.Writer, o *batchmodel.Outcome, asJSON bool) error {
	if asJSON {
		return o.Report.JSON(out)
	}
	for _, t := range o.Tables {
		if err := t.Print(out); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	return o.Report.Table(out)
}
