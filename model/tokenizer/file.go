package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// object is a JSON object whose fields are taken one by one. The first mistake stays, with the path of its
// field; what close finds left is unknown.
type object struct {
	path   string
	fields map[string]json.RawMessage
	err    *error
}

// open reads a JSON object. It must be valid JSON.
func open(path string, raw json.RawMessage) (*object, error) {
	o := &object{path: path, fields: map[string]json.RawMessage{}, err: new(error)}
	if !members(raw, func(name string, value json.RawMessage) { o.fields[name] = value }) {
		return nil, fmt.Errorf("%s: it is not a JSON object: %w", path, orNull(json.Unmarshal(raw, &o.fields)))
	}
	return o, nil
}

func orNull(err error) error {
	if err == nil {
		return errors.New("it is null")
	}
	return err
}

// fail keeps the first mistake.
func (o *object) fail(name, format string, arguments ...any) {
	if *o.err == nil {
		*o.err = fmt.Errorf("%s.%s: %w", o.path, name, fmt.Errorf(format, arguments...))
	}
}

// raw takes a field; nil if it is absent or null.
func (o *object) raw(name string) json.RawMessage {
	raw := o.fields[name]
	delete(o.fields, name)
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// optional takes a field into a value, which stays as it is if the field is absent or null.
func (o *object) optional(name string, value any) {
	raw := o.raw(name)
	if raw == nil {
		return
	}
	if err := json.Unmarshal(raw, value); err != nil {
		o.fail(name, "%w", err)
	}
}

// required is optional for a field that must be there.
func (o *object) required(name string, value any) {
	raw, ok := o.fields[name]
	if !ok || string(raw) == "null" {
		o.fail(name, "it is missing")
	}
	o.optional(name, value)
}

// part takes a field that must be there, with its parts to be read.
func (o *object) part(name string) json.RawMessage {
	raw := o.raw(name)
	if raw == nil {
		o.fail(name, "it is missing")
	}
	return raw
}

// choice takes a field that names one of a few things.
func (o *object) choice(name, value string, choices ...string) string {
	o.optional(name, &value)
	if !slices.Contains(choices, value) {
		o.fail(name, "%.100q is not supported; the values are %s", value, strings.Join(choices, ", "))
	}
	return value
}

// ignore takes fields that do not change the ids.
func (o *object) ignore(names ...string) {
	for _, name := range names {
		delete(o.fields, name)
	}
}

// close returns the first mistake, or that a field is unknown.
func (o *object) close() error {
	if *o.err != nil {
		return *o.err
	}
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		return fmt.Errorf("%s.%.100s: the field is unknown: it may change the ids, so the file is refused",
			o.path, name)
	}
	return nil
}

// maxParts is the maximum depth of a component in components.
const maxParts = 32

// component takes the field "type" of a component.
func component(path string, raw json.RawMessage) (o *object, kind string, err error) {
	if strings.Count(path, "[") > maxParts {
		return nil, "", fmt.Errorf("%.200s: components are nested deeper than %d", path, maxParts)
	}
	if o, err = open(path, raw); err != nil {
		return nil, "", err
	}
	o.required("type", &kind)
	return o, kind, *o.err
}

// components reads a list of components.
func components[T any](o *object, field string, parse func(string, json.RawMessage) (T, error)) []T {
	var raws []json.RawMessage
	var all []T
	o.required(field, &raws)
	for i, raw := range raws {
		part, err := parse(fmt.Sprintf("%s.%s[%d]", o.path, field, i), raw)
		if err != nil {
			o.fail(field, "%w", err)
			return nil
		}
		all = append(all, part)
	}
	return all
}

// validJSON refuses a file that is not one value in JSON.
func validJSON(file []byte) error {
	if json.Valid(file) {
		return nil
	}
	return json.Unmarshal(file, new(json.RawMessage)) // It says where.
}

// validText refuses what package json would replace silently by U+FFFD: invalid UTF-8, and half of a
// surrogate pair.
func validText(file []byte) error {
	if !utf8.Valid(file) {
		return errors.New("the file is not UTF-8")
	}
	for i := 0; i+1 < len(file); i++ {
		if file[i] != '\\' {
			continue
		}
		i++
		if file[i] != 'u' {
			continue
		}
		switch surrogate(file[i-1:]) {
		case 'h':
			if surrogate(file[min(i+5, len(file)):]) != 'l' {
				return fmt.Errorf("byte %d: half of a surrogate pair, which is no character", i-1)
			}
			i += 6
		case 'l':
			return fmt.Errorf("byte %d: half of a surrogate pair, which is no character", i-1)
		}
	}
	return nil
}

// surrogate says whether an escape is the high or the low half of a surrogate pair: 'h', 'l' or 0.
func surrogate(text []byte) byte {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' || text[2]|0x20 != 'd' {
		return 0
	}
	switch text[3] | 0x20 {
	case '8', '9', 'a', 'b':
		return 'h'
	case 'c', 'd', 'e', 'f':
		return 'l'
	}
	return 0
}
