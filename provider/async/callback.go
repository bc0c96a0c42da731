package async

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/web"
)

// DefaultCallbackTimeout is how long a callback may take.
const DefaultCallbackTimeout = 10 * time.Second

// maxRedirects is the number of redirects that Post follows. maxAnswer is the most bytes
// of an answer that it reads; the connection can be used again after that.
const (
	maxRedirects = 3
	maxAnswer    = 64 << 10
)

// CallbackOptions says where callbacks may go.
type CallbackOptions struct {
	// Timeout is how long one callback may take, redirects included;
	// DefaultCallbackTimeout if 0.
	Timeout time.Duration
	// AllowPrivateRedirects lets redirects lead to private addresses.
	AllowPrivateRedirects bool
	// ForbidPrivate refuses a callback URL that leads to a private address.
	ForbidPrivate bool
}

// CallbackResult is the answer of an invocation.
type CallbackResult struct {
	// Function is the function's full name. CallID and StartTime are the request's
	// X-Call-Id and X-Start-Time, "" if it has none.
	Function, CallID, StartTime string
	// Status and Header are those of the function's answer. Body is its body, of Size bytes;
	// nil for none.
	Status int
	Header http.Header
	Body   io.ReaderAt
	Size   int64
	// Duration is how long the invocation took.
	Duration time.Duration
	// trace is the traceparent of the callback, nil if it is not sampled.
	trace []string
}

// CallbackRefusedError says that a callback leads to a forbidden address. Another try
// would fail, too.
type CallbackRefusedError struct{ why string }

// Error returns one sentence.
func (e *CallbackRefusedError) Error() string { return e.why }

// Poster posts results. It is safe for concurrent use.
type Poster struct {
	options       CallbackOptions
	first, others *http.Client
}

// NewPoster returns a poster.
func NewPoster(o CallbackOptions) *Poster {
	if o.Timeout <= 0 {
		o.Timeout = DefaultCallbackTimeout
	}
	return &Poster{options: o, first: client(o.ForbidPrivate), others: client(!o.AllowPrivateRedirects)}
}

// client returns a client that follows no redirects. It connects to no metadata service and, if
// strict, to public addresses only.
func client(strict bool) *http.Client {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	dialer.Control = func(_, address string, _ syscall.RawConn) error { return checkAddress(address, strict) }
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, MaxIdleConns: 256, MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second,
			TLSHandshakeTimeout: 5 * time.Second, MaxResponseHeaderBytes: maxAnswer, ForceAttemptHTTP2: true,
			// Post does not look at the answer's body.
			DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close closes idle connections.
func (p *Poster) Close() {
	p.first.CloseIdleConnections()
	p.others.CloseIdleConnections()
}

// Post posts a result and returns the status code of the answer. An error means that
// there was no answer. It is a *CallbackRefusedError if the URL or a redirect leads to a
// forbidden address.
func (p *Poster) Post(ctx context.Context, to *url.URL, r *CallbackResult) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	use := p.first
	for hops := 0; ; hops++ {
		status, next, err := post(ctx, use, to, r)
		if err != nil || next == nil {
			return status, err
		}
		if hops == maxRedirects {
			return 0, &CallbackRefusedError{fmt.Sprintf("the callback URL redirects more than %d times", maxRedirects)}
		}
		if to, err = redirected(to, next); err != nil {
			return 0, err
		}
		use = p.others
	}
}

// redirected returns the URL of a redirect, which must be http or https.
func redirected(from, to *url.URL) (*url.URL, error) {
	to = from.ResolveReference(to)
	if to.Scheme != "http" && to.Scheme != "https" || to.Hostname() == "" {
		return nil, &CallbackRefusedError{fmt.Sprintf("the callback URL redirects to %q, which is not an http or https URL", to.Redacted())}
	}
	return to, nil
}

// post makes one request. next is the URL of a redirect, nil for any other answer.
func post(ctx context.Context, use *http.Client, to *url.URL, r *CallbackResult) (status int, next *url.URL, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), nil)
	if err != nil {
		return 0, nil, &CallbackRefusedError{fmt.Sprintf("the callback URL is not a URL: %v", err)}
	}
	if r.Size > 0 {
		body := func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(r.Body, 0, r.Size)), nil }
		request.Body, _ = body() // It returns no error.
		request.GetBody, request.ContentLength = body, r.Size
	}
	request.Header = headers(r)
	response, err := use.Do(request)
	if err != nil {
		return 0, nil, explain(err)
	}
	defer response.Body.Close()
	// It does not wait for the rest: Close then closes the connection.
	_, _ = io.CopyN(io.Discard, response.Body, maxAnswer)
	switch response.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return response.StatusCode, nil, nil
	}
	if next, err = response.Location(); err != nil {
		return response.StatusCode, nil, nil //nolint:nilerr // The redirect has no URL: the status is the answer.
	}
	return response.StatusCode, next, nil
}

// explain returns the refusal inside a client's error, or the error without the URL,
// which may contain a password.
func explain(err error) error {
	var refused *CallbackRefusedError
	if errors.As(err, &refused) {
		return refused
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return fmt.Errorf("the callback URL was not reached: %w", err)
}

// ownHeaders are not copied from the function's answer to the callback: its receiver would take
// them for the caller's.
var ownHeaders = []string{"Host", "Authorization", "Cookie"}

// headers returns the headers of a callback, as in OpenFaaS: the function's, and those
// that describe the invocation.
func headers(r *CallbackResult) http.Header {
	h := r.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	web.DropHopByHop(h)
	for _, name := range ownHeaders {
		h.Del(name)
	}
	if r.trace != nil {
		h[frame.ParentHeader] = r.trace
	}
	h.Set("User-Agent", "faas-infer")
	h.Set("X-Function-Name", r.Function)
	h.Set(web.FunctionStatusHeader, strconv.Itoa(r.Status))
	h.Set("X-Duration-Seconds", strconv.FormatFloat(r.Duration.Seconds(), 'f', 6, 64))
	if r.CallID != "" {
		h.Set("X-Call-Id", r.CallID)
	}
	if r.StartTime != "" {
		h.Set("X-Start-Time", r.StartTime)
	}
	return h
}
