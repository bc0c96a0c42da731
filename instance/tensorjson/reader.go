// Package tensorjson reads and writes tensors as JSON arrays, flat or nested, and reads the
// documents around them. It does not know the protocols: see package protocol. Begin with
// [Reader] and [Values].
package tensorjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"unicode/utf8"
	"unsafe"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// Reader reads a JSON document in place. It accepts exactly the documents that
// encoding/json accepts, nested at most 64 deep. Tensors are most of a request: reading
// their numbers directly into the input's bytes is several times faster than decoding into
// Go values first.
type Reader struct {
	data  []byte
	at    int
	depth int
}

// maxDepth is the maximum nesting depth of a document.
const maxDepth = 64

// NewReader returns a Reader at the beginning of a document. The Reader aliases it.
func NewReader(document []byte) *Reader { return &Reader{data: document} }

var errSyntax = errors.New("the body is not valid JSON")

func (r *Reader) fail(expected string) error {
	if r.at >= len(r.data) {
		return fmt.Errorf("%w: it ends where %s is expected", errSyntax, expected)
	}
	return fmt.Errorf("%w: expected %s at byte %d, found %q", errSyntax, expected, r.at, r.data[r.at])
}

// Peek skips white space and returns the next byte, 0 at the end.
func (r *Reader) Peek() byte {
	for r.at < len(r.data) {
		switch c := r.data[r.at]; c {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return c
		}
	}
	return 0
}

// Take consumes c if it comes next.
func (r *Reader) Take(c byte) bool {
	if r.Peek() != c || r.at >= len(r.data) {
		return false
	}
	r.at++
	return true
}

// End checks that the document ends here.
func (r *Reader) End() error {
	if r.Peek(); r.at < len(r.data) {
		return r.fail("the end of the body")
	}
	return nil
}

// Object calls member for each member of an object. member must consume the value.
func (r *Reader) Object(member func(key string) error) error {
	if !r.Take('{') {
		return r.fail("an object")
	}
	if r.depth++; r.depth > maxDepth {
		return fmt.Errorf("the body is nested more than %d deep", maxDepth)
	}
	defer func() { r.depth-- }()
	if r.Take('}') {
		return nil
	}
	for {
		key, err := r.string()
		if err != nil {
			return err
		}
		if !r.Take(':') {
			return r.fail(`":"`)
		}
		if err := member(key); err != nil {
			return err
		}
		if r.Take('}') {
			return nil
		}
		if !r.Take(',') {
			return r.fail(`"," or "}"`)
		}
	}
}

// Array calls element for each element of an array. element must consume it.
func (r *Reader) Array(element func() error) error {
	if !r.Take('[') {
		return r.fail("an array")
	}
	if r.depth++; r.depth > maxDepth {
		return fmt.Errorf("the body is nested more than %d deep", maxDepth)
	}
	defer func() { r.depth-- }()
	if r.Take(']') {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if r.Take(']') {
			return nil
		}
		if !r.Take(',') {
			return r.fail(`"," or "]"`)
		}
	}
}

func (r *Reader) string() (string, error) {
	quoted, plain, err := r.quoted()
	if err != nil {
		return "", err
	}
	if plain {
		return string(quoted[1 : len(quoted)-1]), nil
	}
	return unquoted(quoted)
}

// unquoted returns the text of a string with escapes.
func unquoted(quoted []byte) (s string, err error) {
	if err := json.Unmarshal(quoted, &s); err != nil {
		return "", fmt.Errorf("%w: %w", errSyntax, err)
	}
	return s, nil
}

// Text consumes a string and returns its text, which may alias the document. Bytes that are not UTF-8, and halves of
// surrogate pairs, are read as U+FFFD.
func (r *Reader) Text() (string, error) {
	if c := r.Peek(); c != '"' {
		return "", r.fail("a string")
	}
	quoted, plain, err := r.quoted()
	if err != nil {
		return "", err
	}
	if inner := quoted[1 : len(quoted)-1]; plain || bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return unsafe.String(unsafe.SliceData(inner), len(inner)), nil
	}
	return unquoted(quoted)
}

// Integer consumes an integer. what names it in errors.
func (r *Reader) Integer(what string) (int64, error) {
	text, err := r.number()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is %.40s; it must be an integer", what, text)
	}
	return n, nil
}

// quoted consumes a string and returns its text with the quotes. A plain string is valid
// and has no escapes. Another one still has to be decoded and may be invalid.
func (r *Reader) quoted() (text []byte, plain bool, err error) {
	if r.Peek() != '"' {
		return nil, false, r.fail("a string")
	}
	start := r.at
	plain = true
	for r.at++; r.at < len(r.data); r.at++ {
		switch c := r.data[r.at]; {
		case c == '"':
			r.at++
			return r.data[start:r.at], plain, nil
		case c == '\\':
			plain = false
			r.at++
		case c < ' ':
			return nil, false, r.fail("a character")
		case c >= 0x80:
			plain = false
		}
	}
	r.at = len(r.data)
	return nil, false, r.fail("the end of a string")
}

// number consumes a number and returns its text, which aliases the document.
func (r *Reader) number() (string, error) {
	r.Peek()
	start := r.at
	if r.at < len(r.data) && r.data[r.at] == '-' {
		r.at++
	}
	if r.at < len(r.data) && r.data[r.at] == '0' {
		r.at++
	} else if !r.digits() {
		return "", r.fail("a number")
	}
	if r.at < len(r.data) && r.data[r.at] == '.' {
		if r.at++; !r.digits() {
			return "", r.fail("a digit")
		}
	}
	if r.at < len(r.data) && (r.data[r.at] == 'e' || r.data[r.at] == 'E') {
		r.at++
		if r.at < len(r.data) && (r.data[r.at] == '+' || r.data[r.at] == '-') {
			r.at++
		}
		if !r.digits() {
			return "", r.fail("a digit")
		}
	}
	return unsafe.String(&r.data[start], r.at-start), nil
}

func (r *Reader) digits() bool {
	start := r.at
	for r.at < len(r.data) && r.data[r.at]-'0' <= 9 {
		r.at++
	}
	return r.at > start
}

// literal consumes word (true, false or null) if it comes next.
func (r *Reader) literal(word string) bool {
	r.Peek()
	if len(r.data)-r.at < len(word) || string(r.data[r.at:r.at+len(word)]) != word {
		return false
	}
	r.at += len(word)
	return true
}

// Skip consumes any value.
func (r *Reader) Skip() error {
	switch c := r.Peek(); {
	case c == '{':
		return r.Object(func(string) error { return r.Skip() })
	case c == '[':
		return r.Array(r.Skip)
	case c == '"':
		text, plain, err := r.quoted()
		if err == nil && !plain && !json.Valid(text) {
			err = errSyntax
		}
		return err
	case c == '-' || c-'0' <= 9:
		_, err := r.number()
		return err
	case r.literal("true"), r.literal("false"), r.literal("null"):
		return nil
	}
	return r.fail("a value")
}

// Raw consumes any value and returns its text.
func (r *Reader) Raw() ([]byte, error) {
	r.Peek()
	start := r.at
	if err := r.Skip(); err != nil {
		return nil, err
	}
	return r.data[start:r.at], nil
}

// Extent is [Reader.Raw] for a value that another Reader checks later. It only counts the
// brackets of an array without strings, so its numbers are not read twice.
func (r *Reader) Extent() ([]byte, error) {
	if r.Peek() != '[' {
		return r.Raw()
	}
	start, at := r.at, r.at
	for open := 0; ; {
		n := bytes.IndexByte(r.data[at:], ']') + 1
		part := r.data[at : at+n]
		if n == 0 || bytes.IndexByte(part, '"') >= 0 {
			return r.Raw()
		}
		at += n
		if open += bytes.Count(part, []byte{'['}) - 1; open == 0 {
			r.at = at
			return r.data[start:at], nil
		}
	}
}

// maxInto is the maximum length in bytes of a value for Into. The decoded value may take
// many times that memory.
const maxInto = 64 << 10

// Into decodes the next value, of at most 64 KiB, into v. what names it in errors.
func (r *Reader) Into(what string, v any) error {
	if r.simple(v) {
		return nil
	}
	text, err := r.Raw()
	if err != nil {
		return err
	}
	if len(text) > maxInto {
		return fmt.Errorf("%s has %d bytes; the maximum is %d", what, len(text), maxInto)
	}
	err = json.Unmarshal(text, v)
	var mistyped *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mistyped): // The error's own text names Go types.
		return fmt.Errorf("%s has the %s, where %s belongs", what, mistyped.Value, plain(mistyped.Type.Kind()))
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// simple reads a plain string, or a list of integers, into v. They are most of what [Reader.Into] reads, and encoding/json
// takes several times as long. It returns false and consumes nothing if v or the next value is something else.
func (r *Reader) simple(v any) (ok bool) {
	start := r.at
	switch v := v.(type) {
	case *string:
		var text []byte
		if text, ok = r.simpleString(); ok {
			*v = string(text)
		}
	case *tensor.Type:
		var text []byte
		if text, ok = r.simpleString(); ok {
			*v = tensor.Type(text)
		}
	case *[]int64:
		ok = r.integers(v)
	}
	if !ok {
		r.at = start
	}
	return ok
}

// simpleString consumes a string without escapes and returns its text without the quotes.
func (r *Reader) simpleString() (text []byte, ok bool) {
	text, plain, err := r.quoted()
	if err != nil || !plain || len(text) > maxInto {
		return nil, false
	}
	return text[1 : len(text)-1], true
}

// maxIntegers is the maximum length of a list that integers reads.
const maxIntegers = 32

// integers consumes a list of integers of at most 18 digits. It returns false if the next value is another.
func (r *Reader) integers(v *[]int64) bool {
	if !r.Take('[') {
		return false
	}
	list := make([]int64, 0, 4)
	for len(list) < maxIntegers {
		r.Peek()
		n, next := scan(r.data, r.at)
		if next == 0 || !n.whole || n.digits >= 1e18 {
			return false
		}
		i := int64(n.digits)
		if n.negative {
			i = -i
		}
		list, r.at = append(list, i), next
		if r.Take(']') {
			*v = list
			return true
		}
		if !r.Take(',') {
			return false
		}
	}
	return false
}

// plain names what JSON has for a kind of Go's types.
func plain(k reflect.Kind) string {
	switch k {
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "an integer"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}
