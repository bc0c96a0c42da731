package command

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/lab/plot"
	profiled "github.com/faas-infer/faas-infer/papers/asyfunc/layers"
)

// layers is what "faas-infer profile layers --json" prints.
type layers struct{ profiled.Layers }

// newPlotLayersCommand returns "faas-infer-lab plot layers".
func newPlotLayersCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "layers FILE",
		Short: "Draw the blocks of a model: AsyFunc's Figures 2, 3, 4 and 7",
		Example: `  faas-infer profile layers vgg-16 --json > layers.json
  faas-infer-lab plot layers layers.json --out figures`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			var l layers
			if err := json.Unmarshal(text, &l.Layers); err != nil {
				return fmt.Errorf("%s is not what profile layers --json prints: %w", args[0], err)
			}
			if err := l.check(); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if err := makeDir("out", out); err != nil {
				return err
			}
			return l.draw(out)
		},
	}
	c.Flags().StringVar(&out, "out", ".", "directory for the drawings (SVG)")
	return c
}

// check refuses what cannot be drawn.
func (l *layers) check() error {
	switch {
	case l.Model == nil || len(l.Model.Blocks) == 0:
		return errors.New("there are no blocks of a model")
	case len(l.Batches) < 2:
		return fmt.Errorf("batches are %v: at least two are needed", l.Batches)
	}
	for _, b := range l.Batches {
		if !slices.Contains(l.Model.Rows, b) {
			return fmt.Errorf("the blocks have no time of a batch of %d", b)
		}
	}
	return l.Model.Check()
}

// draw draws the figures into a directory.
func (l *layers) draw(dir string) error {
	note := fmt.Sprintf("Times are predicted for one thread of %s; load times are %s.", l.Machine, l.Loads)
	for number, f := range map[int]plot.Figure{
		2: {Title: "Latency increase, weights and load time of each block of " + l.Model.Name, Panels: l.heterogeneous(), Columns: 1},
		3: {Title: "Distribution of the blocks' latency increase, " + l.Model.Name, Panels: []plot.Panel{l.distribution()}},
		4: {Title: "Latency increase by the part of the blocks in the shadow, " + l.Model.Name, Panels: []plot.Panel{l.offloaded()}},
		7: {Title: "Increase of each block's output, " + l.Model.Name, Panels: []plot.Panel{l.outputs()}},
	} {
		f.Note = note
		if err := plot.WriteFile(filepath.Join(dir, fmt.Sprintf("figure-%d.svg", number)), f); err != nil {
			return err
		}
	}
	return nil
}

// later are the batches that are compared with the first.
func (l *layers) later() []int { return l.Batches[1:] }

// steps is a series of one value for each block.
func (l *layers) steps(name string, colour int, value func(block int) float64) plot.Series {
	s := plot.Series{Name: name, Mark: plot.Steps, Colour: colour}
	for i, b := range l.Model.Blocks {
		s.Points = append(s.Points, plot.Point{X: float64(i), Y: value(i), Says: b.Name})
	}
	last := len(l.Model.Blocks) - 1
	s.Points = append(s.Points, plot.Point{X: float64(last + 1), Y: value(last)})
	return s
}

// blocks is the axis of blocks.
var blocks = plot.Axis{Label: "block"}

// heterogeneous is Fig. 2.
func (l *layers) heterogeneous() []plot.Panel {
	var times []plot.Series
	for i, b := range l.later() {
		times = append(times, l.steps(fmt.Sprintf("batch %d to %d", l.Batches[0], b), i, func(block int) float64 { return l.Increase(block, b) }))
	}
	const mib = 1 << 20
	return []plot.Panel{
		{Title: "Latency increase", X: blocks, Y: plot.Axis{Label: "time (ms)"}, Series: times},
		{Title: "Weights", X: blocks, Y: plot.Axis{Label: "size (MiB)"}, Series: []plot.Series{
			l.steps("weights", 3, func(i int) float64 { return float64(l.Model.Blocks[i].Weights) / mib })}},
		{Title: "Load time", X: blocks, Y: plot.Axis{Label: "time (ms)"}, Series: []plot.Series{
			l.steps(l.Loads, 4, func(i int) float64 { return l.Model.Blocks[i].Load })}},
	}
}

// increases are the latency increases of all blocks at a batch, largest first.
func (l *layers) increases(batch int) []float64 {
	var all []float64
	for i := range l.Model.Blocks {
		all = append(all, l.Increase(i, batch))
	}
	slices.SortFunc(all, func(a, b float64) int { return cmp.Compare(b, a) })
	return all
}

// distribution is Fig. 3.
func (l *layers) distribution() plot.Panel {
	p := plot.Panel{Title: "Blocks with at most this increase", X: plot.Axis{Label: "latency increase (ms)"}, Y: plot.Axis{Label: "blocks (%)", Max: 100}}
	for i, b := range l.later() {
		s := plot.Series{Name: fmt.Sprintf("batch %d to %d", l.Batches[0], b), Mark: plot.Steps, Colour: i}
		all := l.increases(b)
		slices.Reverse(all)
		for k, ms := range all {
			s.Points = append(s.Points, plot.Point{X: ms, Y: 100 * float64(k+1) / float64(len(all))})
		}
		p.Series = append(p.Series, s)
	}
	return p
}

// offloaded is Fig. 4: what the increase of a model's latency is if a shadow computes the
// additional requests of some blocks, those with the largest increase first.
func (l *layers) offloaded() plot.Panel {
	p := plot.Panel{Title: "Blocks by latency increase, the largest first", X: plot.Axis{Label: "blocks in the shadow (%)", Max: 100}, Y: plot.Axis{Label: "latency increase (ms)"}}
	for i, b := range l.later() {
		s := plot.Series{Name: fmt.Sprintf("batch %d to %d", l.Batches[0], b), Mark: plot.Line, Colour: i}
		all := l.increases(b)
		left := 0.0
		for _, ms := range all {
			left += ms
		}
		s.Points = append(s.Points, plot.Point{X: 0, Y: left})
		for k, ms := range all {
			left -= ms
			s.Points = append(s.Points, plot.Point{X: 100 * float64(k+1) / float64(len(all)), Y: left})
		}
		p.Series = append(p.Series, s)
	}
	return p
}

// outputs is Fig. 7.
func (l *layers) outputs() plot.Panel {
	p := plot.Panel{Title: "Output of a block", X: blocks, Y: plot.Axis{Label: "increase (MiB)"}}
	for i, b := range l.later() {
		p.Series = append(p.Series, l.steps(fmt.Sprintf("batch %d to %d", l.Batches[0], b), i, func(block int) float64 {
			return float64(int64(b-l.Batches[0])*l.Model.Blocks[block].Out) / (1 << 20)
		}))
	}
	return p
}
