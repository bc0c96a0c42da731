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

// maxReading is how many bytes of bodies may be read by Accept at a time.
const maxReading = 256 << 20

// bytesHeld counts the bytes of bodies that are being accepted.
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
// 202 with X-Call-Id. name is the function's, path what follows it, still
// escaped. An error has not been answered; it is of type *web.Error: 400 for a
// callback URL that is none, 404 for a function that is not deployed, 405 for
// another method, 408, 413, 503.
func (q *Queue) Accept(w http.ResponseWriter, r *http.Request, name, path string) error {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return web.Refuse(http.StatusMethodNotAllowed, "an asynchronous invocation is a POST; this is method %q", web.Clip(r.Method))
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
		// The rest of the body would be taken for the next request.
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

// identify gives a request that has none the names that the gateway gives.
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
		return nil, web.Refuse(http.StatusBadRequest, "the header X-Callback-Url is no URL; it must be an absolute one, such as http://host:8080/path")
	}
	if err := queue.CheckCallback(u); err != nil {
		return nil, web.Refuse(http.StatusBadRequest, "the header X-Callback-Url cannot be used: %v", err)
	}
	return u, nil
}

// body reads a request's body; charge is what it counts until it is stored.
func (q *Queue) body(w http.ResponseWriter, r *http.Request) (body []byte, charge int64, err error) {
	// In the queue a body takes a third more (base64), and JetStream has a
	// limit of its own.
	most := min(q.options.MaxBody, (q.broker.MaxPayload()-(128<<10))/4*3)
	if r.ContentLength > most {
		return nil, 0, tooLarge(most)
	}
	charge = r.ContentLength
	if charge < 0 {
		charge = most
	}
	if !q.held.take(charge) {
		return nil, 0, unavailable(errors.New("too many large requests come at once"))
	}
	// It fails where there is no connection, as in tests.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(q.options.BodyTimeout))
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var over *http.MaxBytesError
	switch {
	case err == nil:
		_ = control.SetReadDeadline(time.Time{})
		return body, charge, nil
	case errors.As(err, &over):
		err = tooLarge(most)
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
