package report

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

func example() *Table {
	t := &Table{Columns: []Column{{Title: "NAME"}, {Title: "STATE"}, {Title: "RATE", Right: true}, {Title: "IMAGE", Wide: true}, {Title: "PROBLEM", Long: true}}}
	t.Add("mnist", "ok", 12, "mnist:latest", "")
	t.Add("a-function-with-a-long-name-of-its-own", "misses", 480, "x:v1", "24 % refused: load 480/s, instances carry 390/s,\x1b[2J no node has room")
	return t
}

func TestTableFitsTheTerminal(t *testing.T) {
	for _, width := range []int{30, 40, 60, 80, 120, 0} {
		text := example().format(width, false)
		for _, line := range strings.Split(text, "\n") {
			if n := utf8.RuneCountInString(line); width > 0 && n > width {
				t.Errorf("a line of %d characters in %d columns: %q", n, width, line)
			}
		}
		for _, want := range []string{"mnist", "480", "misses"} {
			if !strings.Contains(text, want) {
				t.Errorf("%d columns: no %s in\n%s", width, want, text)
			}
		}
		// Nothing of a sentence is lost, nor can it control the terminal.
		if words := strings.Join(strings.Fields(text), " "); !strings.Contains(words, "load 480/s, instances carry 390/s, [2J no node has room") || strings.Contains(text, "\x1b") {
			t.Errorf("%d columns:\n%s", width, text)
		}
	}
	if text := example().format(0, true); !strings.Contains(text, "IMAGE") || !strings.Contains(text, "a-function-with-a-long-name-of-its-own  misses   480  x:v1") {
		t.Errorf("wide:\n%s", text)
	}
	if text := example().format(60, true); !strings.Contains(text, "x:v1\n    24 % refused: load 480/s, instances carry 390/s, [2J no\n    node has room\n") || !strings.Contains(text, "a-function-with-a-long-name-of-its-own  misses") {
		t.Errorf("wide in 60 columns:\n%s", text)
	}
	if text := Wrapped("At: ", "a node has room", 10); text != "At: a node\n    has\n    room\n" {
		t.Errorf("wrapped:\n%s", text)
	}
	if text := example().format(40, false); strings.Contains(text, "IMAGE") || !strings.Contains(text, "…") {
		t.Errorf("narrow:\n%s", text)
	}
}

func TestWidthOfColumns(t *testing.T) {
	t.Setenv("COLUMNS", "60")
	var b bytes.Buffer
	if err := example().Write(&b, false); err != nil || Width(&b) != 60 || strings.Contains(b.String(), "PROBLEM") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestOutput(t *testing.T) {
	for format, want := range map[string]string{
		"": "NAME", "-o=table": "NAME", "-o=wide": "IMAGE", "--output=json": "{\n  \"a\": \"<1>\"\n}\n", "-o=yaml": "a: <1>\n", "--json": "{\n  \"a\"",
	} {
		var o Output
		flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
		o.Register(flags)
		if err := flags.Parse(strings.Fields(format)); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := o.Print(&b, map[string]string{"a": "<1>"}, example); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%s: %v\n%s", format, err, b.String())
		}
	}
	var o Output
	if err := o.Set("xml"); err == nil || !strings.Contains(err.Error(), "table, wide, json, yaml") {
		t.Error(err)
	}
}

// A file is no terminal, and neither are colours wanted on a dumb one.
func TestNoColours(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	if Coloured(&bytes.Buffer{}) || Interactive(&bytes.Buffer{}) {
		t.Error("a buffer has colours")
	}
}
