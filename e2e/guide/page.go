// Package guide runs the pages of docs/ as a reader would: every command, in order,
// in a shell, and looks whether it does what the page says.
//
// A page is Markdown. Its blocks "sh" and "python" are run; a block "text" says what
// the command before it prints. A comment on the line above a block says what is
// special about it:
//
//	<!-- file: greet/bundle.yaml -->   the block is this file's content
//	<!-- stays -->                     the command goes on until the page ends
//	<!-- fails -->                     the command's exit status is not 0
//	<!-- figures differ -->            numbers in what is printed are examples
//	<!-- not run: it needs a GPU -->   why the test leaves it out
package guide

import (
	"fmt"
	"strings"
)

// Block is a command, or a file that the page says to write.
type Block struct {
	// Line is the page's on which the block begins, counted from 1.
	Line int
	// Language is "sh" or "python"; what another one is does not matter, it is a file.
	Language, Text string
	// File is the path of the file that is to be written; empty for a command.
	File string
	// Stays and Fails are as the package says, Omitted is why the block is not run.
	Stays, Fails bool
	Omitted      string
	// Shows is what the command prints, line by line; see [Shown].
	Shows string
	// Figures says that the numbers of Shows are examples.
	Figures bool
}

// Parse reads a page. Its error names the line that cannot be understood.
func Parse(text string) ([]Block, error) {
	var (
		blocks  []Block
		marks   []string
		command = -1
	)
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if mark, is := comment(line); is {
			marks = append(marks, mark)
			continue
		}
		language, is := strings.CutPrefix(line, "```")
		if !is {
			if len(marks) > 0 && line != "" {
				return nil, fmt.Errorf("line %d: below %q there is no block", i+1, marks)
			}
			continue
		}
		first := i + 1
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
		}
		if i == len(lines) {
			return nil, fmt.Errorf("line %d: the block does not end", first)
		}
		b := Block{Line: first, Language: language, Text: strings.Join(lines[first:i], "\n") + "\n"}
		if err := b.mark(marks); err != nil {
			return nil, fmt.Errorf("line %d: %w", first, err)
		}
		marks = nil
		switch {
		case b.File != "":
			blocks = append(blocks, b)
		case language == "sh" || language == "python":
			command = len(blocks)
			blocks = append(blocks, b)
		case language == "text" && b.Omitted == "":
			if command < 0 {
				return nil, fmt.Errorf("line %d: no command is before what is printed", first)
			}
			blocks[command].Shows += b.Text
			blocks[command].Figures = blocks[command].Figures || b.Figures
		}
	}
	return blocks, nil
}

// comment is what a line that is a comment of the test's says.
func comment(line string) (string, bool) {
	rest, opens := strings.CutPrefix(line, "<!-- ")
	inner, closes := strings.CutSuffix(rest, " -->")
	if !opens || !closes {
		return "", false
	}
	for _, known := range []string{"file: ", "not run: ", "stays", "fails", "figures differ"} {
		if strings.HasPrefix(inner, known) {
			return inner, true
		}
	}
	return "", false
}

func (b *Block) mark(marks []string) error {
	for _, m := range marks {
		key, value, _ := strings.Cut(m, ": ")
		switch key {
		case "file":
			b.File = value
		case "not run":
			b.Omitted = value
		case "stays":
			b.Stays = true
		case "fails":
			b.Fails = true
		case "figures differ":
			b.Figures = true
		default:
			return fmt.Errorf("%q is not known", m)
		}
	}
	return nil
}
