// Package plot draws charts as SVG: bars in groups or stacked, lines, steps and
// dots on linear or logarithmic axes, with a legend that has every name. It
// does not depend on the data's meaning. Begin with Figure and Write.
package plot

import (
	"fmt"
	"io"
	"math"
)

// Figure is one drawing of several panels.
type Figure struct {
	Title string
	// Note is a text below all panels, such as sources and limits of comparison. It is
	// broken into lines.
	Note   string
	Panels []Panel
	// Columns is the number of panels in a row; 0 is two.
	Columns int
}

// Panel is one chart.
type Panel struct {
	Title string
	X, Y  Axis
	// Categories are the names on the X axis of bars. The X of a point is then an index
	// into them. Without categories, X is a number.
	Categories []string
	// Stacked puts the bars of a category on top of each other instead of side by side.
	Stacked bool
	Series  []Series
}

// Axis is one axis of a panel.
type Axis struct {
	// Label has the unit in brackets.
	Label string
	// Log makes the axis logarithmic. Values that are not positive are left out.
	Log bool
	// Min and Max bound the axis. If both are 0, the data do.
	Min, Max float64
}

// Mark is the kind of mark that draws a series.
type Mark uint8

// The marks.
const (
	Bars Mark = iota
	Line
	Steps
	Dots
)

// Series is a set of points with one entry in the legend.
type Series struct {
	Name string
	Mark Mark
	// Colour is an index into the palette, modulo its length.
	Colour int
	// Paper marks published figures: hatched bars, dashed lines, hollow dots.
	Paper  bool
	Points []Point
}

// Point is one value. A point with a NaN, an infinity or more than 1e100 is not drawn.
type Point struct {
	X, Y float64
	// Size is a dot's area in any unit, relative to the largest of the panel. 0 is a
	// small dot.
	Size float64
	// Says is added to the text that a reader sees when pointing at the mark.
	Says string
}

// Bar returns a series of bars, one for each value in the order of the categories.
func Bar(name string, colour int, paper bool, values ...float64) Series {
	s := Series{Name: name, Mark: Bars, Colour: colour, Paper: paper}
	for i, v := range values {
		s.Points = append(s.Points, Point{X: float64(i), Y: v})
	}
	return s
}

// Write draws f. An error names a panel that cannot be drawn, or comes from w.
func Write(w io.Writer, f Figure) error {
	if len(f.Panels) == 0 {
		return fmt.Errorf("figure %q has no panel", f.Title)
	}
	for _, p := range f.Panels {
		if err := p.check(); err != nil {
			return fmt.Errorf("figure %q: %w", f.Title, err)
		}
	}
	d := &drawing{}
	d.figure(f)
	_, err := w.Write(d.text.Bytes())
	return err
}

// check returns an error if a panel cannot be drawn.
func (p Panel) check() error {
	for _, a := range []Axis{p.X, p.Y} {
		if (a.Min != 0 || a.Max != 0) && (!(a.Max-a.Min > 1e-9*max(math.Abs(a.Min), math.Abs(a.Max))) || a.Log && a.Min <= 0) {
			return fmt.Errorf("panel %q: the axis %q cannot reach from %v to %v", p.Title, a.Label, a.Min, a.Max)
		}
	}
	drawn := false
	for _, s := range p.Series {
		for _, at := range s.Points {
			if !p.shows(at) {
				continue
			}
			drawn = true
			if i := int(at.X); len(p.Categories) > 0 && (float64(i) != at.X || i < 0 || i >= len(p.Categories)) {
				return fmt.Errorf("panel %q: %q has a value at category %v of %d", p.Title, s.Name, at.X, len(p.Categories))
			}
		}
	}
	if !drawn {
		return fmt.Errorf("panel %q has no value to draw", p.Title)
	}
	return nil
}

// shows reports whether a point can be drawn.
func (p Panel) shows(at Point) bool {
	finite := func(v float64, a Axis) bool {
		return math.Abs(v) < 1e100 && (!a.Log || v > 1e-100)
	}
	return finite(at.X, p.X) && finite(at.Y, p.Y)
}
