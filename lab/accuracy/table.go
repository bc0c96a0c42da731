package accuracy

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
)

// print prints every row, the means and the bars.
func (r *accuracyRun) print(out io.Writer) error {
	rep := report.New("accuracy", time.Now())
	if !r.json {
		if err := r.table(out); err != nil {
			return err
		}
	}
	if err := r.sum(rep, "error_pct", func(row accuracyRow) Row { return row.Row }, true); err != nil {
		return err
	}
	if r.repeat {
		if err := r.bars(rep); err != nil {
			return err
		}
	}
	for i, w := range r.ways[1:] {
		err := r.sum(rep, "error_pct."+w.name, func(row accuracyRow) Row {
			row.Row.Predicted = row.other[i]
			return row.Row
		}, false)
		if err != nil {
			return err
		}
	}
	if !r.json {
		return rep.Table(out)
	}
	for _, row := range r.rows {
		name := fmt.Sprintf("row.%s.c%d.b%d.", row.Model, row.Millicores, row.Batch)
		rep.Add(name+"predicted_ms", row.Predicted/1000, "ms", fmt.Sprintf("%.0f %% of it regressed", 100*row.regressed))
		rep.Add(name+"measured_ms", row.Measured/1000, "ms", r.note(row))
		rep.Add(name+"raw_ms", row.sample.Median/1000, "ms", "as taken, at whatever pace")
		rep.Add(name+"error_pct", row.ErrorPercent(), "%", "")
	}
	return rep.JSON(out)
}

// aim is the maximum mean error and the maximum bias, in %. The error may be larger on a
// machine whose own repetitions differ by more.
const aim = 5

// bars adds the difference between the two measurements, and the bars that follow from it.
func (r *accuracyRun) bars(rep *report.Report) error {
	again := func(row accuracyRow) Row {
		row.Row.Predicted = row.repeated
		return row.Row
	}
	if err := r.sum(rep, "repeat_pct", again, true); err != nil {
		return err
	}
	var first, second []Row
	for _, row := range r.rows {
		first, second = append(first, row.Row), append(second, again(row))
	}
	errors, err := Summarise(first)
	if err != nil {
		return err
	}
	repeats, err := Summarise(second)
	if err != nil {
		return err
	}
	for i, m := range append(errors.Models, errors.All) {
		bar := max(aim, append(repeats.Models, repeats.All)[i].ErrorPercent)
		met := "met"
		if m.ErrorPercent > bar || math.Abs(m.BiasPercent) > aim {
			met = "missed"
		}
		rep.Add("bar_pct."+m.Model, bar, "%", fmt.Sprintf("%s: error %.1f %%, bias %+.1f %%", met, m.ErrorPercent, m.BiasPercent))
	}
	return nil
}

// sum adds the means of the rows that of returns, and the worst row if counts is set.
func (r *accuracyRun) sum(rep *report.Report, name string, of func(accuracyRow) Row, counts bool) error {
	var rows []Row
	for _, row := range r.rows {
		rows = append(rows, of(row))
	}
	s, err := Summarise(rows)
	if err != nil {
		return err
	}
	says := ""
	for _, w := range r.ways {
		if name == "error_pct."+w.name {
			says = w.says
		}
	}
	for _, m := range s.Models {
		rep.Add(name+"."+m.Model, m.ErrorPercent, "%", fmt.Sprintf("%d rows, bias %+.1f %%", m.Rows, m.BiasPercent))
	}
	rep.Add(name+".all", s.All.ErrorPercent, "%", strings.Trim(fmt.Sprintf("%s; %d rows, bias %+.1f %%", says, s.All.Rows, s.All.BiasPercent), "; "))
	if counts {
		rep.Add(name+".worst", s.Worst.ErrorPercent(), "%", fmt.Sprintf("%s at a batch of %d on %dm", s.Worst.Model, s.Worst.Batch, s.Worst.Millicores))
	}
	return nil
}

// table prints a line for each row.
func (r *accuracyRun) table(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "model\tbatch\tCPU\tpredicted ms\tmeasured ms\terror %\t")
	for _, w := range r.ways[1:] {
		fmt.Fprintf(t, "%s\t", w.name)
	}
	fmt.Fprintln(t, "regressed %\t")
	for _, row := range r.rows {
		fmt.Fprintf(t, "%s\t%d\t%dm\t%.3f\t%.3f\t%+.1f\t", row.Model, row.Batch, row.Millicores, row.Predicted/1000, row.Measured/1000, row.SignedPercent())
		for _, p := range row.other {
			fmt.Fprintf(t, "%+.1f\t", (p-row.Measured)/row.Measured*100)
		}
		fmt.Fprintf(t, "%.0f\t%s\n", 100*row.regressed, r.note(row))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}

// note says whether a time was measured on a noisy machine.
func (r *accuracyRun) note(row accuracyRow) string {
	if !row.sample.Noisy {
		return ""
	}
	return fmt.Sprintf("noisy: at a pace of %.2f", row.sample.Pace)
}
