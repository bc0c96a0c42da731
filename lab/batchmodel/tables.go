package batchmodel

import (
	"fmt"
	"math"
	"strings"

	"github.com/faas-infer/faas-infer/lab/figure"
)

// paperBound is the error in % that BATCH claims for its model with MMPP(2) arrivals, and
// fittedBound with arrivals fitted to its traces (§VI-C).
const (
	paperBound  = 9
	fittedBound = 8
)

var headers = []string{"p50", "p95", "p99"}

// vectors adds the comparison with simulated percentiles.
func (o *Outcome) vectors(all []*Compared) {
	t := figure.Table{
		Title:  "Percentiles of a dispatching buffer: simulated, and by how many % the models are off.",
		Header: []string{"vector", "arrivals", "B", "T ms", "p50 ms", "p95 ms", "p99 ms"},
		Notes: []string{
			"apart: execution times differ by more than the timeout from one batch size to the next, where BATCH's formula is meant to hold.",
		},
	}
	for _, model := range []string{"exact", "published"} {
		for _, h := range headers {
			t.Header = append(t.Header, model+" "+h)
		}
	}
	t.Header = append(t.Header, "apart")
	worst, where := 0.0, ""
	for _, c := range all {
		exact, most := offBy(c.Exact, c.Truth)
		printed, printedMost := offBy(c.Published, c.Truth)
		if most >= worst {
			worst, where = most, c.Name
		}
		row := []string{c.Name, c.Arrival, fmt.Sprint(c.B), number(1e3 * c.T)}
		for _, p := range c.Truth {
			row = append(row, number(1e3*p))
		}
		t.Rows = append(t.Rows, append(append(append(row, signed(exact)...), signed(printed)...), yes(c.Shown)))
		name := plain(c.Name)
		o.Report.Add("error_pct.exact."+name, most, "%", "")
		o.Report.Add("error_pct.published."+name, printedMost, "%", "")
	}
	o.Tables = append(o.Tables, t)
	o.Report.Add("worst_pct.exact", worst, "%", "of p50, p95 and p99 against simulation; "+where)
}

// shown adds the error of BATCH's equations, as printed, in the settings of their validation.
func (o *Outcome) shown(cases []*Compared) {
	t := figure.Table{
		Title:  "BATCH's equations as printed where they were shown (§VI-C): by how many % they are off the exact model, over four arrival processes the worst.",
		Header: []string{"service times", "B", "T ms", "p50", "p95", "p99"},
	}
	n := len(publishedArrivals)
	for i := 0; i+n <= len(cases); i += n {
		var most [3]float64
		for _, c := range cases[i : i+n] {
			each, _ := offBy(c.Published, c.Truth)
			for k, e := range each {
				most[k] = max(most[k], math.Abs(e))
			}
		}
		c := cases[i]
		t.Rows = append(t.Rows, []string{c.Name, fmt.Sprint(c.B), number(1e3 * c.T), number(most[0]), number(most[1]), number(most[2])})
	}
	o.Tables = append(o.Tables, t)
}

// asPrinted adds the error of BATCH's equations as printed: in the settings of its validation,
// for two kinds of arrivals, and for vectors that are not of these settings.
func (o *Outcome) asPrinted(cases, vectors []*Compared) {
	mmpp, fitted, elsewhere := 0.0, 0.0, 0.0
	for _, c := range cases {
		_, most := offBy(c.Published, c.Truth)
		if strings.HasPrefix(c.Arrival, "MMPP2") {
			mmpp = max(mmpp, most)
		} else {
			fitted = max(fitted, most)
		}
	}
	for _, c := range vectors {
		if _, most := offBy(c.Published, c.Truth); !c.Shown {
			elsewhere = max(elsewhere, most)
		}
	}
	o.Report.Add("worst_pct.published.mmpp", mmpp, "%", fmt.Sprintf("the equations as printed, with two MMPP(2), where BATCH claims %d %%", paperBound))
	o.Report.Add("worst_pct.published.fitted", fitted, "%", fmt.Sprintf("the equations as printed, with two MAP(2) fitted to its traces, where BATCH claims %d %%", fittedBound))
	o.Report.Add("worst_pct.published_elsewhere", elsewhere, "%", "the equations as printed, where service times differ by less than the timeout")
}

// driven adds the comparison with a recording.
func (o *Outcome) driven(fit Fitted, all []Driven) {
	m := fit.Moments
	t := figure.Table{
		Title: fmt.Sprintf("%d requests of Azure's LLM service through the buffer, and the exact model with a MAP of order %d: %.3g requests/s, SCV %.3g, skewness %.3g, lag-1 %.3g.",
			m.N+1, fit.Process.Order(), 1/m.Mean, m.SCV, m.Skewness, m.Lag1),
		Header: []string{"buffer", "batch", "model", "p50 ms", "model", "p95 ms", "model", "p99 ms", "model", "worst %"},
	}
	if says := fmt.Sprint(fit.Note); says != "" {
		t.Notes = append(t.Notes, says)
	}
	worst, where := 0.0, ""
	for _, d := range all {
		_, most := offBy(d.Model, d.Replayed)
		name := fmt.Sprintf("B = %d, T = %v", d.Batch, d.Timeout)
		if most >= worst {
			worst, where = most, name
		}
		row := []string{name, number(d.Batches), number(d.Expected)}
		for i := range d.Model {
			row = append(row, number(1e3*d.Replayed[i]), number(1e3*d.Model[i]))
		}
		t.Rows = append(t.Rows, append(row, number(most)))
	}
	o.Tables = append(o.Tables, t)
	o.Report.Add("azure_worst_pct", worst, "%", "of p50, p95 and p99 against the recording's; "+where)
}

func number(v float64) string { return fmt.Sprintf("%.4g", v) }

func signed(values [3]float64) []string {
	var all []string
	for _, v := range values {
		all = append(all, fmt.Sprintf("%+.2f", v))
	}
	return all
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// plain turns a vector's name into a part of a result's name.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, name)
}
