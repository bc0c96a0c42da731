package documents

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Object is a mapping of a source's settings. It remembers which of its fields were read, so that the
// others are reported as lost, and not forgotten.
type Object struct {
	// At is its path in the source, "" for the whole.
	At string
	// Fields are its fields, and Read those that were read.
	Fields map[string]any
	Read   map[string]bool
}

// AsObject returns the object that a decoded value is, an empty one if it is none.
func AsObject(at string, value any) *Object {
	fields, _ := value.(map[string]any)
	if other, ok := value.(map[any]any); ok {
		fields = make(map[string]any, len(other))
		for k, v := range other {
			fields[fmt.Sprint(k)] = v
		}
	}
	return &Object{At: at, Fields: fields, Read: map[string]bool{}}
}

// Has reports whether a field is there and not null.
func (o *Object) Has(key string) bool { return o.Fields[key] != nil }

// Path returns a field's path in the source.
func (o *Object) Path(key string) string {
	if o.At == "" {
		return key
	}
	return o.At + "." + key
}

// Get returns a field, nil if it is absent.
func (o *Object) Get(key string) any {
	o.Read[key] = true
	return o.Fields[key]
}

// Text returns a scalar field as text, "" if it is absent or no scalar.
func (o *Object) Text(key string) string {
	switch v := o.Get(key).(type) {
	case nil, map[string]any, map[any]any, []any:
		return ""
	case float64:
		if v == float64(int64(v)) {
			return fmt.Sprint(int64(v))
		}
		return fmt.Sprint(v)
	default:
		return fmt.Sprint(v)
	}
}

// Number returns a field that is a whole number from 0, and whether it is one.
func (o *Object) Number(key string) (n int, ok bool) {
	_, err := fmt.Sscanf(o.Text(key), "%d", &n)
	return n, err == nil && n >= 0 && fmt.Sprint(n) == o.Text(key)
}

// Object returns a field that is a mapping, an empty one if it is absent.
func (o *Object) Object(key string) *Object { return AsObject(o.Path(key), o.Get(key)) }

// List returns a field that is a list.
func (o *Object) List(key string) []any {
	l, _ := o.Get(key).([]any)
	return l
}

// Objects returns the mappings in a field that is a list.
func (o *Object) Objects(key string) (all []*Object) {
	for i, v := range o.List(key) {
		all = append(all, AsObject(fmt.Sprintf("%s[%d]", o.Path(key), i), v))
	}
	return all
}

// Texts returns the texts in a field that is a list.
func (o *Object) Texts(key string) (all []string) {
	for _, v := range o.List(key) {
		all = append(all, fmt.Sprint(v))
	}
	return all
}

// Strings returns a mapping of texts.
func (o *Object) Strings(key string) map[string]string {
	inner := o.Object(key)
	all := make(map[string]string, len(inner.Fields))
	for k := range inner.Fields {
		all[k] = inner.Text(k)
	}
	return all
}

// Unread lists the fields that were not read, sorted.
func (o *Object) Unread() (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(o.Fields)) {
		if !o.Read[key] && o.Fields[key] != nil && !IsEmpty(o.Fields[key]) {
			keys = append(keys, key)
		}
	}
	return keys
}

// IsEmpty reports whether a value says nothing: an empty mapping or list.
func IsEmpty(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// MaxShown is the maximum number of characters of a value in a report.
const MaxShown = 60

// Short returns a value for a report, on one line.
func Short(value any) string {
	if value == nil {
		return ""
	}
	text, ok := value.(string)
	if !ok {
		encoded, err := json.Marshal(value)
		if text = string(encoded); err != nil { // Its keys may be other than texts.
			text = fmt.Sprint(value)
		}
	}
	text = text[:min(len(text), 16*MaxShown)]
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if runes := []rune(text); len(runes) > MaxShown {
		return string(runes[:MaxShown-1]) + "…"
	}
	return text
}

// Without returns the object as if fields had been read.
func (o *Object) Without(keys ...string) *Object {
	for _, key := range keys {
		o.Read[key] = true
	}
	return o
}
