package guide

import (
	"fmt"
	"regexp"
	"strings"
)

// number matches a number with a unit of time, which may change with the number's size.
const number = `(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?:ns|µs|ms|s)?`

var (
	blanks  = regexp.MustCompile(`[ \t]+`)
	numbers = regexp.MustCompile(number)
)

// Shown checks that the output printed has each line of page, in this order, with any lines
// in between. In a line, … stands for any text, and successive blanks count as one. With
// figures, a number stands for any number. The error names the first missing line.
func Shown(page, printed string, figures bool) error {
	lines := strings.Split(printed, "\n")
	for _, want := range strings.Split(page, "\n") {
		want = strings.TrimSpace(want)
		if want == "" || want == "…" {
			continue
		}
		p := pattern(want, figures)
		for len(lines) > 0 && !p.MatchString(tidy(lines[0])) {
			lines = lines[1:]
		}
		if len(lines) == 0 {
			return fmt.Errorf("the output has no line like %q", want)
		}
		lines = lines[1:]
	}
	return nil
}

func tidy(line string) string { return blanks.ReplaceAllString(strings.TrimSpace(line), " ") }

func pattern(line string, figures bool) *regexp.Regexp {
	var p strings.Builder
	p.WriteString("^")
	for i, part := range strings.Split(tidy(line), "…") {
		if i > 0 {
			p.WriteString(".*")
		}
		if figures {
			p.WriteString(anyFigures(part))
		} else {
			p.WriteString(regexp.QuoteMeta(part))
		}
	}
	p.WriteString("$")
	return regexp.MustCompile(p.String())
}

// anyFigures returns the pattern of a text in which a number stands for any number.
func anyFigures(text string) string {
	var p strings.Builder
	last := 0
	for _, at := range numbers.FindAllStringIndex(text, -1) {
		p.WriteString(regexp.QuoteMeta(text[last:at[0]]) + number)
		last = at[1]
	}
	return p.String() + regexp.QuoteMeta(text[last:])
}
