package documents

import (
	"slices"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/instance/upstream"
)

// Message is the settings of a model, or a part of them. It remembers which of its fields were read.
type Message struct {
	At string
	// Fields are its fields, and Read those that were read.
	Fields []upstream.PbtxtField
	Read   map[string]bool
}

// ParseMessage reads the settings at a path in the source, "" for the whole.
func ParseMessage(at, text string) (*Message, error) {
	fields, err := upstream.PbtxtFields(text)
	return &Message{at, fields, map[string]bool{}}, err
}

// Has reports whether a field is there.
func (c *Message) Has(name string) bool {
	return slices.ContainsFunc(c.Fields, func(f upstream.PbtxtField) bool { return f.Name == name })
}

// Text returns a field as text, "" if it is absent.
func (c *Message) Text(name string) string {
	c.Read[name] = true
	return upstream.PbtxtValue(c.Fields, name)
}

// Messages returns the messages in a field, repeated or in a list. It leaves out what it cannot read.
func (c *Message) Messages(name string) (all []*Message) {
	c.Read[name] = true
	for _, f := range c.Fields {
		if f.Name != name {
			continue
		}
		for _, text := range elements(f.Value) {
			inner, err := ParseMessage(c.Path(name), text)
			if err == nil {
				all = append(all, inner)
			}
		}
	}
	return all
}

// elements returns the insides of the messages in a value: one message, or a list of them.
func elements(value string) (all []string) {
	depth, begin := 0, 0
	for at := 0; at < len(value); at++ {
		switch c := value[at]; c {
		case '#':
			end := strings.IndexByte(value[at:], '\n')
			if end < 0 {
				return all
			}
			at += end
		case '"', '\'':
			for at++; at < len(value) && value[at] != c; at++ {
				if value[at] == '\\' {
					at++
				}
			}
		case '{', '<':
			if depth++; depth == 1 {
				begin = at + 1
			}
		case '}', '>':
			if depth--; depth == 0 {
				all = append(all, value[begin:at])
			}
		}
	}
	return all
}

// Numbers returns the numbers in a field that is a list, or repeated.
func (c *Message) Numbers(name string) (all []int64) {
	c.Read[name] = true
	for _, f := range c.Fields {
		if f.Name != name {
			continue
		}
		for _, word := range strings.FieldsFunc(strings.Trim(f.Value, "[] \t\n"), func(r rune) bool {
			return strings.ContainsRune(", \t\r\n", r)
		}) {
			if n, err := strconv.ParseInt(word, 10, 64); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}

// Path returns a field's path in the settings.
func (c *Message) Path(name string) string { return strings.TrimPrefix(c.At+"."+name, ".") }

// Rest returns the fields that were not read, each once. They count as read from then on.
func (c *Message) Rest() (all []upstream.PbtxtField) {
	for _, f := range c.Fields {
		if !c.Read[f.Name] {
			c.Read[f.Name] = true
			all = append(all, f)
		}
	}
	return all
}
