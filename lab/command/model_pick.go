package command

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/infaas"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/variant"
)

func newModelPickCommand() *cobra.Command {
	var variants, queries string
	var asJSON bool
	c := &cobra.Command{
		Use:   "pick",
		Short: "Find the variant of a model that answers each query",
		Long: `pick says which variant of an application's models answers a query that asks for
accuracy and latency (INFaaS, Algorithm 1): the active variant that is cheapest per
request, otherwise the inactive one that is loaded and done soonest, otherwise one that
is overloaded or interfered.

The variants are comma-separated values with the columns model, variant, hardware, state
(inactive, active, overloaded, interfered), latency_ms, rps, load_ms, memory_mb, accuracy
and cost (of an instance). The queries have the columns accuracy, latency_ms and model;
an empty field asks nothing.

pick.N is the row of the variant for query N, from 1 after the header. It is 0 if no
variant is accurate and fast enough; the note then names the nearest.`,
		Example: `  faas-infer-lab model pick --variants variants.csv --queries queries.csv
  faas-infer-lab model pick --variants variants.csv --queries queries.csv --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			rows, err := readTable("variants", variants, infaas.ReadVariants)
			if err != nil {
				return err
			}
			asked, err := readTable("queries", queries, infaas.ReadQueries)
			if err != nil {
				return err
			}
			return pick("model pick --variants "+variants+" --queries "+queries, rows, asked).Print(c.OutOrStdout(), asJSON)
		},
	}
	c.Flags().StringVar(&variants, "variants", "", "file of variants (required)")
	c.Flags().StringVar(&queries, "queries", "", "file of queries (required)")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	requireFlags(c, "variants", "queries")
	return c
}

// requireFlags marks flags as required. They must be defined.
func requireFlags(c *cobra.Command, names ...string) {
	for _, name := range names {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
}

// readTable reads the file of a flag. An error names both.
func readTable[T any](flag, file string, read func(io.Reader) ([]T, error)) ([]T, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	defer f.Close()
	rows, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("--%s: %s: %w", flag, file, err)
	}
	return rows, nil
}

// pick answers queries from a table of variants.
func pick(command string, rows []registration.Placed, queries []variant.Query) *report.Report {
	r := report.New(command, time.Now())
	table, dominators := infaas.NewTable(rows), registration.Dominators(rows)
	for n, q := range queries {
		name := fmt.Sprintf("pick.%d", n+1)
		row, ok := table.Get(q)
		if !ok {
			r.Add(name, 0, "row", unmet(table, rows, q))
			continue
		}
		p := &rows[row]
		note := fmt.Sprintf("%s, %v, %v, %.4g per request", title(p), p.State, p.Latency, p.PerRequest())
		if by := dominators[row]; by >= 0 {
			note += fmt.Sprintf("; row %d is at least as accurate, fast and cheap per request", by+1)
		}
		r.Add(name, float64(row+1), "row", note)
	}
	return r
}

// title names a variant for people.
func title(p *registration.Placed) string {
	return fmt.Sprintf("%s of %s on %s", p.Name, p.Model, p.Hardware)
}

// unmet says why no variant answers a query, and which is the nearest.
func unmet(table *infaas.Table, rows []registration.Placed, q variant.Query) string {
	row, known := table.Suggest(q)
	p := &rows[row]
	var short []string
	if !known {
		short = append(short, fmt.Sprintf("there is no model %s, only %s", q.Model, strings.Join(table.Models(), ", ")))
	}
	if p.Accuracy < q.Accuracy {
		short = append(short, fmt.Sprintf("its accuracy is %.4g of %.4g %%", p.Accuracy, q.Accuracy))
	}
	if q.Latency > 0 && p.Latency > q.Latency {
		short = append(short, fmt.Sprintf("it takes %v of %v", p.Latency, q.Latency))
	}
	return fmt.Sprintf("none; the nearest is row %d, %s: %s", row+1, title(p), strings.Join(short, "; "))
}
