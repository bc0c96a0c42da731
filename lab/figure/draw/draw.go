// Package draw redraws the figures of INFless' evaluation (ASPLOS 2022, §5) with
// what was simulated here beside what was published.
package draw

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/lab/plot"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Drawing is one figure and the name of its file, without an ending.
type Drawing struct {
	Name string
	plot.Figure
}

// Value is a figure of one policy.
type Value struct {
	Policy string
	Value  float64
}

const relativeNote = "The paper's and ours are each relative to their own best."

// cited is a figure with the source of what was published, if any of that is in it,
// and more on it.
func cited(f plot.Figure, more string) plot.Figure {
	f.Note = more
	for _, p := range f.Panels {
		if slices.ContainsFunc(p.Series, func(s plot.Series) bool { return s.Paper }) {
			f.Note = "Hatched, dashed or hollow: " + PaperSource + ". " + more
		}
	}
	return f
}

// colour is a policy's, the same in all drawings.
func colour(name string) int {
	if name == "bound" {
		return 6
	}
	// Ours, INFless and the two baselines get the first four; INFless' ablations
	// share INFless'.
	order := []string{systems.FaaSInfer, systems.INFless, systems.Batch, systems.OpenFaaS, "lsth", "hhp", "fixed"}
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return 1
}

// Throughput is Fig. 11 for one application: the highest load of each policy. bound
// is what no policy can have more than.
func Throughput(application string, values []Value, bound float64) Drawing {
	p := plot.Panel{
		Title: "highest load with 99 % within the SLO, " + application,
		X:     plot.Axis{Label: "policy"}, Y: plot.Axis{Label: "throughput (requests/s)"},
	}
	var published, here []float64
	for _, v := range values {
		p.Categories = append(p.Categories, v.Policy)
		published = append(published, or(PaperThroughput(application, v.Policy)))
		here = append(here, v.Value)
	}
	p.Categories = append(p.Categories, "bound")
	published, here = append(published, math.NaN()), append(here, bound)
	p.Series = series(published, here)
	ratios := plot.Panel{
		Title: "the same, relative to INFless", X: p.X, Y: plot.Axis{Label: "× INFless"}, Categories: p.Categories,
		Series: series(relative(p.Categories, published), relative(p.Categories, here)),
	}
	f := plot.Figure{Title: "Figure 11: throughput and component analysis"}
	for _, panel := range []plot.Panel{p, ratios} {
		if drawable(panel) {
			f.Panels = append(f.Panels, panel)
		}
	}
	return Drawing{"fig11-" + application, cited(f, "The bound is of a linear program: no policy can serve more on these machines.")}
}

// series is a published and a simulated row of bars; the first is left out if it is
// empty.
func series(published, here []float64) []plot.Series {
	all := []plot.Series{plot.Bar("here", 0, false, here...)}
	if slices.ContainsFunc(published, func(v float64) bool { return !math.IsNaN(v) }) {
		all = append([]plot.Series{plot.Bar("paper", 1, true, published...)}, all...)
	}
	return all
}

// relative divides by INFless' value; NaN without one.
func relative(names []string, values []float64) []float64 {
	base := math.NaN()
	if i := slices.Index(names, systems.INFless); i >= 0 && values[i] > 0 {
		base = values[i]
	}
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = v / base
	}
	return out
}

// drawable reports whether a panel has anything to show.
func drawable(p plot.Panel) bool {
	return slices.ContainsFunc(p.Series, func(s plot.Series) bool {
		return slices.ContainsFunc(s.Points, func(at plot.Point) bool { return !math.IsNaN(at.Y) })
	})
}

func or(v float64, ok bool) float64 {
	if !ok {
		return math.NaN()
	}
	return v
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// line is a line through values at xs.
func line(name string, colour int, published bool, xs, ys []float64) plot.Series {
	s := plot.Series{Name: name, Mark: plot.Line, Colour: colour, Paper: published}
	for i := range xs {
		s.Points = append(s.Points, plot.Point{X: xs[i], Y: ys[i]})
	}
	return s
}

// scaled is ys divided by the largest of all; the published ones come so.
func scaled(lines []plot.Series) []plot.Series {
	most := 0.0
	for _, s := range lines {
		for _, at := range s.Points {
			most = max(most, at.Y)
		}
	}
	for _, s := range lines {
		for i := range s.Points {
			s.Points[i].Y /= most
		}
	}
	return lines
}

func inMilliseconds(d time.Duration) string { return fmt.Sprintf("%.4g ms", milliseconds(d)) }
