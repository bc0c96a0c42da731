// Package draw redraws the figures of INFless' evaluation (ASPLOS 2022, §5) with simulated
// values beside the published ones. It has the published numbers and the layout of each
// figure; package figure runs the simulations. Begin with PaperFigures, or with Throughput
// as an example of a drawing.
package draw

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/plot"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Drawing is one figure and the name of its file, without extension.
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

// cited returns a figure with the note more. If it shows published values, the note begins
// with their source.
func cited(f plot.Figure, more string) plot.Figure {
	f.Note = more
	for _, p := range f.Panels {
		if slices.ContainsFunc(p.Series, func(s plot.Series) bool { return s.Paper }) {
			f.Note = "Hatched, dashed or hollow: " + PaperSource + ". " + more
		}
	}
	return f
}

// colour returns a policy's colour, the same in all drawings.
func colour(name string) int {
	if name == "bound" {
		return 6
	}
	// faas-infer, INFless and the two baselines get the first four. INFless' ablations
	// share its colour.
	order := []string{systems.FaaSInfer, systems.INFless, baselines.Batch, baselines.OpenFaaS, "lsth", "hhp", "fixed", "hhp-window", "least", baselines.BatchPublished}
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return 1
}

// Throughput draws Fig. 11 for one application: the highest load of each policy. No policy
// can exceed bound.
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

// series returns a row of published and a row of simulated bars. It leaves the first out if
// it is empty.
func series(published, here []float64) []plot.Series {
	all := []plot.Series{plot.Bar("here", 0, false, here...)}
	if slices.ContainsFunc(published, func(v float64) bool { return !math.IsNaN(v) }) {
		all = append([]plot.Series{plot.Bar("paper", 1, true, published...)}, all...)
	}
	return all
}

// relative divides values by INFless' value, and returns NaNs if there is none.
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

// drawable reports whether a panel has a value to draw.
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

// line returns a line through the points (xs, ys).
func line(name string, colour int, published bool, xs, ys []float64) plot.Series {
	s := plot.Series{Name: name, Mark: plot.Line, Colour: colour, Paper: published}
	for i := range xs {
		s.Points = append(s.Points, plot.Point{X: xs[i], Y: ys[i]})
	}
	return s
}

// scaled divides the values of all lines by the largest of them. The paper publishes its
// values in this form.
func scaled(lines []plot.Series) []plot.Series {
	largest := 0.0
	for _, s := range lines {
		for _, at := range s.Points {
			largest = max(largest, at.Y)
		}
	}
	for _, s := range lines {
		for i := range s.Points {
			s.Points[i].Y /= largest
		}
	}
	return lines
}

func inMilliseconds(d time.Duration) string { return fmt.Sprintf("%.4g ms", milliseconds(d)) }
