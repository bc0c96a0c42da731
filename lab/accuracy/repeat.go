package accuracy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
)

func newRepeatabilityCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "repeatability RUN.json RUN.json",
		Short: "Compare the measured times of two accuracy runs, the best that a prediction can reach",
		Long: `repeatability reads two outputs of "accuracy --json". It compares the times that both
have measured for the same models at the same batches and CPU shares, as if the first
run predicted the second. A prediction cannot be expected to come closer to a
measurement than an earlier measurement does. Rows of only one run are counted and left
out.`,
		Example: `  faas-infer-lab accuracy --ablation=false --json > morning.json
  faas-infer-lab accuracy --ablation=false --json > noon.json
  faas-infer-lab accuracy repeatability morning.json noon.json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			rep, err := repeatability(args[0], args[1], time.Now())
			if err != nil {
				return err
			}
			if asJSON {
				return rep.JSON(cmd.OutOrStdout())
			}
			return rep.Table(cmd.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// repeatability compares the measured times of two runs, which are files.
func repeatability(first, second string, now time.Time) (*report.Report, error) {
	before, order, err := measuredRows(first)
	if err != nil {
		return nil, err
	}
	after, _, err := measuredRows(second)
	if err != nil {
		return nil, err
	}
	var all []Row
	shares := map[int][]Row{}
	for _, key := range order {
		row, ok := after[key]
		if !ok {
			continue
		}
		row.Predicted = before[key].Measured
		all = append(all, row)
		shares[row.Millicores] = append(shares[row.Millicores], row)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s and %s have no model at the same batch and CPU share to compare", first, second)
	}
	s, err := Summarise(all)
	if err != nil {
		return nil, err
	}
	rep := report.New("accuracy repeatability", now)
	for _, m := range s.Models {
		rep.Add("repeat_pct."+m.Model, m.ErrorPercent, "%", fmt.Sprintf("%d rows, bias %+.1f %%", m.Rows, m.BiasPercent))
	}
	for _, share := range slices.Sorted(maps.Keys(shares)) {
		part, err := Summarise(shares[share])
		if err != nil {
			return nil, err
		}
		rep.Add(fmt.Sprintf("repeat_pct.all.c%d", share), part.All.ErrorPercent, "%", fmt.Sprintf("%d rows, bias %+.1f %%", part.All.Rows, part.All.BiasPercent))
	}
	left := len(before) + len(after) - 2*len(all)
	rep.Add("repeat_pct.all", s.All.ErrorPercent, "%", fmt.Sprintf("%d rows, bias %+.1f %%; %d rows in one run only", s.All.Rows, s.All.BiasPercent, left))
	rep.Add("repeat_pct.worst", s.Worst.ErrorPercent(), "%", fmt.Sprintf("%s at a batch of %d on %dm", s.Worst.Model, s.Worst.Batch, s.Worst.Millicores))
	return rep, nil
}

// measuredRows reads the measured rows of an accuracy run by their names. It also returns
// the names in the run's order.
func measuredRows(path string) (map[string]Row, []string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var rep report.Report
	if err := json.Unmarshal(text, &rep); err != nil {
		return nil, nil, fmt.Errorf("%s: %w; it must be the output of `faas-infer-lab accuracy --json`", path, clearer(err))
	}
	rows, order := map[string]Row{}, []string(nil)
	for _, r := range rep.Results {
		key, ok := strings.CutSuffix(r.Name, ".measured_ms")
		if !ok {
			continue
		}
		row, err := rowNamed(key)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		row.Measured = r.Value * 1000
		rows[key], order = row, append(order, key)
	}
	if len(rows) == 0 {
		return nil, nil, fmt.Errorf("%s has no measured rows; it must be the output of `faas-infer-lab accuracy --json`", path)
	}
	return rows, order, nil
}

// clearer replaces JSON's error for a file that ends early.
func clearer(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || strings.Contains(err.Error(), "unexpected end") {
		return errors.New("the file is empty or cut off")
	}
	return err
}

// rowNamed reads a row's name, "row.MODEL.c500.b4".
func rowNamed(name string) (Row, error) {
	parts := strings.Split(name, ".")
	if n := len(parts); n >= 4 && parts[0] == "row" {
		share, err1 := strconv.Atoi(strings.TrimPrefix(parts[n-2], "c"))
		batch, err2 := strconv.Atoi(strings.TrimPrefix(parts[n-1], "b"))
		if err1 == nil && err2 == nil {
			return Row{Model: strings.Join(parts[1:n-2], "."), Batch: batch, Millicores: share}, nil
		}
	}
	return Row{}, fmt.Errorf("%q is not the name of a row: it must be row.MODEL.cMILLICORES.bBATCH", name)
}
