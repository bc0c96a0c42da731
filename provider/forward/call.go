package forward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/health"
	"github.com/faas-infer/faas-infer/instance/duplex"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

// maxAnswer is the maximum size of an answer that is held in memory, in bytes.
const maxAnswer = 64 << 20

// watchdogFields is how many fields a watchdog may add to its program's answer.
const watchdogFields = 8

// refusedHeader marks a 429 that the watchdog itself answers, without the function.
// OpenFaaS' own watchdogs set it.
const refusedHeader = "X-Openfaas-Internal"

// call is one request in progress.
type call struct {
	forwarder *Forwarder
	ctx       context.Context
	arrived   time.Time
	deadline  time.Time
	// cold: it has waited for a first instance. freed is the forwarder's counter when it last took
	// one.
	cold  bool
	freed uint64
	// body is the request's body. source is the client's body if the request came
	// over HTTP. linger lets the client send the rest of it.
	body   *duplex.Replay
	source *duplex.Body
	linger bool

	// instance has the request since sent; watch fires when it has it for long, and limit
	// ends it. response is its answer, answer the body of that.
	instance *instance
	sent     time.Time
	watch    *time.Timer
	limit    limited
	response *http.Response
	answer   io.Closer
	// trace is the request's, nil if it is not sampled.
	trace *frame.Trace
}

func (f *Forwarder) begin(ctx context.Context, patience time.Duration, trace *frame.Trace) *call {
	f.arrivals.Add(1)
	now := time.Now()
	if trace != nil {
		trace.Queued = now
	}
	return &call{forwarder: f, ctx: ctx, arrived: now, deadline: now.Add(f.options.ColdWait + patience), trace: trace}
}

// end releases the instance and the bodies.
func (c *call) end() {
	c.body.End()
	c.letGo()
	linger := time.Duration(0)
	if c.linger {
		linger = duplex.Linger
	}
	c.source.Finish(linger)
}

// letGo closes the instance's answer and releases the instance.
func (c *call) letGo() {
	if c.instance == nil {
		return
	}
	c.watch.Stop()
	c.limit.end()
	if c.response != nil {
		c.answer.Close()
		if c.trace != nil {
			c.trace.Batch = &frame.Execution{Began: c.sent, Ended: time.Now(), Instance: string(c.instance.id), Revision: c.instance.revision.Load()}
		}
		c.forwarder.options.Recorder.ObserveBatch(1, time.Since(c.sent), c.trace)
	}
	c.forwarder.release(c.instance, c.response != nil, c.response != nil && c.busy())
	c.instance, c.response, c.answer = nil, nil, nil
}

// send sends the request to an instance and returns the answer. The caller must read
// the answer's body before the call ends.
func (c *call) send(out *http.Request) (*http.Response, error) {
	f := c.forwarder
	var tried []*instance
	for {
		p, err := f.acquire(c, tried)
		if p == nil && err == nil && c.cold {
			c.letGo()
			tried = nil
			p, err = f.acquireFreed(c)
		}
		if err != nil && c.late() {
			return nil, errLateBody
		}
		if err != nil {
			return nil, err
		}
		if p == nil {
			return c.refusal()
		}
		c.letGo()
		first := c.sent.IsZero()
		c.instance, c.sent = p, time.Now()
		c.watch = time.AfterFunc(watchAfter, func() { f.watch(p) })
		if first {
			f.options.Recorder.ObserveQueue(c.sent.Sub(c.arrived), c.trace)
		}
		if t := c.trace; t != nil {
			t.Sent = c.sent
		}
		if c.response, err = c.attempt(out); err == nil {
			c.answer = c.response.Body
			c.response.Header.Set(web.RevisionHeader, strconv.FormatUint(p.revision.Load(), 10))
		}
		if c.limit.over() {
			return nil, f.drop(metrics.Late, ErrExecTimeout)
		}
		var unreached *dialError
		switch {
		case err == nil && c.refused():
			tried = append(tried, p)
		case err == nil:
			if !c.busy() {
				f.answered(p, health.Failing(c.response.StatusCode, c.response.Header))
			}
			return c.response, nil
		case c.late():
			return nil, errLateBody
		case c.ctx.Err() != nil:
			return nil, c.ctx.Err()
		case exhausted(err):
			return nil, ErrExhausted
		case errors.As(err, &unreached):
			f.lose(p, err)
			c.letGo()
		case errors.Is(err, duplex.ErrHead):
			f.answered(p, true)
			return nil, f.drop(metrics.InstanceLost, web.Refuse(http.StatusBadGateway, "the function gave no answer: %v", err))
		default:
			return nil, c.lost()
		}
	}
}

// refusal returns the answer to a request that every instance refused: the last
// instance's answer if there is one, otherwise ErrBusy.
func (c *call) refusal() (*http.Response, error) {
	if c.response == nil {
		return nil, c.forwarder.drop(metrics.QueueFull, ErrBusy)
	}
	return c.response, nil
}

// late reports whether the client stopped sending for too long. net/http's server
// treats that as a failed connection and ends ctx.
func (c *call) late() bool { return errors.Is(c.source.Err(), os.ErrDeadlineExceeded) }

// lost returns the error of an exchange that broke off. It blames the client if its
// body could not be read, otherwise the instance.
func (c *call) lost() error {
	err := c.body.Failure()
	if err == nil {
		c.forwarder.answered(c.instance, true)
	}
	if err != nil {
		var known web.HTTPError
		if errors.As(err, &known) {
			return err
		}
		return &web.Error{Status: http.StatusBadRequest, Text: fmt.Sprintf("the request body could not be read: %v", err)}
	}
	return c.forwarder.drop(metrics.InstanceLost, ErrInstanceLost)
}

// attempt sends the request to the call's instance.
func (c *call) attempt(out *http.Request) (*http.Response, error) {
	again, limit := c.forwarder.limit(out)
	c.limit = limit
	if c.body != nil {
		body, ok := c.body.Again()
		if !ok {
			return nil, errors.New("the body was streamed to another instance")
		}
		again.Body = body
		again.GetBody = func() (io.ReadCloser, error) {
			if body, ok := c.body.Again(); ok {
				return body, nil
			}
			return nil, errors.New("the body is not kept any more")
		}
	}
	answer, err := c.instance.transport.RoundTrip(again)
	if err == nil {
		err = duplex.CheckHead(answer, watchdogFields)
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// busy reports whether the watchdog refused the request for having too many.
func (c *call) busy() bool {
	return c.response.StatusCode == http.StatusTooManyRequests && c.response.Header.Get(refusedHeader) != ""
}

// refused reports whether the watchdog refused the request and its body is still kept
// for another instance.
func (c *call) refused() bool {
	if !c.busy() {
		return false
	}
	_, kept := c.body.Again()
	return kept
}

// readAnswer reads an answer into memory.
func (c *call) readAnswer(resp *http.Response) ([]byte, error) {
	var body bytes.Buffer
	if n := resp.ContentLength; n > 0 && n <= maxAnswer {
		body.Grow(int(n) + bytes.MinRead)
	}
	switch n, err := body.ReadFrom(io.LimitReader(resp.Body, maxAnswer+1)); {
	case c.ctx.Err() != nil:
		return nil, c.ctx.Err()
	case err != nil:
		return nil, c.forwarder.drop(metrics.InstanceLost, ErrInstanceLost)
	case n > maxAnswer:
		return nil, ErrAnswerTooLarge
	}
	return body.Bytes(), nil
}

// copyAnswer copies an answer to a writer, whose error it returns.
func (c *call) copyAnswer(to io.Writer, resp *http.Response) error {
	from := &source{Reader: resp.Body}
	_, err := io.Copy(to, from)
	switch {
	case c.ctx.Err() != nil:
		return c.ctx.Err()
	case from.err != nil:
		return c.forwarder.drop(metrics.InstanceLost, ErrInstanceLost)
	}
	return err
}

// source keeps the error of a reader.
type source struct {
	io.Reader
	err error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// request turns a request in memory into an HTTP request.
func request(ctx context.Context, req *frame.Request) (*http.Request, error) {
	target, err := locate(req.Path, req.Query)
	if err != nil {
		return nil, err
	}
	out := (&http.Request{
		Method: req.Method, URL: target, Host: req.Header.Get("X-Forwarded-Host"), Header: req.Header.Clone(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(req.Body)),
	}).WithContext(ctx)
	if out.Header == nil {
		out.Header = http.Header{}
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = []string{""} // Keeps the transport from setting its own.
	}
	return out, nil
}

// locate returns the URL of an escaped path at an instance.
func locate(path, query string) (*url.URL, error) {
	plain, err := url.PathUnescape(path)
	if err != nil {
		return nil, &web.Error{Status: http.StatusBadRequest, Text: fmt.Sprintf("the request's path cannot be read: %v", err)}
	}
	to := &url.URL{Scheme: "http", Host: "instance", Path: plain, RawPath: path, RawQuery: query}
	if to.EscapedPath() != path && !strings.HasPrefix(path, "//") {
		to.Opaque = path // It has characters that net/url would escape.
	}
	return to, nil
}
