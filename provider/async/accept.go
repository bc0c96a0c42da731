package async

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"
	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/web"
)

// maxReading is the most bytes of bodies that Accept holds at a time.
const maxReading = 256 << 20

// bytesHeld counts the bytes of bodies that Accept holds.
type bytesHeld struct{ n atomic.Int64 }

func (b *bytesHeld) take(n int64) bool {
	if b.n.Add(n) <= maxReading {
		return true
	}
	b.n.Add(-n)
	return false
}

func (b *bytesHeld) give(n int64) { b.n.Add(-n) }

// Accept is POST /async-function/NAME[/path]: it stores the request and answers
// 202 with X-Call-Id. path is the rest of the path after NAME, still escaped. If Accept
// returns an error, the caller writes the answer. The error is a *web.Error: 400 for an
// invalid callback URL, 404 for a function that is not deployed, 405 for another method,
// 408 for a body that comes too slowly, 413 for one that is too large, 503 if the request
// cannot be stored.
func (q *Queue) Accept(w http.ResponseWriter, r *http.Request, name, path string) error {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return web.Refuse(http.StatusMethodNotAllowed, "the method is %q: an asynchronous invocation must be a POST", web.Clip(r.Method))
	}
	full, err := queue.FullName(name)
	if err != nil {
		return web.Refuse(http.StatusNotFound, "there is no function %q", web.Clip(name))
	}
	if err := q.known(full); err != nil {
		return err
	}
	to, err := callbackURL(r.Header)
	if err != nil {
		return err
	}
	body, charge, err := q.body(w, r)
	defer func() { q.held.give(charge) }()
	if err != nil {
		// Otherwise the rest of the body would be parsed as the next request.
		w.Header().Set("Connection", "close")
		return err
	}
	header := identify(r.Header, time.Now())
	err = q.Enqueue(r.Context(), &types.QueueRequest{
		Function: name, Method: r.Method, Path: path, QueryString: r.URL.RawQuery, Header: header, Host: r.Host, Body: body, CallbackURL: to,
	})
	if err != nil {
		return err
	}
	w.Header().Set(queue.CallIDHeader, header.Get(queue.CallIDHeader))
	w.Header().Set(queue.StartTimeHeader, header.Get(queue.StartTimeHeader))
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// identify adds the gateway's X-Call-Id and X-Start-Time to a request that lacks them.
func identify(h http.Header, now time.Time) http.Header {
	h = h.Clone()
	if h.Get(queue.CallIDHeader) == "" {
		h.Set(queue.CallIDHeader, nuid.Next())
	}
	if h.Get(queue.StartTimeHeader) == "" {
		h.Set(queue.StartTimeHeader, strconv.FormatInt(now.UnixNano(), 10))
	}
	return h
}

func callbackURL(h http.Header) (*url.URL, error) {
	text := h.Get(queue.CallbackHeader)
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, web.Refuse(http.StatusBadRequest, "the header X-Callback-Url is not a URL; it must be an absolute one, for example http://host:8080/path")
	}
	if err := queue.CheckCallback(u); err != nil {
		return nil, web.Refuse(http.StatusBadRequest, "the header X-Callback-Url cannot be used: %v", err)
	}
	return u, nil
}

// body reads a request's body. charge is the number of bytes that it counts in q.held
// until the request is stored.
func (q *Queue) body(w http.ResponseWriter, r *http.Request) (body []byte, charge int64, err error) {
	// In the queue a body takes a third more (base64), and JetStream limits messages.
	limit := min(q.options.MaxBody, (q.broker.MaxPayload()-(128<<10))/4*3)
	if r.ContentLength > limit {
		return nil, 0, tooLarge(limit)
	}
	charge = r.ContentLength
	if charge < 0 {
		charge = limit
	}
	if !q.held.take(charge) {
		return nil, 0, unavailable(errors.New("too many large requests come at once"))
	}
	// SetReadDeadline fails without a connection, as in tests.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(q.options.BodyTimeout))
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var over *http.MaxBytesError
	switch {
	case err == nil:
		_ = control.SetReadDeadline(time.Time{})
		return body, charge, nil
	case errors.As(err, &over):
		err = tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = web.Refuse(http.StatusRequestTimeout, "the request body did not arrive in time")
	default:
		err = web.Refuse(http.StatusBadRequest, "the request body could not be read: %v", err)
	}
	return nil, charge, err
}

func tooLarge(limit int64) *web.Error {
	return web.Refuse(http.StatusRequestEntityTooLarge, "the request body is larger than %d bytes, the limit of this route", limit)
}
