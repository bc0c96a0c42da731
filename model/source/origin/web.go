package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/model/source"
)

const (
	// maxRedirects is how often a server may send a download elsewhere.
	maxRedirects = 3
	// maxAnswer bounds what is read of an answer that is no model, in bytes.
	maxAnswer = 8 << 20
	// dialTimeout bounds connecting, and headerTimeout the wait for an answer's header.
	dialTimeout, headerTimeout = 15 * time.Second, time.Minute
	// maxAsking bounds the time of an answer that is no model.
	maxAsking = 2 * time.Minute
	// maxPages bounds the parts in which a server lists a folder.
	maxPages  = 1000
	userAgent = "faas-infer"
)

// Client asks servers for models.
type Client struct {
	client  *http.Client
	sources Sources
}

// NewClient returns a client for public addresses and those of the sources.
func NewClient(s Sources) *Client { return &Client{newClient(s), s} }

// Close closes idle connections.
func (c *Client) Close() { c.client.CloseIdleConnections() }

// newClient returns a client that connects to public addresses and those of the sources only. The address is
// checked when
// it is dialled, so a name cannot change its meaning in between. It uses no proxy, which would dial unchecked.
func newClient(s Sources) *http.Client {
	plain := &net.Dialer{Timeout: dialTimeout}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				host, _, err := net.SplitHostPort(address)
				if err != nil || s.named(host) {
					return plain.DialContext(ctx, network, address)
				}
				checked := &net.Dialer{Timeout: dialTimeout, Control: func(_, dialled string, _ syscall.RawConn) error {
					to, err := netip.ParseAddrPort(dialled)
					if err != nil {
						return err
					}
					if !Public(to.Addr()) && !s.within(to.Addr()) {
						return refused(host, to.Addr())
					}
					return nil
				}}
				return checked.DialContext(ctx, network, address)
			},
			ForceAttemptHTTP2: true, DisableCompression: true, ReadBufferSize: 256 << 10,
			ResponseHeaderTimeout: headerTimeout, TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: 30 * time.Second,
			MaxIdleConnsPerHost: connections, MaxResponseHeaderBytes: 256 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// answer is a response, and what the servers said that sent the request elsewhere.
type answer struct {
	*http.Response
	// linkedTag, linkedSize and commit are those of the hub's answer, "" if there are none.
	linkedTag, linkedSize, commit string
}

// do sends a request, and follows at most maxRedirects redirects. The credentials are for the first host only.
func (c *Client) do(r *http.Request) (*answer, error) {
	if r.Header.Get("Authorization") != "" && r.URL.Scheme == source.HTTP && !c.sources.trusts(r.URL.Hostname()) && !onThisMachine(r.URL.Host) {
		return nil, Fatal{fmt.Errorf("its credentials would go to %s over http://, where anybody on the way reads them; "+
			"use https://, or allow the host with the provider's --model-sources %s", r.URL.Host, r.URL.Hostname())}
	}
	r.Header.Set("User-Agent", userAgent)
	out := &answer{}
	for redirects := 0; ; redirects++ {
		response, err := c.client.Do(r)
		if err != nil {
			return nil, plainly(err)
		}
		out.Response = response
		for header, into := range map[string]*string{"X-Linked-Etag": &out.linkedTag, "X-Linked-Size": &out.linkedSize, "X-Repo-Commit": &out.commit} {
			if value := response.Header.Get(header); value != "" {
				*into = value
			}
		}
		switch response.StatusCode {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		default:
			return out, nil
		}
		to, err := response.Location()
		if err != nil { // S3 answers so for a bucket in another region.
			return out, nil
		}
		_ = response.Body.Close()
		if redirects == maxRedirects {
			return nil, Fatal{fmt.Errorf("its server redirects more than %d times; use the address where "+
				"the file is", maxRedirects)}
		}
		if to.Scheme != source.HTTPS && (to.Scheme != source.HTTP || r.URL.Scheme == source.HTTPS) {
			return nil, Fatal{fmt.Errorf("its server redirects from %s to %s, which is less safe; use "+
				"the address where the file is", r.URL.Scheme, to.Scheme)}
		}
		next := r.Clone(r.Context())
		next.URL, next.Host = to, ""
		if to.Host != r.URL.Host || to.Scheme != r.URL.Scheme {
			next.Header.Del("Authorization")
			next.Header.Del("X-Amz-Security-Token")
		}
		r = next
	}
}

// plainly returns an error of a client without the URL, whose query may be a credential.
func plainly(err error) error {
	if wrapped := new(url.Error); errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if stop := new(Fatal); errors.As(err, stop) {
		return *stop
	}
	return fmt.Errorf("its server cannot be reached: %w", err)
}

// refusal is the error of an answer that is no content.
func (a *answer) refusal(what string) error {
	defer a.Body.Close()
	late := time.AfterFunc(dialTimeout, func() { _ = a.Body.Close() }) // The text may never come.
	defer late.Stop()
	begin, _ := io.ReadAll(io.LimitReader(a.Body, 512))
	said := strings.Join(strings.Fields(strings.ToValidUTF8(string(begin), "")), " ")
	host := a.Request.URL.Host
	switch code := a.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return Fatal{fmt.Errorf("%s refuses it (%d); name a secret with the credentials in the "+
			"function's secrets: %s", host, code, what)}
	case code == http.StatusNotFound || code == http.StatusGone:
		return Fatal{fmt.Errorf("%s has no such file (%d)", host, code)}
	case code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout:
		return fmt.Errorf("%s answers %d %s", host, code, said)
	default:
		return Fatal{fmt.Errorf("%s answers %d %s", host, code, said)}
	}
}

// remote is a file at a server of HTTP.
type remote struct {
	client *Client
	// request makes a request for the file with its credentials, which may be signed by the time.
	request func(ctx context.Context) (*http.Request, error)
	// secret says which secret has the credentials.
	secret string
	// linked says that the server's own header has the tag, as the hub's.
	linked bool
	// ranges says that a large file comes over several connections.
	ranges bool
	// renew gets a new token after an answer that asks for one, nil for none.
	renew func(ctx context.Context, asked string) error
}

// look asks for a file. The answer's content is that of the object's first.
func (m remote) look(ctx context.Context, sum string) (*Object, error) {
	a, err := m.ask(ctx, 0, -1, "")
	if err != nil {
		return nil, err
	}
	if a.StatusCode != http.StatusOK {
		return nil, a.refusal(m.secret)
	}
	if sum == "" && endless(a.Response) {
		_ = a.Body.Close()
		return nil, errEndless
	}
	o := &Object{Size: a.ContentLength, Tag: tagOf(a.Header), Sum: sum, First: a.Body}
	o.keyed = tagIsKeyed(a.Header)
	if m.linked && a.linkedTag != "" {
		o.Tag = a.linkedTag
		if digest := strings.Trim(a.linkedTag, `"`); isDigest(digest, 64) && sum == "" {
			o.Sum = digest
		}
	}
	o.Open = m.opener(o)
	return o, nil
}

// ask sends a request for the bytes from an offset on, up to an end if that is not negative, if the content still is
// that of a tag.
func (m remote) ask(ctx context.Context, offset, end int64, tag string) (*answer, error) {
	r, err := m.request(ctx)
	if err != nil {
		return nil, Fatal{err}
	}
	if offset > 0 || end >= 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		if end >= 0 {
			r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, end-1))
		}
		if tag != "" {
			r.Header.Set("If-Range", tag)
		}
	}
	return m.client.do(r)
}

// open opens an object's content at an offset.
func (m remote) open(ctx context.Context, o *Object, offset int64) (io.ReadCloser, int64, error) {
	return m.openRange(ctx, o, offset, -1)
}

// openRange opens an object's content at an offset, up to an end if that is not negative.
func (m remote) openRange(ctx context.Context, o *Object, offset, end int64) (io.ReadCloser, int64, error) {
	strong := strings.HasPrefix(o.Tag, `"`)
	if !strong && o.Sum == "" {
		offset = 0 // Nothing would tell that the rest is of another content.
	}
	tag := o.Tag
	if !strong || m.linked { // The hub's tag is not that of the server to which it redirects.
		tag = ""
	}
	a, err := m.ask(ctx, offset, end, tag)
	if err == nil && a.StatusCode == http.StatusUnauthorized && m.renew != nil {
		_ = a.Body.Close()
		if err = m.renew(ctx, a.Header.Get("WWW-Authenticate")); err == nil {
			a, err = m.ask(ctx, offset, end, tag)
		}
	}
	if err != nil {
		return nil, 0, err
	}
	if tagIsKeyed(a.Header) {
		o.forgetting.Lock()
		o.MD5 = ""
		o.forgetting.Unlock()
	}
	now := tagOf(a.Header)
	if m.linked && a.linkedTag != "" {
		now = a.linkedTag
	}
	if code := a.StatusCode; (code == http.StatusOK || code == http.StatusPartialContent) && o.Tag != "" && now != "" && now != o.Tag {
		_ = a.Body.Close()
		return nil, 0, Fatal{errors.New("its content was replaced while it was being downloaded; deploy again")}
	}
	switch a.StatusCode {
	case http.StatusOK:
		if o.Size < 0 && o.Sum == "" && endless(a.Response) {
			_ = a.Body.Close()
			return nil, 0, errEndless
		}
		return a.Body, 0, nil
	case http.StatusPartialContent:
		if from, rest, ok := begins(a.Header.Get("Content-Range")); ok && (rest || o.Size >= 0 || o.Sum != "") {
			return a.Body, from, nil
		}
		_ = a.Body.Close()
		return nil, 0, Fatal{errors.New("its server answers with a part of the file and does not say " +
			"which (Content-Range)")}
	case http.StatusRequestedRangeNotSatisfiable:
		_ = a.Body.Close()
		if offset == 0 {
			return nil, 0, Fatal{errors.New("its server refuses to send the file's first byte (416)")}
		}
		return m.open(ctx, o, 0)
	}
	return nil, 0, a.refusal(m.secret)
}

// tagIsKeyed reports whether the ETag is no MD5 because S3 has encrypted the object with a key of KMS.
func tagIsKeyed(h http.Header) bool {
	way := h.Get("X-Amz-Server-Side-Encryption")
	return way != "" && way != "AES256"
}

// tagOf returns the ETag, or the time of the last change as a weak one, "" for none.
func tagOf(h http.Header) string {
	if tag := h.Get("ETag"); tag != "" {
		return tag
	}
	if changed := h.Get("Last-Modified"); changed != "" {
		return `W/"` + changed + `"`
	}
	return ""
}

// endless reports whether an answer ends with its connection, so that nobody sees whether it broke.
func endless(r *http.Response) bool {
	return r.ProtoMajor == 1 && r.ContentLength < 0 && !slices.Contains(r.TransferEncoding, "chunked")
}

// errEndless refuses such an answer.
var errEndless = Fatal{errors.New("its server does not say how long the file is, so a part of it would look like " +
	"the whole; add #sha256= with the file's hash")}

// begins returns the first byte's offset of a Content-Range. rest reports whether it has all from there on.
func begins(text string) (offset int64, rest, ok bool) {
	span, is := strings.CutPrefix(text, "bytes ")
	first, end, cut := strings.Cut(span, "-")
	offset, err := strconv.ParseInt(first, 10, 64)
	last, total, _ := strings.Cut(end, "/")
	n, wrong := strconv.ParseInt(last, 10, 64)
	size, unknown := strconv.ParseInt(total, 10, 64)
	return offset, wrong == nil && unknown == nil && n+1 == size, is && cut && err == nil && offset >= 0
}

// errAsking says that a list or a manifest does not come.
var errAsking = fmt.Errorf("its server has not answered within %v", maxAsking)

// text reads an answer that is no model, up to maxAnswer.
func (c *Client) text(r *http.Request, secret string) (*answer, []byte, error) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), maxAsking, errAsking)
	defer cancel()
	a, err := c.do(r.WithContext(ctx))
	if err != nil && r.Context().Err() == nil && ctx.Err() != nil {
		err = errAsking
	}
	if err != nil {
		return nil, nil, err
	}
	if a.StatusCode != http.StatusOK {
		return a, nil, a.refusal(secret)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer+1))
	if err != nil {
		return nil, nil, fmt.Errorf("the answer of %s broke: %w", r.URL.Host, err)
	}
	if len(text) > maxAnswer {
		return nil, nil, fmt.Errorf("the answer of %s has more than %d MiB, the maximum for a "+
			"list", r.URL.Host, maxAnswer>>20)
	}
	return a, text, nil
}

// opener is how an object of a list is opened.
func (m remote) opener(o *Object) func(ctx context.Context, offset int64) (io.ReadCloser, int64, error) {
	return func(ctx context.Context, offset int64) (io.ReadCloser, int64, error) {
		if m.ranges && o.rangeable(offset) {
			return m.openRanged(ctx, o, offset), offset, nil
		}
		return m.open(ctx, o, offset)
	}
}
