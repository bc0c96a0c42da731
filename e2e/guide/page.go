// Package guide runs the pages of docs/ as a reader would: every command in order in a
// shell. It checks that each prints what the page shows. Begin with Parse and
// Reader.Follow.
//
// A page is Markdown. Its blocks "sh" and "python" are run; a block "text" shows the output
// of the command before it. A comment on the line above a block has options. Two comments are for
// the console: one above its picture, and one for a button that the reader presses:
//
//	<!-- file: greet/bundle.yaml -->   the block is this file's content
//	<!-- stays -->                     the command runs until the page ends
//	<!-- fails -->                     the command's exit status is not 0
//	<!-- figures differ -->            numbers in the output are examples
//	<!-- not run: it needs a GPU -->   the test leaves the block out, for this reason
//	<!-- console: #/nodes | free -->   the picture below is of this view, once it has these words
//	<!-- press: Remove -->             the reader presses the button whose text begins so
package guide

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Block is a command to run, a file to write, a view of the console to look at, or a button to press there.
type Block struct {
	// Line is the line of the page on which the block begins, from 1.
	Line int
	// Language is "sh" or "python" for a command, [Console] or [Press]. A file may have any language.
	// Text is the command, the view's fragment of an address, or the beginning of the button's text.
	Language, Text string
	// Words are those that the view has when it is as the picture shows it. Image is the picture's path
	// from the page's folder.
	Words []string
	Image string
	// File is the path of the file to write, "" for a command.
	File string
	// Stays and Fails are the options of that name. Omitted is the reason of "not run".
	Stays, Fails bool
	Omitted      string
	// Shows is the command's expected output, line by line; see [Shown].
	Shows string
	// Figures is set if the numbers of Shows are examples.
	Figures bool
}

// The languages of the blocks that are for the console.
const (
	Console = "console"
	Press   = "press"
)

// picture matches a line that shows a picture, anyPicture one anywhere in a page.
var (
	picture    = regexp.MustCompile(`^!\[[^\]]+\]\(([^)]+\.png)\)$`)
	anyPicture = regexp.MustCompile(`!\[[^\]]*\]\(([^)]+\.png)\)`)
)

// consoleBlock returns the block of a comment that is for the console. next is the line below it.
func consoleBlock(mark, next string) (b Block, is bool, err error) {
	language, text, _ := strings.Cut(mark, ": ")
	switch language {
	case Press:
		return Block{Language: Press, Text: text}, true, nil
	case Console:
		m := picture.FindStringSubmatch(next)
		if m == nil {
			return Block{}, true, errors.New("there is no picture below the view " + text)
		}
		words := strings.Split(text, " | ")
		return Block{Language: Console, Text: words[0], Words: words[1:], Image: m[1]}, true, nil
	}
	return Block{}, false, nil
}

// Parse reads a page. An error names the invalid line.
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
			b, is, err := consoleBlock(mark, strings.TrimSpace(strings.Join(lines[i+1:min(i+2, len(lines))], "")))
			switch {
			case err != nil:
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			case is:
				b.Line = i + 1
				blocks = append(blocks, b)
			default:
				marks = append(marks, mark)
			}
			continue
		}
		language, is := strings.CutPrefix(line, "```")
		if !is {
			if len(marks) > 0 && line != "" {
				return nil, fmt.Errorf("line %d: there is no block below %q", i+1, marks)
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
				return nil, fmt.Errorf("line %d: there is no command before the output", first)
			}
			blocks[command].Shows += b.Text
			blocks[command].Figures = blocks[command].Figures || b.Figures
		}
	}
	return blocks, nil
}

// comment returns the option in a line that is a comment for this package.
func comment(line string) (string, bool) {
	rest, opens := strings.CutPrefix(line, "<!-- ")
	inner, closes := strings.CutSuffix(rest, " -->")
	if !opens || !closes {
		return "", false
	}
	for _, known := range []string{"file: ", "not run: ", "stays", "fails", "figures differ", Console + ": ", Press + ": "} {
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
			return fmt.Errorf("unknown option %q", m)
		}
	}
	return nil
}
