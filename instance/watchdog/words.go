package watchdog

import (
	"errors"
	"strings"
)

// splitWords splits a command line into words as a shell does: at white space, except in
// quotes or after a backslash. It expands nothing. In double quotes a backslash escapes
// only " and \.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\t', '\n', '\r':
			if begun {
				words = append(words, word.String())
				word.Reset()
				begun = false
			}
		case '\'', '"':
			end, err := quoted(line[i+1:], c, &word)
			if err != nil {
				return nil, err
			}
			i += end
			begun = true
		case '\\':
			if i++; i == len(line) {
				return nil, errors.New("it ends in a backslash")
			}
			word.WriteByte(line[i])
			begun = true
		default:
			word.WriteByte(c)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}

// quoted reads up to the closing quote and returns the number of bytes including it.
func quoted(text string, quote byte, word *strings.Builder) (length int, err error) {
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == quote {
			return i + 1, nil
		}
		if c == '\\' && quote == '"' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\') {
			i++
			c = text[i]
		}
		word.WriteByte(c)
	}
	return 0, errors.New("a quote is not closed")
}
