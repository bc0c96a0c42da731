package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// DefaultNamespace is the namespace of a function that names none.
const DefaultNamespace = "openfaas-fn"

// maxHead is the largest path, query and header together, in bytes, as for
// other invocations.
const maxHead = 60 << 10

// The headers that the gateway gives every request, and the one that names the
// callback.
const (
	CallIDHeader    = "X-Call-Id"
	StartTimeHeader = "X-Start-Time"
	CallbackHeader  = "X-Callback-Url"
)

// Request is one checked message.
type Request struct {
	types.QueueRequest
	// Name is the function's full name, "name.namespace".
	Name string
}

// CallID is the name that the gateway gave the request, "" if none.
func (r *Request) CallID() string { return r.Header.Get(CallIDHeader) }

// Frame is the request as an instance gets it. It shares the header and the
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

// EncodeRequest is the message as it is queued.
func EncodeRequest(r *types.QueueRequest) ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("the request cannot be written as JSON: %w", err)
	}
	return data, nil
}

// DecodeRequest reads and checks a message. Its errors tell what is wrong with it. A
// method that is absent is POST, a path that is absent "/".
func DecodeRequest(data []byte) (*Request, error) {
	r := &Request{}
	if err := unmarshal(data, &r.QueueRequest); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoMessage, err)
	}
	if err := CheckRequest(r); err != nil {
		return nil, err
	}
	return r, nil
}

// CheckRequest completes a request and tells what is wrong with it.
func CheckRequest(r *Request) (err error) {
	if r.Name, err = FullName(r.Function); err != nil {
		return err
	}
	if r.Method == "" {
		r.Method = http.MethodPost
	}
	if !isToken(r.Method) {
		return fmt.Errorf("Method is %q, which is no HTTP method", clip(r.Method))
	}
	if !strings.HasPrefix(r.Path, "/") {
		r.Path = "/" + r.Path
	}
	// Queues before this one pass the query on with its question mark.
	r.QueryString = strings.TrimLeft(r.QueryString, "?")
	if hasSpace(r.Path) || strings.Contains(r.Path, "?") {
		return fmt.Errorf("Path %q holds a space, control character or question mark; escape it", clip(r.Path))
	}
	if hasSpace(r.QueryString) {
		return fmt.Errorf("QueryString %q holds a space or control character; escape it", clip(r.QueryString))
	}
	if err := checkHeader(r); err != nil {
		return err
	}
	if r.CallbackURL != nil && r.CallbackURL.User != nil && r.CallbackURL.User.String() == "" {
		// A user and password look like this after a way through JSON.
		r.CallbackURL.User = nil
	}
	return CheckCallback(r.CallbackURL)
}

// checkHeader drops the headers that belong to one connection, and refuses what
// no HTTP request can carry.
func checkHeader(r *Request) error {
	size := len(r.Path) + len(r.QueryString)
	canonical(r.Header)
	for _, name := range hopByHop {
		delete(r.Header, name)
	}
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

// canonical gives all headers the names by which net/http finds them.
func canonical(h http.Header) {
	for name, values := range h {
		if c := http.CanonicalHeaderKey(name); c != name {
			delete(h, name)
			h[c] = append(h[c], values...)
		}
	}
}

// CheckCallback refuses a callback that is no absolute http or https URL; nil is
// none at all.
func CheckCallback(u *url.URL) error {
	switch {
	case u == nil:
		return nil
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("the callback URL %q must begin with http:// or https://", clip(u.Redacted()))
	case u.User != nil && u.User.String() != "":
		// OpenFaaS's form of a queued request loses them.
		return fmt.Errorf("the callback URL %q must not hold a user and password; put a token into its path or query instead", clip(u.Redacted()))
	case u.Hostname() == "" || u.Opaque != "":
		return fmt.Errorf("the callback URL %q must name a host, as in http://host:8080/path", clip(u.Redacted()))
	}
	if _, err := url.Parse(u.String()); err != nil || hasSpace(u.Host) {
		return errors.New("the callback URL cannot be written as a URL")
	}
	return nil
}

// hopByHop are the headers that belong to one connection (RFC 9110 §7.6.1), and
// those that the next one sets anew from the body.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect", "Content-Length"}

// FullName is "name.namespace" of a function's name that may have its namespace
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

// SubjectKey is the end of the subjects of a function: NAMESPACE.NAME. name is its full
// name.
func SubjectKey(name string) string {
	function, namespace := SplitName(name)
	return namespace + "." + function
}

// FromSubjectKey is the way back from Key.
func FromSubjectKey(key string) string { return SubjectKey(key) }

// SplitName takes a full name apart.
func SplitName(name string) (function, namespace string) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return name, DefaultNamespace
	}
	return name[:i], name[i+1:]
}

// Redacted is a URL without its password, "" for none.
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

// clip keeps a hostile value from filling a log line or an answer.
func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
