package importing

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// object is a mapping of a source's settings. It remembers which of its fields were read, so that the
// others are reported as lost, and not forgotten.
type object struct {
	// at is its path in the source, "" for the whole.
	at     string
	fields map[string]any
	read   map[string]bool
}

// asObject returns the object that a decoded value is, an empty one if it is none.
func asObject(at string, value any) *object {
	fields, _ := value.(map[string]any)
	if other, ok := value.(map[any]any); ok {
		fields = make(map[string]any, len(other))
		for k, v := range other {
			fields[fmt.Sprint(k)] = v
		}
	}
	return &object{at: at, fields: fields, read: map[string]bool{}}
}

// has reports whether a field is there and not null.
func (o *object) has(key string) bool { return o.fields[key] != nil }

// path returns a field's path in the source.
func (o *object) path(key string) string {
	if o.at == "" {
		return key
	}
	return o.at + "." + key
}

// get returns a field, nil if it is absent.
func (o *object) get(key string) any {
	o.read[key] = true
	return o.fields[key]
}

// text returns a scalar field as text, "" if it is absent or no scalar.
func (o *object) text(key string) string {
	switch v := o.get(key).(type) {
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

// number returns a field that is a whole number from 0, and whether it is one.
func (o *object) number(key string) (n int, ok bool) {
	_, err := fmt.Sscanf(o.text(key), "%d", &n)
	return n, err == nil && n >= 0 && fmt.Sprint(n) == o.text(key)
}

// object returns a field that is a mapping, an empty one if it is absent.
func (o *object) object(key string) *object { return asObject(o.path(key), o.get(key)) }

// list returns a field that is a list.
func (o *object) list(key string) []any {
	l, _ := o.get(key).([]any)
	return l
}

// objects returns the mappings in a field that is a list.
func (o *object) objects(key string) (all []*object) {
	for i, v := range o.list(key) {
		all = append(all, asObject(fmt.Sprintf("%s[%d]", o.path(key), i), v))
	}
	return all
}

// texts returns the texts in a field that is a list.
func (o *object) texts(key string) (all []string) {
	for _, v := range o.list(key) {
		all = append(all, fmt.Sprint(v))
	}
	return all
}

// strings returns a mapping of texts.
func (o *object) strings(key string) map[string]string {
	inner := o.object(key)
	all := make(map[string]string, len(inner.fields))
	for k := range inner.fields {
		all[k] = inner.text(k)
	}
	return all
}

// unread lists the fields that were not read, sorted.
func (o *object) unread() (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(o.fields)) {
		if !o.read[key] && o.fields[key] != nil && !isEmpty(o.fields[key]) {
			keys = append(keys, key)
		}
	}
	return keys
}

// isEmpty reports whether a value says nothing: an empty mapping or list.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// lose reports fields as lost for a reason.
func (m *Model) lose(o *object, reason string, keys ...string) {
	for _, key := range keys {
		if value := o.get(key); value != nil && !isEmpty(value) {
			m.note(Lost, o.path(key), value, "%s", reason)
		}
	}
}

// loseRest reports all fields that were not read as lost.
func (m *Model) loseRest(o *object) {
	for _, key := range o.unread() {
		m.note(Lost, o.path(key), o.get(key), "functions have no such field")
	}
}

// maxShown is the maximum number of characters of a value in a report.
const maxShown = 60

// short returns a value for a report, on one line.
func short(value any) string {
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
	text = text[:min(len(text), 16*maxShown)]
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if runes := []rune(text); len(runes) > maxShown {
		return string(runes[:maxShown-1]) + "…"
	}
	return text
}
