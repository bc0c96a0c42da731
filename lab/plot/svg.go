package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
)

// palette is Okabe and Ito's, whose colours are distinct for people with colour-blindness,
// without its yellow, which is too light on white.
var palette = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#6b6b6b", "#7b4fa3"}

func colour(i int) string { return palette[((i%len(palette))+len(palette))%len(palette)] }

// drawing collects the text of one SVG.
type drawing struct {
	text bytes.Buffer
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(&d.text, format, args...) }

// escaped returns s escaped for XML.
func escaped(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer does not fail
	return b.String()
}

// words writes one line of text at x, y, with the attributes more.
func (d *drawing) words(x, y float64, more, s string) {
	d.printf(`<text x="%.1f" y="%.1f" %s>%s</text>`+"\n", x, y, more, escaped(s))
}

// line draws a straight line.
func (d *drawing) line(x1, y1, x2, y2 float64, more string) {
	d.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`+"\n", x1, y1, x2, y2, more)
}

// fill returns the SVG attributes of a bar of s and of its mark in the legend.
func (s Series) fill() string {
	if s.Paper {
		return fmt.Sprintf(`fill="url(#%s)" stroke="%s"`, s.pattern(), colour(s.Colour))
	}
	return fmt.Sprintf(`fill="%s" stroke="%s"`, colour(s.Colour), colour(s.Colour))
}

// pattern returns the name of the hatching of s.
func (s Series) pattern() string { return "hatch" + strings.TrimPrefix(colour(s.Colour), "#") }

// patterns defines the hatchings that f needs.
func (d *drawing) patterns(f Figure) {
	done := map[string]bool{}
	d.printf("<defs>\n")
	for _, p := range f.Panels {
		for _, s := range p.Series {
			if !s.Paper || done[s.pattern()] {
				continue
			}
			done[s.pattern()] = true
			d.printf(`<pattern id="%s" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">`+
				`<rect width="6" height="6" fill="#ffffff"/><line x1="0" y1="0" x2="0" y2="6" stroke="%s" stroke-width="3"/></pattern>`+"\n", s.pattern(), colour(s.Colour))
		}
	}
	d.printf("</defs>\n")
}

// textWidth estimates the width in pixels of s at a font size.
func textWidth(s string, size float64) float64 { return 0.55 * size * float64(len([]rune(s))) }

// broken breaks s into lines of at most width pixels.
func broken(s string, size, width float64) []string {
	var lines []string
	line := ""
	for _, w := range strings.Fields(s) {
		switch {
		case line == "":
			line = w
		case textWidth(line+" "+w, size) > width:
			lines, line = append(lines, line), w
		default:
			line += " " + w
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
