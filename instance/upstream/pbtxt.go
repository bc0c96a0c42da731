package upstream

import (
	"fmt"
	"slices"
	"strings"
)

// PbtxtField is a top-level field of a message in protobuf's text format. Nested fields
// are part of its text.
type PbtxtField struct {
	// Name is the field's name, Value the text of its value.
	Name, Value string
	// text is the whole field with the comments before it.
	text string
}

// PbtxtFields splits a message into its fields. The error names the line of the mistake.
func PbtxtFields(message string) ([]PbtxtField, error) {
	s := &scanner{text: message}
	var fields []PbtxtField
	for {
		from := s.at
		s.space()
		if s.at == len(s.text) {
			return fields, nil
		}
		field, err := s.field(from)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", 1+strings.Count(s.text[:min(s.at, len(s.text))], "\n"), err)
		}
		fields = append(fields, field)
	}
}

// PbtxtWithout returns the text of a message without the fields of these names.
func PbtxtWithout(fields []PbtxtField, names ...string) string {
	var rest strings.Builder
	for _, f := range fields {
		if !slices.Contains(names, f.Name) {
			rest.WriteString(strings.TrimLeft(f.text, "\n"))
			rest.WriteByte('\n')
		}
	}
	return rest.String()
}

// PbtxtValue returns the value of the last field with this name, "" if there is none. A
// quoted string loses its quotes.
func PbtxtValue(fields []PbtxtField, name string) string {
	value := ""
	for _, f := range fields {
		if f.Name == name {
			value = strings.Trim(f.Value, `"'`)
		}
	}
	return value
}

type scanner struct {
	text string
	at   int
}

// space skips white space, comments and the separators between fields.
func (s *scanner) space() {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '#':
			end := strings.IndexByte(s.text[s.at:], '\n')
			if end < 0 {
				s.at = len(s.text)
				return
			}
			s.at += end
		case strings.IndexByte(" \t\r\n\v\f,;", c) >= 0:
			s.at++
		default:
			return
		}
	}
}

// field reads a field. from is the beginning of the comments before it.
func (s *scanner) field(from int) (PbtxtField, error) {
	name := s.word()
	if name == "" {
		return PbtxtField{}, fmt.Errorf("expected a field's name at %.20q", s.text[s.at:])
	}
	s.space()
	if s.next(':') {
		s.space()
	}
	begin := s.at
	if err := s.value(); err != nil {
		return PbtxtField{}, fmt.Errorf("%s: %w", name, err)
	}
	return PbtxtField{Name: name, Value: s.text[begin:s.at], text: s.text[from:s.at]}, nil
}

// value skips a scalar, a list or a message.
func (s *scanner) value() error {
	if s.at == len(s.text) {
		return fmt.Errorf("it has no value")
	}
	switch s.text[s.at] {
	case '{', '[', '<':
		return s.nested()
	case '"', '\'':
		for s.at < len(s.text) && (s.text[s.at] == '"' || s.text[s.at] == '\'') {
			if err := s.quoted(); err != nil {
				return err
			}
			end := s.at
			s.space()
			if s.at == len(s.text) || s.text[s.at] != '"' && s.text[s.at] != '\'' {
				s.at = end
				return nil
			}
		}
		return nil
	}
	if s.word() == "" {
		return fmt.Errorf("expected a value at %.20q", s.text[s.at:])
	}
	return nil
}

// nested skips brackets and their content.
func (s *scanner) nested() error {
	var open []byte
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case '{', '[', '<':
			open = append(open, map[byte]byte{'{': '}', '[': ']', '<': '>'}[c])
			s.at++
		case '}', ']', '>':
			if open[len(open)-1] != c {
				return fmt.Errorf("expected %q, found %q", open[len(open)-1], c)
			}
			open = open[:len(open)-1]
			s.at++
			if len(open) == 0 {
				return nil
			}
		case '"', '\'':
			if err := s.quoted(); err != nil {
				return err
			}
		case '#':
			s.space()
		default:
			s.at++
		}
	}
	return fmt.Errorf("%q is missing at the end", open[len(open)-1])
}

// quoted skips a quoted string.
func (s *scanner) quoted() error {
	quote := s.text[s.at]
	for s.at++; s.at < len(s.text) && s.text[s.at] != '\n'; s.at++ {
		switch s.text[s.at] {
		case quote:
			s.at++
			return nil
		case '\\':
			s.at++
		}
	}
	return fmt.Errorf("a string does not end on its line")
}

// word reads a name, a number or a constant.
func (s *scanner) word() string {
	from := s.at
	for s.at < len(s.text) && strings.IndexByte(" \t\r\n\v\f,;:{}[]<>#\"'", s.text[s.at]) < 0 {
		s.at++
	}
	return s.text[from:s.at]
}

func (s *scanner) next(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}
