package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
)

// element is the part of an SVG element that the tests check.
type element struct {
	name  string
	attrs map[string]string
	text  string
}

func (e element) number(t testing.TB, attr string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(e.attrs[attr], 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		t.Fatalf("%s has %s=%q", e.name, attr, e.attrs[attr])
	}
	return v
}

// parsed draws f and parses the drawing. It fails the test if that is not XML.
func parsed(t testing.TB, f Figure) []element {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, f); err != nil {
		t.Fatal(err)
	}
	var all []element
	var open []int
	d := xml.NewDecoder(&out)
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := element{name: token.Name.Local, attrs: map[string]string{}}
			for _, a := range token.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			open = append(open, len(all))
			all = append(all, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				all[open[len(open)-1]].text += string(token)
			}
		}
	}
}

// of returns the elements of a class.
func of(all []element, class string) (out []element) {
	for _, e := range all {
		if e.attrs["class"] == class {
			out = append(out, e)
		}
	}
	return out
}

func texts(all []element) (out []string) {
	for _, e := range all {
		out = append(out, e.text)
	}
	return out
}

func bars() Figure {
	return Figure{Title: "Figure 11 <a & b>", Note: "the paper's figures are hatched", Panels: []Panel{{
		Title: "OSVT", X: Axis{Label: "policy"}, Y: Axis{Label: "throughput (requests/s)"}, Categories: []string{"BATCH", "INFless"},
		Series: []Series{Bar("paper", 0, true, 1151, 2952), Bar("here", 1, false, 1000, 3000)},
	}}}
}

// Heights are proportional to the values, above a common base. The legend has every name,
// and the axes have their labels.
func TestBars(t *testing.T) {
	all := parsed(t, bars())
	got := of(all, "bar")
	if len(got) != 4 {
		t.Fatalf("%d bars", len(got))
	}
	base := got[0].number(t, "y") + got[0].number(t, "height")
	for i, want := range []float64{1151, 2952, 1000, 3000} {
		h := got[i].number(t, "height")
		if ratio := h / got[3].number(t, "height") * 3000; math.Abs(ratio-want) > 20 {
			t.Errorf("bar %d stands for %.0f, want %.0f", i, ratio, want)
		}
		if y := got[i].number(t, "y"); math.Abs(y+h-base) > 0.05 {
			t.Errorf("bar %d ends at %.1f, want %.1f", i, y+h, base)
		}
	}
	if !strings.HasPrefix(got[0].attrs["fill"], "url(#hatch") || strings.HasPrefix(got[2].attrs["fill"], "url") {
		t.Error("the paper's bars are hatched, ours are not")
	}
	if names := texts(of(all, "legend")); strings.Join(names, "|") != "paper|here" {
		t.Errorf("legend %q", names)
	}
	if names := texts(of(all, "axis")); strings.Join(names, "|") != "policy|throughput (requests/s)" {
		t.Errorf("axes %q", names)
	}
	if ticks := strings.Join(texts(of(all, "tick")), " "); ticks != "0 1000 2000 3000 BATCH INFless" {
		t.Errorf("ticks %q", ticks)
	}
	if values := strings.Join(texts(of(all, "value")), " "); values != "1151 2952 1000 3000" {
		t.Errorf("values %q", values)
	}
	for _, e := range all {
		if e.name == "pattern" && "url(#"+e.attrs["id"]+")" != got[0].attrs["fill"] {
			t.Error("the hatching is not defined")
		}
	}
}

// Stacked bars lie on top of each other.
func TestStackedBars(t *testing.T) {
	f := bars()
	f.Panels[0].Stacked = true
	got := of(parsed(t, f), "bar")
	for i := range 2 {
		lower, upper := got[i], got[i+2]
		if end := upper.number(t, "y") + upper.number(t, "height"); math.Abs(end-lower.number(t, "y")) > 0.05 {
			t.Errorf("the upper bar ends at %.1f, the lower begins at %.1f", end, lower.number(t, "y"))
		}
		if upper.number(t, "x") != lower.number(t, "x") {
			t.Error("they stand beside each other")
		}
	}
}

// Powers of ten have equal distances. Values that are not positive are left out.
func TestLogarithmicAxes(t *testing.T) {
	f := Figure{Panels: []Panel{{X: Axis{Log: true}, Y: Axis{Log: true}, Series: []Series{{
		Mark: Dots, Points: []Point{{X: 10, Y: 0.1}, {X: 100, Y: 1}, {X: 1000, Y: 10}, {X: 0, Y: 1}, {X: 10, Y: -1}},
	}}}}}
	got := of(parsed(t, f), "dot")
	if len(got) != 3 {
		t.Fatalf("%d dots", len(got))
	}
	x, y := func(i int) float64 { return got[i].number(t, "cx") }, func(i int) float64 { return got[i].number(t, "cy") }
	if math.Abs(x(2)-2*x(1)+x(0)) > 0.2 || math.Abs(y(2)-2*y(1)+y(0)) > 0.2 || y(0) < y(1) {
		t.Errorf("dots at %v %v %v / %v %v %v", x(0), x(1), x(2), y(0), y(1), y(2))
	}
}

// Steps hold a value until the next point. A gap interrupts a line.
func TestStepsAndGaps(t *testing.T) {
	points := []Point{{X: 0, Y: 1}, {X: 1, Y: 2}, {X: 2, Y: math.NaN()}, {X: 3, Y: 1}, {X: 4, Y: 3}}
	for mark, want := range map[Mark]string{Line: "MLML", Steps: "MLLMLL"} {
		got := of(parsed(t, Figure{Panels: []Panel{{Series: []Series{{Name: "x", Mark: mark, Points: points}}}}}), "line")
		pens := strings.Map(func(r rune) rune {
			if r == 'M' || r == 'L' {
				return r
			}
			return -1
		}, got[0].attrs["d"])
		if pens != want {
			t.Errorf("mark %d is drawn as %s, want %s", mark, pens, want)
		}
	}
}

func TestNothingToDraw(t *testing.T) {
	for name, f := range map[string]Figure{
		"no panel":                             {},
		`panel "p" has no value to draw`:       {Panels: []Panel{{Title: "p", Series: []Series{Bar("x", 0, false, math.NaN())}}}},
		`"x" has a value at category 1 of 1`:   {Panels: []Panel{{Categories: []string{"a"}, Series: []Series{Bar("x", 0, false, 1, 2)}}}},
		`axis "rate" cannot reach from 2 to 1`: {Panels: []Panel{{X: Axis{Label: "rate", Min: 2, Max: 1}, Series: []Series{Bar("x", 0, false, 1)}}}},
	} {
		if err := Write(io.Discard, f); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "the axis", "axis"), name) {
			t.Errorf("error %v, want %q", err, name)
		}
	}
}

// For any values, the drawing is XML, has only numbers as coordinates, and no mark outside
// its panel.
func FuzzWrite(f *testing.F) {
	f.Add("a<b", 1.0, 2.0, 3.0, uint8(0))
	f.Add("é\x00", 1e9, 1e9+1e-7, -3.0, uint8(7))
	f.Add("", math.Inf(1), 1e99, 1e-99, uint8(9))
	f.Fuzz(func(t *testing.T, name string, a, b, c float64, how uint8) {
		p := Panel{
			Title: name, X: Axis{Label: name, Log: how&8 != 0}, Y: Axis{Label: name, Log: how&16 != 0}, Stacked: how&4 != 0,
			Series: []Series{{Name: name, Mark: Mark(how & 3), Paper: how&32 != 0, Colour: int(how) - 9, Points: []Point{{X: a, Y: b, Size: c, Says: name}, {X: b, Y: c}, {X: c, Y: a}}}},
		}
		figure := Figure{Title: name, Note: name, Panels: []Panel{p, p, p}}
		if p.check() != nil {
			return
		}
		for _, e := range parsed(t, figure) {
			for attr, v := range e.attrs {
				if strings.Contains(v, "NaN") || strings.Contains(v, "Inf") {
					t.Fatalf("%s has %s=%q", e.name, attr, v)
				}
			}
			if e.attrs["class"] == "dot" {
				if x, y := e.number(t, "cx"), e.number(t, "cy"); x < left-1 || x > panelWidth || y < 0 || y > plotHeight+100 {
					t.Fatalf("a dot at %v, %v", x, y)
				}
			}
		}
	})
}
