package async

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/web"
)

// maxReading is the most bytes that Accept holds at a time without Options.Bodies. A body counts
// as it arrives, until its request is stored.
const maxReading = 256 << 20

// Accept is POST /async-function/NAME[/path]: it stores the request and answers
// 202 with X-Call-Id, and with the URL of the request as Location. GET and DELETE are for such a
// URL. path is the rest of the path after NAME, still escaped. If Accept
// returns an error, the caller writes the answer. The error is a *web.Error: 400 for an
// invalid callback URL, class, deadline or time to keep the result, 404 for a function that is not deployed, 405 for another method,
// 408 for a body that comes too slowly, 413 for one that is too large, 503 if the request
// cannot be stored.
func (q *Queue) Accept(w http.ResponseWriter, r *http.Request, name, path string) error {
	switch r.Method {
	case http.MethodPost:
	case http.MethodGet, http.MethodDelete:
		return q.follower.serve(w, r, name, path)
	default:
		w.Header().Set("Allow", "DELETE, GET, POST")
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
	if err == nil {
		err = q.checkHeaders(r.Header)
	}
	if err != nil {
		return err
	}
	body, err := q.body(w, r, full)
	if err != nil {
		web.CloseAfter(w, r)
		return err
	}
	defer body.Release()
	defer body.Free() // The message in the queue is a copy.
	text := body.Content()
	if text == nil {
		text = []byte{}
	}
	header := identify(r.Header, time.Now())
	id, err := q.Enqueue(r.Context(), &types.QueueRequest{
		Function: name, Method: r.Method, Path: path, QueryString: r.URL.RawQuery, Header: header, Host: r.Host, Body: text, CallbackURL: to,
	})
	if err != nil {
		return err
	}
	if id != "" {
		w.Header().Set("Location", single+id)
	}
	w.Header().Set(queue.CallIDHeader, header.Get(queue.CallIDHeader))
	w.Header().Set(queue.StartTimeHeader, header.Get(queue.StartTimeHeader))
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// checkHeaders refuses a deadline or a time to keep the result that cannot be understood, and the latter where no
// result can be kept.
func (q *Queue) checkHeaders(h http.Header) error {
	if _, err := parseDuration(h, deadlineHeader, maxDeadline); err != nil {
		return err
	}
	keep, err := parseDuration(h, keepHeader, queue.MaxKeep)
	if err == nil && keep > 0 && q.options.MaxResults <= 0 {
		err = web.Refuse(http.StatusBadRequest,
			"this provider keeps no results (--async-results 0): leave the header %s out", keepHeader)
	}
	if err == nil && keep > 0 && q.broker.ID(0) == "" { // Nobody could ask for the result.
		if !q.executor.states.settled() {
			return unavailable(errors.New("its NATS server does not yet keep results"))
		}
		err = web.Refuse(http.StatusBadRequest,
			"this provider keeps no results, because its NATS server has no room for them: leave the header %s out", keepHeader)
	}
	return err
}

// identify adds the gateway's X-Call-Id and X-Start-Time to a request that lacks them. Whichever replica executes
// the request, the function and the callback get the X-Call-Id of the answer 202. It is not the ID by which
// clients may ask for the request, which only the client gets.
func identify(h http.Header, now time.Time) http.Header {
	h = h.Clone()
	web.DropHopByHop(h) // Connection may name the headers that follow.
	if h.Get(queue.CallIDHeader) == "" {
		h.Set(queue.CallIDHeader, rand.Text())
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

// maxBody is the largest body in bytes of a request that the largest message holds: in the
// queue a body takes a third more (base64), beside 128 KiB for the headers.
func maxBody(message int64) int64 { return (message - 128<<10) / 4 * 3 }

// body reads the body of a request for a function. After an error nothing is held.
func (q *Queue) body(w http.ResponseWriter, r *http.Request, function string) (web.Body, error) {
	// An external server may take smaller messages than JetStream does.
	limit := min(q.bodies.Max, maxBody(q.broker.MaxPayload()))
	if r.ContentLength > limit {
		return web.Body{}, tooLarge(limit)
	}
	body, err := q.bodies.Read(w, r, function, 0)
	switch {
	case err != nil && web.StatusOf(err) == http.StatusServiceUnavailable:
		return web.Body{}, unavailable(errors.New("too many large requests come at once"))
	case err != nil:
		return web.Body{}, err
	case int64(len(body.Content())) > limit:
		body.Free()
		body.Release()
		return web.Body{}, tooLarge(limit)
	}
	return body, nil
}

func tooLarge(limit int64) *web.Error {
	return web.Refuse(http.StatusRequestEntityTooLarge, "the request body is larger than %d bytes, the limit of this route", limit)
}
