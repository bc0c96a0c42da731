package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/web"
)

// DefaultNamespace is the namespace of a function that names none, as provider.DefaultNamespace.
var DefaultNamespace = "openfaas-fn"

// maxHead is the most bytes that path, query and headers may take together, as for
// other invocations.
const maxHead = 60 << 10

// The headers that the gateway adds to every request, and the one with the callback URL.
const (
	CallIDHeader    = "X-Call-Id"
	StartTimeHeader = "X-Start-Time"
	CallbackHeader  = "X-Callback-Url"
)

// Request is a decoded and checked message.
type Request struct {
	types.QueueRequest
	// Name is the function's full name, "name.namespace".
	Name string
}

// CallID returns the request's X-Call-Id, "" if it has none.
func (r *Request) CallID() string { return r.Header.Get(CallIDHeader) }

// Frame returns the request as an instance gets it. The result shares the header and the
// body with r.
func (r *Request) Frame() *frame.Request {
	h := r.Header
	if h == nil {
		h = http.Header{}
	}
	if r.Host != "" && h["X-Forwarded-Host"] == nil {
		h["X-Forwarded-Host"] = []string{r.Host}
	}
	return &frame.Request{Method: r.Method, Path: r.Path, Query: r.QueryString, Header: h, Body: r.Body}
}

// message is a request as the queue stores it.
type message struct {
	types.QueueRequest
	// Bytewise says that each character of the path, the query and the headers' values stands for
	// one byte (ISO 8859-1). JSON carries only UTF-8, and HTTP any bytes.
	Bytewise bool `json:",omitempty"`
}

// convert changes the texts that HTTP takes as bytes.
func (m *message) convert(change func(string) string) {
	m.Path, m.QueryString, m.Header = change(m.Path), change(m.QueryString), m.Header.Clone()
	for _, values := range m.Header {
		for i, v := range values {
			values[i] = change(v)
		}
	}
}

// isText reports whether JSON can carry the request's head.
func (m *message) isText() bool {
	bytewise := !utf8.ValidString(m.Path) || !utf8.ValidString(m.QueryString)
	for _, values := range m.Header {
		bytewise = bytewise || slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) })
	}
	return !bytewise
}

// fromBytes returns a text of one character for each byte, toBytes the bytes again.
func fromBytes(text string) string {
	var b strings.Builder
	for i := range len(text) {
		b.WriteRune(rune(text[i]))
	}
	return b.String()
}

func toBytes(text string) string {
	var b strings.Builder
	for _, c := range text {
		b.WriteByte(byte(c))
	}
	return b.String()
}

// EncodeRequest returns the request as a message for the queue.
func EncodeRequest(r *types.QueueRequest) ([]byte, error) {
	m := message{QueueRequest: *r}
	if strings.HasPrefix(m.QueryString, "?") {
		m.QueryString = "?" + m.QueryString // DecodeRequest removes one.
	}
	if !m.isText() {
		m.Bytewise = true
		m.convert(fromBytes)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("the request cannot be written as JSON: %w", err)
	}
	return data, nil
}

// DecodeRequest reads and checks a message. An absent method becomes POST, an absent path
// "/".
func DecodeRequest(data []byte) (*Request, error) { return decode(data, true) }

// DecodeHead is DecodeRequest without the body, which takes the most time.
func DecodeHead(data []byte) (*Request, error) { return decode(data, false) }

func decode(data []byte, body bool) (*Request, error) {
	var m message
	if err := unmarshal(data, &m, body); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoMessage, err)
	}
	if m.Bytewise {
		m.convert(toBytes)
	}
	// Other publishers of OpenFaaS pass the query on with its question mark.
	m.QueryString = strings.TrimPrefix(m.QueryString, "?")
	r := &Request{QueueRequest: m.QueueRequest}
	if err := CheckRequest(r); err != nil {
		return nil, err
	}
	return r, nil
}

// CheckRequest checks a request and completes it: full name, method, path, query, headers.
func CheckRequest(r *Request) (err error) {
	if r.Name, err = FullName(r.Function); err != nil {
		return err
	}
	if r.Method == "" {
		r.Method = http.MethodPost
	}
	if !isToken(r.Method) {
		return fmt.Errorf("Method is %q, which is not an HTTP method", clip(r.Method))
	}
	if !strings.HasPrefix(r.Path, "/") {
		r.Path = "/" + r.Path
	}
	if hasSpace(r.Path) || strings.Contains(r.Path, "?") {
		return fmt.Errorf("Path %q holds a space, control character or question mark; escape it", clip(r.Path))
	}
	if hasSpace(r.QueryString) {
		return fmt.Errorf("QueryString %q holds a space or control character; escape it", clip(r.QueryString))
	}
	if err := checkHeader(r); err != nil {
		return err
	}
	return CheckCallback(r.CallbackURL)
}

// checkHeader drops the headers that belong to one connection. It refuses headers that
// an HTTP request cannot carry, and a head that is too large.
func checkHeader(r *Request) error {
	size := len(r.Path) + len(r.QueryString)
	canonical(r.Header)
	web.DropHopByHop(r.Header)
	for name, values := range r.Header {
		if !isToken(name) {
			return fmt.Errorf("Header has the name %q, which no HTTP request can carry", clip(name))
		}
		for _, v := range values {
			if strings.ContainsAny(v, "\r\n\x00") {
				return fmt.Errorf("Header %s holds a line break or NUL", name)
			}
			size += len(name) + len(v) + 4
		}
	}
	if size > maxHead {
		return fmt.Errorf("Path, QueryString and Header take %d bytes, the limit is %d", size, maxHead)
	}
	return nil
}

// canonical changes the headers' names to the form in which net/http finds them.
func canonical(h http.Header) {
	for name, values := range h {
		if c := http.CanonicalHeaderKey(name); c != name {
			delete(h, name)
			h[c] = append(h[c], values...)
		}
	}
}

// CheckCallback refuses a callback that is not an absolute http or https URL without
// user and password. nil, for no callback, is allowed.
func CheckCallback(u *url.URL) error {
	switch {
	case u == nil:
		return nil
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("the callback URL %q must begin with http:// or https://", clip(u.Redacted()))
	case u.User != nil:
		// The JSON of OpenFaaS's queued requests loses them, and keeps an empty User.
		return fmt.Errorf("the callback URL %q must not hold a user and password; put a token into its path or query instead", clip(u.Redacted()))
	case u.Hostname() == "" || u.Opaque != "":
		return fmt.Errorf("the callback URL %q must name a host, as in http://host:8080/path", clip(u.Redacted()))
	}
	if _, err := url.Parse(u.String()); err != nil || hasSpace(u.Host) {
		return errors.New("the callback URL cannot be written as a URL")
	}
	return nil
}

// FullName returns "name.namespace" for a function's name that may carry its namespace
// after a dot.
func FullName(function string) (string, error) {
	if function == "" {
		return "", errors.New("Function is empty; it must be the function's name")
	}
	name, namespace := function, DefaultNamespace
	if i := strings.LastIndexByte(function, '.'); i >= 0 {
		name, namespace = function[:i], function[i+1:]
	}
	if !annotation.IsName(name) || !annotation.IsName(namespace) {
		return "", fmt.Errorf("Function is %q; it must be NAME or NAME.NAMESPACE, both of lower-case letters, digits and hyphens", clip(function))
	}
	return name + "." + namespace, nil
}

// SubjectKey returns the end of a function's subjects: NAMESPACE.NAME. name is the
// function's full name.
func SubjectKey(name string) string {
	function, namespace := SplitName(name)
	return namespace + "." + function
}

// FromSubjectKey returns the full name for a SubjectKey.
func FromSubjectKey(key string) string { return SubjectKey(key) }

// SplitName splits a full name into name and namespace.
func SplitName(name string) (function, namespace string) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return name, DefaultNamespace
	}
	return name[:i], name[i+1:]
}

// Redacted returns a URL without its password, "" for nil.
func Redacted(u *url.URL) string {
	if u == nil {
		return ""
	}
	return u.Redacted()
}

// isToken reports whether s is a token of HTTP (RFC 9110 §5.6.2).
func isToken(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

func hasSpace(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c == 0x7f })
}

// clip cuts a value to 80 bytes, so a hostile one cannot fill a log line or an answer.
func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
