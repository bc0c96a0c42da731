package command

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/plot"
	"github.com/faas-infer/faas-infer/lab/rig"
	paper "github.com/faas-infer/faas-infer/papers/batch"
)

// tuneQuantiles are the printed quantiles of the latencies.
var tuneQuantiles = []float64{0.50, 0.75, 0.90, 0.95, 0.99, 0.999}

// title returns the command that the result belongs to.
func (t *tuned) title() string {
	return fmt.Sprintf("tune --arrivals %s --profile %s", filepath.Base(t.options.arrivals), t.subject.name)
}

// print writes the result as tables.
func (t *tuned) print(out io.Writer) error {
	m := t.fit.Moments
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "%s\n\n", t.title())
	fmt.Fprintf(w, "arrivals\t%d requests in %v: %.4g requests/s, SCV %.4g, skewness %.4g, lag-1 %.4g\n",
		len(t.times), (t.times[len(t.times)-1] - t.times[0]).Round(time.Millisecond), 1/m.Mean, m.SCV, m.Skewness, m.Lag1)
	p := t.fit.Process
	fmt.Fprintf(w, "fitted\tMAP of order %d: %.4g requests/s, SCV %.4g, skewness %.4g, lag-1 %.4g, dispersion %.4g\n",
		p.Order(), p.Rate(), p.SCV(), p.Skewness(), p.Autocorrelation(1), p.Dispersion())
	for _, line := range t.matrices() {
		fmt.Fprintf(w, "\t%s\n", line)
	}
	if note := fmt.Sprint(t.fit.Note); note != "" {
		fmt.Fprintf(w, "\t%s\n", note)
	}
	best := t.plan.Best
	if basis := t.basis(); basis != "" {
		fmt.Fprintf(w, "chosen for\t%s\n", basis)
	}
	fmt.Fprintf(w, "choice\t%s\n", t.describe(best))
	fmt.Fprintf(w, "predicted\t%s%.4g %s a request, %.3g requests a batch\n", t.met(best), best.Cost, t.subject.unit, best.MeanBatch)
	if err := w.Flush(); err != nil {
		return err
	}
	return errors.Join(t.printDistribution(out), t.printRunners(out))
}

// basis says which arrivals the choice was made for. It returns "" for the fitted process.
func (t *tuned) basis() string {
	switch {
	case t.plan.Phases == 0:
		return "the file's own requests: no process of some phases has what they have"
	case t.plan.Phases > t.fit.Process.Order():
		return fmt.Sprintf("a process of %d phases, which the file's requests agree with: of fewer, none has what they have", t.plan.Phases)
	}
	return ""
}

// met says what a choice reaches: the percentile's latency and the share within the SLO.
func (t *tuned) met(c paper.Choice) string {
	text := fmt.Sprintf("%v %% within %.4g ms", t.options.percentile, rig.Milliseconds(c.Percentile))
	if t.options.slo > 0 {
		text += fmt.Sprintf(", %.2f %% within %v", 100*c.Within, t.options.slo)
	}
	return text + "; "
}

// matrices returns D0 and D1 of the fitted process, one line for each row.
func (t *tuned) matrices() (lines []string) {
	p := t.fit.Process
	for i := range p.Order() {
		var row [2][]string
		for j := range p.Order() {
			row[0] = append(row[0], fmt.Sprintf("%9.4g", p.D0.At(i, j)))
			row[1] = append(row[1], fmt.Sprintf("%9.4g", p.D1.At(i, j)))
		}
		names := [2]string{"   ", "   "}
		if i == 0 {
			names = [2]string{"D0 ", "D1 "}
		}
		lines = append(lines, fmt.Sprintf("%s[%s]  %s[%s]", names[0], strings.Join(row[0], " "), names[1], strings.Join(row[1], " ")))
	}
	return lines
}

func (t *tuned) printDistribution(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nlatency ms\texact\tthe file replayed\t\n")
	for _, q := range tuneQuantiles {
		fmt.Fprintf(w, "p%g\t%.4g\t%.4g\t\n", 100*q, 1e3*t.exact.Quantile(q), 1e3*t.replayed.Quantile(q))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if warning := t.warning(); warning != "" {
		fmt.Fprintf(out, "\n%s\n", warning)
	}
	return nil
}

// tolerance is by how many % the recorded requests' percentile may differ from the
// prediction without a warning.
const tolerance = 5

// deviation returns by how many % the recorded requests' percentile is above the
// prediction.
func (t *tuned) deviation() float64 {
	q := t.options.percentile / 100
	return 100 * (t.replayed.Quantile(q)/t.exact.Quantile(q) - 1)
}

// warning says that the recorded requests' latencies deviate from the prediction, or
// returns "". The moments of a small process cannot follow a single gap of minutes, or
// gaps that are all the same.
func (t *tuned) warning() string {
	off := t.deviation()
	if math.Abs(off) <= tolerance {
		return ""
	}
	missed := ""
	if last := t.replayed.Quantile(t.options.percentile / 100); t.options.slo > 0 && last > t.options.slo.Seconds() {
		missed = ", and miss the SLO"
	}
	return fmt.Sprintf("Take care: the file's own requests would have a p%g %+.1f %% from the prediction%s. The fitted process does not follow gaps like the file's; look for outages or a clock in it.", t.options.percentile, off, missed)
}

func (t *tuned) printRunners(out io.Writer) error {
	if len(t.plan.Runners) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "\nRUNNERS-UP\tBATCH\tTIMEOUT\tP%g MS\tCOST, %s\tMORE THAN THE CHOICE\n", t.options.percentile, t.subject.unit)
	for _, c := range t.plan.Runners {
		fmt.Fprintf(w, "%s\t%d\t%v\t%.4g\t%.4g\t%+.1f %%\n", t.subject.resources(t.configs[c.Share]), c.Batch,
			c.Timeout.Round(time.Microsecond), rig.Milliseconds(c.Percentile), c.Cost, 100*(c.Cost/t.plan.Best.Cost-1))
	}
	return w.Flush()
}

// report returns the result for --json.
func (t *tuned) report() *report.Report {
	r := report.New(t.title(), time.Now())
	m, p := t.fit.Moments, t.fit.Process
	r.Add("arrivals.requests", float64(len(t.times)), "requests", "")
	r.Add("arrivals.rate", 1/m.Mean, "requests/s", "")
	r.Add("arrivals.scv", m.SCV, "", "")
	r.Add("arrivals.skewness", m.Skewness, "", "")
	r.Add("arrivals.lag1", m.Lag1, "", "")
	r.Add("fit.order", float64(p.Order()), "", fmt.Sprint(t.fit.Note))
	for i := range p.Order() {
		for j := range p.Order() {
			r.Add(fmt.Sprintf("fit.d0.%d.%d", i+1, j+1), p.D0.At(i, j), "1/s", "")
			r.Add(fmt.Sprintf("fit.d1.%d.%d", i+1, j+1), p.D1.At(i, j), "1/s", "")
		}
	}
	r.Add("fit.rate", p.Rate(), "requests/s", "")
	r.Add("fit.scv", p.SCV(), "", "")
	r.Add("fit.lag1", p.Autocorrelation(1), "", "")
	r.Add("fit.dispersion", p.Dispersion(), "", "")
	r.Add("choice.phases", float64(t.plan.Phases), "", strings.TrimSpace("of the process that it was made for; 0: for the file's own requests. "+t.basis()))
	t.addChoice(r, "choice", t.plan.Best)
	for _, q := range tuneQuantiles {
		r.Add(fmt.Sprintf("cdf.p%g_ms", 100*q), 1e3*t.exact.Quantile(q), "ms", "")
		r.Add(fmt.Sprintf("replayed.p%g_ms", 100*q), 1e3*t.replayed.Quantile(q), "ms", "the file's requests")
	}
	r.Add("replayed.difference_pct", t.deviation(), "%", strings.TrimSpace(fmt.Sprintf("p%g of the file's requests from the prediction. %s", t.options.percentile, t.warning())))
	for i, c := range t.plan.Runners {
		t.addChoice(r, fmt.Sprintf("runner%d", i+1), c)
	}
	return r
}

func (t *tuned) addChoice(r *report.Report, name string, c paper.Choice) {
	config := t.configs[c.Share]
	r.Add(name+".batch", float64(c.Batch), "requests", t.describe(c))
	r.Add(name+".timeout_ms", rig.Milliseconds(c.Timeout), "ms", "")
	r.Add(name+".cpu_millicores", float64(config.CPU), "m", "")
	r.Add(name+".gpu_pct", float64(config.GPU), "%", "")
	r.Add(name+".memory_mib", float64(config.Memory)/(1<<20), "MiB", "")
	r.Add(name+".percentile_ms", rig.Milliseconds(c.Percentile), "ms", fmt.Sprintf("p%g", t.options.percentile))
	if t.options.slo > 0 {
		r.Add(name+".within_pct", 100*c.Within, "%", "within the SLO")
	}
	r.Add(name+".cost", c.Cost, t.subject.unit, "a request")
	r.Add(name+".mean_batch", c.MeanBatch, "requests", "")
	r.Add(name+".busy", c.Busy, "instances", "that execute something on average")
	if c.Instances > 0 {
		r.Add(name+".instances", float64(c.Instances), "instances", "the least that meet the objective")
	}
}

// curvePoints is the number of intervals of a drawn line.
const curvePoints = 400

// figure draws the latencies with the chosen settings.
func (t *tuned) figure() plot.Figure {
	best := t.plan.Best
	last := max(t.exact.Quantile(0.999), best.Timeout.Seconds()+t.shares[best.Share].Exec[best.Batch-1].Seconds())
	exact := plot.Series{Name: "exact", Mark: plot.Line}
	replayed := plot.Series{Name: "the file replayed", Mark: plot.Steps, Colour: 2}
	for i := range curvePoints + 1 {
		q := float64(i) / curvePoints
		x := 1.05 * last * q
		exact.Points = append(exact.Points, plot.Point{X: 1e3 * x, Y: t.exact.CDF(x)})
		replayed.Points = append(replayed.Points, plot.Point{X: 1e3 * t.replayed.Quantile(q), Y: q})
	}
	p := plot.Panel{
		Title: t.describe(best), X: plot.Axis{Label: "latency [ms]"}, Y: plot.Axis{Label: "part of the requests", Max: 1.02},
		Series: []plot.Series{exact, replayed},
	}
	if slo := t.options.slo; slo > 0 {
		p.Series = append(p.Series, plot.Series{Name: "SLO", Mark: plot.Line, Colour: 3, Points: []plot.Point{{X: rig.Milliseconds(slo)}, {X: rig.Milliseconds(slo), Y: 1}}})
	}
	return plot.Figure{Title: t.title(), Note: "Predicted for the fitted arrivals, and what the recorded requests would have met.", Panels: []plot.Panel{p}, Columns: 1}
}
