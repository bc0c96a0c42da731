package plot

import (
	"fmt"
	"math"
	"strings"
)

// bars draws all series of bars of the panel.
func (f *frame) bars(d *drawing) {
	var of []Series
	for _, s := range f.Series {
		if s.Mark == Bars {
			of = append(of, s)
		}
	}
	if len(of) == 0 {
		return
	}
	places := max(1, len(f.Categories))
	width := (f.x.to - f.x.from) / float64(places) * 0.82
	each := width
	if !f.Stacked {
		each /= float64(len(of))
	}
	sums := make(map[float64]float64)
	for i, s := range of {
		for _, at := range s.Points {
			if !f.shows(at) {
				continue
			}
			x := f.x.at(at.X) - width/2
			base := max(0, f.y.min)
			if f.Stacked {
				base = sums[at.X]
				sums[at.X] += at.Y
			} else {
				x += each * float64(i)
			}
			f.bar(d, s, at, x, each, base, base+f.above(at))
		}
	}
}

// above returns the height of a bar above its base, as a value.
func (f *frame) above(at Point) float64 {
	if f.Stacked {
		return at.Y
	}
	return at.Y - max(0, f.y.min)
}

// bar draws one bar from base to end, and writes its value above it if there is room.
func (f *frame) bar(d *drawing, s Series, at Point, x, width, base, end float64) {
	y1, y2 := f.y.clamp(base), f.y.clamp(end)
	top, height := min(y1, y2), math.Abs(y1-y2)
	gap := min(1, width*0.1)
	d.printf(`<rect class="bar" x="%.2f" y="%.2f" width="%.2f" height="%.2f" %s><title>%s</title></rect>`+"\n",
		x+gap/2, top, width-gap, height, s.fill(), escaped(f.says(s, at)))
	if text := label(at.Y); !f.Stacked && textWidth(text, 9) <= width+2 {
		y := top - 3
		if end < base {
			y = top + height + 9
		}
		d.words(x+width/2, y, `font-size="9" text-anchor="middle" class="value"`, text)
	}
}

// says returns the text that a reader sees when pointing at a mark.
func (f *frame) says(s Series, at Point) string {
	where := label(at.X)
	if len(f.Categories) > 0 {
		where = f.Categories[int(at.X)]
	}
	text := fmt.Sprintf("%s, %s: %.4g", s.Name, where, at.Y)
	if at.Says != "" {
		text += ", " + at.Says
	}
	return text
}

// path draws a line through the points of s, or steps, in which each value lasts until the
// next point. A point that cannot be drawn interrupts it.
func (f *frame) path(d *drawing, s Series) {
	var b strings.Builder
	pen, last := "M", 0.0
	for _, at := range s.Points {
		if !f.shows(at) {
			pen = "M"
			continue
		}
		x, y := f.x.clamp(at.X), f.y.clamp(at.Y)
		if s.Mark == Steps && pen == "L" {
			fmt.Fprintf(&b, "L%.1f %.1f", x, last)
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", pen, x, y)
		pen, last = "L", y
	}
	d.printf(`<path class="line" d="%s" fill="none" %s><title>%s</title></path>`+"\n", b.String(), s.stroke(), escaped(s.Name))
	if s.Mark == Line && len(s.Points) <= 30 {
		f.dots(d, s)
	}
}

// dots draws a dot for each point; its area follows Size.
func (f *frame) dots(d *drawing, s Series) {
	for _, at := range s.Points {
		if !f.shows(at) {
			continue
		}
		r := 2.5
		if f.largest > 0 && at.Size > 0 {
			r = 2 + 10*math.Sqrt(at.Size/f.largest)
		}
		d.printf(`<circle class="dot" cx="%.1f" cy="%.1f" r="%.1f" %s><title>%s</title></circle>`+"\n",
			f.x.clamp(at.X), f.y.clamp(at.Y), r, s.outline(), escaped(f.says(s, at)))
	}
}

// stroke returns the SVG attributes of a line of s.
func (s Series) stroke() string {
	if s.Paper {
		return fmt.Sprintf(`stroke="%s" stroke-width="1.6" stroke-dasharray="5 3"`, colour(s.Colour))
	}
	return fmt.Sprintf(`stroke="%s" stroke-width="1.8"`, colour(s.Colour))
}

// outline returns the SVG attributes of a dot of s.
func (s Series) outline() string {
	if s.Paper {
		return fmt.Sprintf(`fill="#ffffff" stroke="%s" stroke-width="1.5"`, colour(s.Colour))
	}
	return fmt.Sprintf(`fill="%s" fill-opacity="0.65" stroke="%s"`, colour(s.Colour), colour(s.Colour))
}
