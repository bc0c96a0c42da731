package tokenizer

import (
	"bytes"
	"encoding/json"
)

// The file is checked once to be JSON. These functions then find the parts of a value without checking them again:
// package json would read a vocabulary of 250,000 tokens once for each level of nesting, in the start of an instance.

// members calls each for the fields of an object in valid JSON. It returns false for any other value.
func members(raw []byte, each func(name string, value json.RawMessage)) bool {
	at := space(raw, 0)
	if at == len(raw) || raw[at] != '{' {
		return false
	}
	for at = space(raw, at+1); raw[at] != '}'; {
		end := skip(raw, at)
		name := text(raw[at:end])
		at = space(raw, space(raw, end)+1) // Behind the colon.
		end = skip(raw, at)
		each(name, raw[at:end:end])
		at = comma(raw, end)
	}
	return true
}

// elements calls each for the elements of a list in valid JSON. It returns false for any other value.
func elements(raw []byte, each func(value json.RawMessage)) bool {
	at := space(raw, 0)
	if at == len(raw) || raw[at] != '[' {
		return false
	}
	for at = space(raw, at+1); raw[at] != ']'; {
		end := skip(raw, at)
		each(raw[at:end:end])
		at = comma(raw, end)
	}
	return true
}

// comma returns the place behind a comma and white space, if they follow.
func comma(raw []byte, at int) int {
	if at = space(raw, at); raw[at] == ',' {
		at = space(raw, at+1)
	}
	return at
}

// space returns the place behind white space.
func space(raw []byte, at int) int {
	for at < len(raw) && (raw[at] == ' ' || raw[at] == '\n' || raw[at] == '\t' || raw[at] == '\r') {
		at++
	}
	return at
}

// skip returns the end of the value that begins at a place.
func skip(raw []byte, at int) int {
	depth := 0
	for at < len(raw) {
		switch raw[at] {
		case '"':
			at = quoted(raw, at)
		case '{', '[':
			depth++
			at++
			continue
		case '}', ']':
			depth--
			at++
		default:
			if at++; depth > 0 {
				continue
			}
			for at < len(raw) && !bytes.ContainsRune([]byte(",]} \t\n\r"), rune(raw[at])) {
				at++
			}
		}
		if depth == 0 {
			return at
		}
	}
	return at
}

// quoted returns the end of the string that begins at a place.
func quoted(raw []byte, at int) int {
	for at++; ; at++ {
		at += bytes.IndexByte(raw[at:], '"')
		escapes := 0
		for raw[at-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return at + 1
		}
	}
}

// isText reports whether a value is a string.
func isText(raw []byte) bool { return len(raw) > 0 && raw[0] == '"' }

// text is the content of a string in valid JSON.
func text(raw []byte) (s string) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	_ = json.Unmarshal(raw, &s) // It is valid.
	return s
}
