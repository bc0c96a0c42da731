package plot

import (
	"fmt"
	"math"
)

// Sizes in pixels.
const (
	panelWidth = 480.0
	plotHeight = 230.0
	left       = 62.0
	right      = 14.0
	legendLine = 16.0
	small      = 11.0
	fontSize   = 12.0
)

// figure lays the panels out in rows and writes everything.
func (d *drawing) figure(f Figure) {
	columns := f.Columns
	if columns <= 0 {
		columns = 2
	}
	columns = min(columns, len(f.Panels))
	width := panelWidth * float64(columns)
	note := broken(f.Note, small, width-2*right)
	height := 34.0
	rows := []float64{}
	for i := 0; i < len(f.Panels); i += columns {
		row := 0.0
		for _, p := range f.Panels[i:min(i+columns, len(f.Panels))] {
			row = max(row, newFrame(p).height)
		}
		rows = append(rows, row)
		height += row
	}
	height += 14*float64(len(note)) + 10
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" font-family="sans-serif" font-size="%.0f">`+"\n",
		width, height, width, height, fontSize)
	d.printf("<title>%s</title>\n", escaped(f.Title))
	d.patterns(f)
	d.printf(`<rect width="100%%" height="100%%" fill="#ffffff"/>` + "\n")
	d.words(right, 22, `font-size="15" font-weight="bold"`, f.Title)
	y := 34.0
	for i, p := range f.Panels {
		d.printf(`<g class="panel" transform="translate(%.0f,%.0f)">`+"\n", panelWidth*float64(i%columns), y)
		newFrame(p).draw(d)
		d.printf("</g>\n")
		if i%columns == columns-1 {
			y += rows[i/columns]
		}
	}
	for i, line := range note {
		d.words(right, height-14*float64(len(note)-i)+4, fmt.Sprintf(`font-size="%.0f" fill="#555555" class="note"`, small), line)
	}
	d.printf("</svg>\n")
}

// frame is a panel with its layout.
type frame struct {
	Panel
	x, y scale
	// top and bottom are those of the plot, height that of the panel, in pixels.
	top, bottom, height float64
	legend              []entry
	tilted              bool
	largest             float64
}

// entry is one name of the legend and its place.
type entry struct {
	Series
	x, y float64
}

func newFrame(p Panel) *frame {
	f := &frame{Panel: p}
	lines := f.placeLegend()
	f.top = 34 + legendLine*float64(lines)
	f.bottom = f.top + plotHeight
	f.scales()
	f.height = f.bottom + 48
	if f.tilted {
		f.height += 34
	}
	return f
}

// placeLegend puts each name at its place and returns the number of lines.
func (f *frame) placeLegend() int {
	x, line := left, 1
	for _, s := range f.Series {
		w := textWidth(s.Name, small) + 34
		if x+w > panelWidth-right && x > left {
			x, line = left, line+1
		}
		f.legend = append(f.legend, entry{s, x, 18 + legendLine*float64(line)})
		x += w
	}
	return line
}

// scales sets the scales of the axes from the data.
func (f *frame) scales() {
	low, high := [2]float64{math.Inf(1), math.Inf(1)}, [2]float64{math.Inf(-1), math.Inf(-1)}
	bars := false
	sums := map[float64]float64{}
	for _, s := range f.Series {
		bars = bars || s.Mark == Bars
		for _, at := range s.Points {
			if !f.shows(at) {
				continue
			}
			y := at.Y
			if s.Mark == Bars && f.Stacked {
				sums[at.X] += y
				y = sums[at.X]
			}
			low[0], high[0] = min(low[0], at.X), max(high[0], at.X)
			low[1], high[1] = min(low[1], y), max(high[1], y)
			f.largest = max(f.largest, at.Size)
		}
	}
	f.x = newScale(f.X, low[0], high[0], false)
	if n := len(f.Categories); n > 0 {
		f.x = scale{min: -0.5, max: float64(n) - 0.5}
		for _, c := range f.Categories {
			f.tilted = f.tilted || textWidth(c, small) > (panelWidth-left-right)/float64(n)
		}
	}
	f.x.from, f.x.to = left, panelWidth-right
	f.y = newScale(f.Y, low[1], high[1], bars || !f.Y.Log)
	f.y.from, f.y.to = f.bottom, f.top
}

// draw writes the panel.
func (f *frame) draw(d *drawing) {
	d.words(left, 16, `font-weight="bold"`, f.Title)
	f.axes(d)
	f.bars(d)
	for _, s := range f.Series {
		switch s.Mark {
		case Line, Steps:
			f.path(d, s)
		case Dots:
			f.dots(d, s)
		}
	}
	for _, e := range f.legend {
		f.sample(d, e)
		d.words(e.x+20, e.y, fmt.Sprintf(`font-size="%.0f" class="legend"`, small), e.Name)
	}
}

// sample draws the mark in front of a name in the legend.
func (f *frame) sample(d *drawing, e entry) {
	switch e.Mark {
	case Bars:
		d.printf(`<rect x="%.1f" y="%.1f" width="14" height="9" %s/>`+"\n", e.x, e.y-9, e.fill())
	case Dots:
		d.printf(`<circle cx="%.1f" cy="%.1f" r="4" %s/>`+"\n", e.x+7, e.y-4, e.outline())
	default:
		d.line(e.x, e.y-4, e.x+15, e.y-4, e.stroke())
	}
}

// axes draws the grid, the ticks and the labels.
func (f *frame) axes(d *drawing) {
	grid, tick := `stroke="#e3e3e3"`, fmt.Sprintf(`font-size="%.0f" fill="#333333" class="tick"`, small)
	for _, v := range f.y.ticks() {
		y := f.y.at(v)
		d.line(left, y, panelWidth-right, y, grid)
		d.words(left-6, y+4, tick+` text-anchor="end"`, label(v))
	}
	for i, c := range f.Categories {
		x, y := f.x.at(float64(i)), f.bottom+15
		if f.tilted {
			d.words(x, y, fmt.Sprintf(`%s text-anchor="end" transform="rotate(-28 %.1f %.1f)"`, tick, x, y), c)
			continue
		}
		d.words(x, y, tick+` text-anchor="middle"`, c)
	}
	if len(f.Categories) == 0 {
		for _, v := range f.x.ticks() {
			x := f.x.at(v)
			d.line(x, f.top, x, f.bottom, grid)
			d.words(x, f.bottom+15, tick+` text-anchor="middle"`, label(v))
		}
	}
	d.line(left, f.bottom, panelWidth-right, f.bottom, `stroke="#333333"`)
	d.line(left, f.top, left, f.bottom, `stroke="#333333"`)
	d.words((left+panelWidth-right)/2, f.height-14, `text-anchor="middle" class="axis"`, f.X.Label)
	y := (f.top + f.bottom) / 2
	d.words(14, y, fmt.Sprintf(`text-anchor="middle" class="axis" transform="rotate(-90 14 %.1f)"`, y), f.Y.Label)
}
