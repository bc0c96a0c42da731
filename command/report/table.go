package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// Formats lists the values of --output.
var Formats = []string{"table", "wide", "json", "yaml"}

// Output says how a command prints its result.
type Output struct {
	format string
	json   bool
}

// Register adds --output, and --json, which is the same as --output json.
func (o *Output) Register(flags *pflag.FlagSet) {
	o.format = Formats[0]
	flags.VarP(o, "output", "o", "how to print the result: "+strings.Join(Formats, ", ")+"; wide has more columns and shortens none")
	flags.BoolVar(&o.json, "json", false, "print JSON, as --output json does")
}

// Set implements [pflag.Value].
func (o *Output) Set(format string) error {
	if !slices.Contains(Formats, format) {
		return fmt.Errorf("it must be one of %s", strings.Join(Formats, ", "))
	}
	o.format = format
	return nil
}

// String implements [pflag.Value].
func (o *Output) String() string { return o.format }

// Type implements [pflag.Value].
func (o *Output) Type() string { return "format" }

// Wide reports whether the result is a table with all its columns.
func (o *Output) Wide() bool { return o.format == "wide" && !o.json }

// Raw reports whether the result is JSON or YAML.
func (o *Output) Raw() bool { return o.json || o.format == "json" || o.format == "yaml" }

// WriteJSON prints a result that is JSON already, as YAML if that was asked for.
func (o *Output) WriteJSON(w io.Writer, text []byte) error {
	if o.format == "yaml" && !o.json {
		var err error
		if text, err = yaml.JSONToYAML(text); err != nil {
			return fmt.Errorf("convert the answer to YAML: %w", err)
		}
	}
	if !bytes.HasSuffix(text, []byte("\n")) {
		text = append(slices.Clip(text), '\n')
	}
	_, err := w.Write(text)
	return err
}

// Print prints a value as JSON or YAML, otherwise its table.
func (o *Output) Print(w io.Writer, value any, table func() *Table) error {
	if !o.Raw() {
		return table().Write(w, o.Wide())
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		return err
	}
	return o.WriteJSON(w, text.Bytes())
}

// Column is a column of a table. A Wide one is only in wide tables. The texts of a Long one, which must be
// the last, come on lines of their own if the table does not fit beside them.
type Column struct {
	Title             string
	Wide, Right, Long bool
}

// Table is a table for people. Each row has a text for each column. Without titles it has no line of them.
type Table struct {
	Columns []Column
	Rows    [][]string
}

// Add appends a row, with values as fmt.Sprint prints them.
func (t *Table) Add(values ...any) {
	row := make([]string, len(values))
	for i, v := range values {
		row[i] = fmt.Sprint(v)
	}
	t.Rows = append(t.Rows, row)
}

// Write prints the table within the width of w's terminal. A wide one has all columns, whole; of these only the
// long texts are within the width.
func (t *Table) Write(w io.Writer, wide bool) error {
	_, err := io.WriteString(w, t.format(Width(w), wide))
	return err
}

// gap is the number of spaces between columns, indent that before a long text on lines of its own, and least
// the width below which no column is shortened.
const (
	gap    = 2
	indent = 4
	least  = 6
)

// format returns the table with lines of at most width characters, 0 for any length. A wide one may be wider.
func (t *Table) format(width int, wide bool) string {
	var columns []Column
	rows := make([][]string, len(t.Rows)+1)
	for i, c := range t.Columns {
		if c.Wide && !wide {
			continue
		}
		columns = append(columns, c)
		rows[0] = append(rows[0], c.Title)
		for j, row := range t.Rows {
			rows[j+1] = append(rows[j+1], Printable(row[i]))
		}
	}
	var long []string
	if last := len(columns) - 1; width > 0 && columns[last].Long && total(widths(rows)) > width {
		columns = columns[:last]
		for i, row := range rows {
			long, rows[i] = append(long, row[last]), row[:last]
		}
	}
	sizes := widths(rows)
	if !wide {
		sizes = shrink(sizes, width)
	}
	var b strings.Builder
	for i, row := range rows {
		if i == 0 && strings.Join(row, "") == "" {
			continue
		}
		var line strings.Builder
		for j, text := range row {
			text = shortened(text, sizes[j])
			pad := strings.Repeat(" ", sizes[j]-utf8.RuneCountInString(text))
			if columns[j].Right {
				text = pad + text
			} else {
				text += pad
			}
			if j > 0 {
				line.WriteString(strings.Repeat(" ", gap))
			}
			line.WriteString(text)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		if i > 0 && long != nil && long[i] != "" {
			for _, part := range wrap(long[i], width-indent) {
				b.WriteString(strings.Repeat(" ", indent) + part + "\n")
			}
		}
	}
	return b.String()
}

func widths(rows [][]string) []int {
	out := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, text := range row {
			out[i] = max(out[i], utf8.RuneCountInString(text))
		}
	}
	return out
}

func total(widths []int) int {
	n := gap * (len(widths) - 1)
	for _, w := range widths {
		n += w
	}
	return n
}

// shrink makes the widest columns narrower until a line fits, but none narrower than least.
func shrink(widths []int, width int) []int {
	for over := total(widths) - width; width > 0 && over > 0; over-- {
		widest := 0
		for i, w := range widths {
			if w > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= least {
			break
		}
		widths[widest]--
	}
	return widths
}

func shortened(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// Wrapped returns a text after a prefix, as lines of at most width characters that begin below each other; 0 stands
// for any width.
func Wrapped(prefix, text string, width int) string {
	if width == 0 {
		return prefix + text + "\n"
	}
	n := utf8.RuneCountInString(prefix)
	return prefix + strings.Join(wrap(text, max(width-n, least)), "\n"+strings.Repeat(" ", n)) + "\n"
}

// wrap breaks a text at spaces into lines of at most width characters. A longer word is broken, too.
func wrap(text string, width int) (lines []string) {
	width = max(width, 1)
	line := []rune{}
	for _, word := range strings.Fields(text) {
		runes := []rune(word)
		if len(line) > 0 && len(line)+1+len(runes) > width {
			lines, line = append(lines, string(line)), nil
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		for line = append(line, runes...); len(line) > width; line = line[width:] {
			lines = append(lines, string(line[:width]))
		}
	}
	return append(lines, string(line))
}

// Printable returns a text in which spaces replace characters that could control a terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// Width returns the number of characters in a line of w: $COLUMNS, the width of a terminal, or 0 for any.
func Width(w io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil {
			return n
		}
	}
	return 0
}

// Interactive reports whether w is a terminal that can move its cursor.
func Interactive(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// Coloured reports whether w is a terminal whose user wants colours.
func Coloured(w io.Writer) bool { return os.Getenv("NO_COLOR") == "" && Interactive(w) }
