package provider

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/spare"
	"github.com/faas-infer/faas-infer/provider/web"
)

// functionPrefix begins the path of an invocation.
const functionPrefix = "/function/"

// maxHead is the most bytes that path, query and headers of a request may take. A batch
// frame limits its heads, and a larger request must not spoil the batch that it joins.
const maxHead = 60 << 10

// invocations serves /function/.
type invocations struct{ *Server }

// invoke answers /function/NAME and everything below it; escaped is the
// request's path.
func (s invocations) invoke(w http.ResponseWriter, r *http.Request, escaped string) {
	name, path := splitPath(escaped, functionPrefix)
	s.invokeFunction(w, r, name, path, nil)
}

// invokeFunction answers a request for a function with the path below it. body is what has been read of the
// request already, in which the function's name was found; nil for nothing. It is released at the end.
func (s invocations) invokeFunction(w http.ResponseWriter, r *http.Request, name, path string, body *web.Body) {
	named := body != nil
	if !named {
		body = new(web.Body)
	}
	defer body.Release()
	started := time.Now()
	d, waited, err := s.lookUpOrWait(r.Context(), name)
	if s.inFlight.Closed() { // Also for a function that is not back after a restart.
		err = errDraining
	}
	if err == nil {
		err = d.callable()
	}
	if err == nil && r.Header[spare.Header] != nil {
		err = errClass
	}
	if err == nil {
		err = s.callers.admit(r.Context(), d, r.Header, w.Header())
	}
	if err != nil && named {
		err = offer(openAIRoutes{s}, r.Header, err)
	}
	if err != nil {
		s.bodies.LimitRest(w, r)
		s.countRefusal(d, name, web.WriteErrorBelow(w, path, err), started)
		return
	}
	web.IdentifyCall(w.Header(), r.Header, started)
	var traced *frame.Trace
	if s.tracer != nil {
		traced = s.tracer.Begin(r.Header, started)
	}
	if d.forwarder != nil {
		s.forward(w, r, d, path, started, waited, traced)
		return
	}
	req, err := s.receive(w, r, d.Name, path, body)
	// Enter only after the body: shutdown must not wait for a client that sends slowly.
	if err == nil {
		req.Waited, req.Trace = waited, traced
		if s.inFlight.Enter() {
			defer s.inFlight.Leave()
		} else {
			err = errDraining
		}
	}
	d.metrics.Begin()
	code, late := http.StatusInternalServerError, false
	// Deferred, so that a panic below is counted as well.
	defer func() {
		d.observe(code, late, started, traced)
		endTrace(s.tracer, traced, d.Name, r.Method, code)
	}()
	if err != nil {
		code = web.WriteErrorBelow(w, path, err)
		late = d.leftLate(code, started, time.Now())
		return
	}
	code, late = s.dispatch(w, r, d, req, body, started)
}

// countRefusal counts a request that was refused before it was read: while the provider shuts down, while its
// function is being restored, or while the keys of its callers cannot be read. Nothing is wrong with such a
// request, so it misses the objective. One that its sender has to change does not count.
func (s invocations) countRefusal(d *deployed, name string, code int, started time.Time) {
	if code < http.StatusInternalServerError {
		return
	}
	if d != nil {
		d.metrics.Begin()
		d.observe(code, false, started, nil)
		return
	}
	a, err := resolve(name)
	if err != nil || s.arriving.objective(a.full()) == 0 {
		return
	}
	m := s.metrics.Function(a.full())
	m.Begin()
	m.ObserveRequest(code, time.Since(started))
	m.ObserveObjective(code, false)
}

// endTrace ends the trace of a request to a function, nil if it is not sampled.
func endTrace(by Tracer, t *frame.Trace, function, method string, code int) {
	if t != nil {
		t.Function, t.Method, t.Status = function, method, code
		by.End(t)
	}
}

// leftLate reports whether a request with a status code has missed the objective because its client left after that.
// until is when the client left or, if it has a part of the answer, when the first part came.
func (d *deployed) leftLate(code int, started, until time.Time) bool {
	return code == web.StatusHungUp && until.Sub(started) > d.Inference.SLO
}

// observe counts an answered request. late: the answer came after the objective, or the client left after that. traced
// is its trace, nil if it is not sampled.
func (d *deployed) observe(code int, late bool, started time.Time, traced *frame.Trace) {
	total := time.Since(started)
	d.metrics.ObserveSampled(code, total, traced)
	if traced != nil {
		traced.Late = late
	}
	if d.Inference.IsInference {
		d.metrics.ObserveObjective(code, late)
	}
}

// splitPath splits the escaped path "/function/NAME/rest", where "/function/" is the prefix, into
// NAME and "/rest", which is still escaped.
func splitPath(path, prefix string) (name, rest string) {
	name, rest = path[len(prefix):], "/"
	if i := strings.IndexByte(name, '/'); i >= 0 {
		name, rest = name[:i], name[i:]
	}
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	return name, rest
}

// lookUp finds a deployed function by its name in a path.
func (g *registry) lookUp(name string) (*deployed, error) {
	if d, ok := g.named(name); ok {
		return d, nil
	}
	if name == "" {
		return nil, web.Refuse(http.StatusBadRequest, "the path names no function; it must be /function/NAME or /function/NAME.NAMESPACE")
	}
	a, err := resolve(name)
	if err != nil {
		return nil, err
	}
	return nil, absent(a)
}

func absent(a address) error {
	return web.Refuse(http.StatusNotFound, "there is no function %q in namespace %q", web.Clip(a.name), web.Clip(a.namespace))
}

// receive reads the client's request with its whole body, as a member of a batch of the
// function name. It reads into held, unless that has the body already.
func (s invocations) receive(w http.ResponseWriter, r *http.Request, name, path string, held *web.Body) (*frame.Request, error) {
	if !methods[r.Method] {
		return nil, web.Refuse(http.StatusMethodNotAllowed, "a function cannot be invoked with method %q", web.Clip(r.Method))
	}
	req := &frame.Request{Method: r.Method, Path: path, Query: r.URL.RawQuery, Header: r.Header}
	head, err := prepareHeader(req, r)
	if err != nil {
		return nil, err
	}
	if held.BodyBuffer == nil {
		*held, err = s.bodies.Read(w, r, name, int64(head))
	}
	if err != nil {
		web.CloseAfter(w, r)
		return nil, err
	}
	req.Body = held.Content()
	return req, nil
}

// dispatch hands one request to the function's dispatcher, writes the answer and returns its
// status code, and whether it came after the objective. The answer counts as held until the client has taken it.
func (s invocations) dispatch(w http.ResponseWriter, r *http.Request, d *deployed, req *frame.Request,
	held *web.Body, started time.Time) (code int, late bool) {
	var resp *frame.Response
	var err error
	if takesEvents(r.Header) {
		if err = held.TakeAnswer(web.MaxUnsentParts); err == nil {
			events := newEvents(w, r)
			req.Parts = events.Take
			resp, err = d.answers.invoke(events.ctx, d, req)
			code, late = events.end(d, req.Path, resp, err, started)
		}
	} else {
		resp, err = d.answers.invoke(r.Context(), d, req)
	}
	if code != 0 {
		return code, late
	}
	if err == nil {
		err = held.TakeAnswer(int64(len(resp.Body)))
	}
	if err != nil {
		code = web.WriteErrorBelow(w, req.Path, err)
		if code == http.StatusInternalServerError {
			s.sampledLog.Error().Err(err).Str("function", d.Name).Msg("invoke")
		}
		return code, d.leftLate(code, started, time.Now())
	}
	late = resp.Late
	code = writeResponse(w, req.Path, resp)
	held.Free()
	return code, late
}

// forward lets an ordinary function's forwarder answer one request, streaming both ways. The
// request's head counts as held, because many may wait for an instance, and what is kept of its body, which
// streams.
func (s invocations) forward(w http.ResponseWriter, r *http.Request, d *deployed, path string, started time.Time, waited time.Duration,
	traced *frame.Trace) {
	if !s.inFlight.Enter() {
		s.bodies.LimitRest(w, r)
		web.WriteErrorBelow(w, path, errDraining)
		return
	}
	defer s.inFlight.Leave()
	d.metrics.Begin()
	code := http.StatusInternalServerError
	// Deferred, so that a panic below is counted as well.
	defer func() {
		p := recover()
		if p == http.ErrAbortHandler {
			code = statusBrokenOff(r)
		}
		d.metrics.ObserveSampled(code, time.Since(started), traced)
		endTrace(s.tracer, traced, d.Name, r.Method, code)
		if p != nil {
			panic(p)
		}
	}()
	held, err := s.bodies.Hold(r, d.Name, int64(headSize(path, r.URL.RawQuery, r.Header)))
	defer held.Release()
	if err != nil {
		s.bodies.LimitRest(w, r)
		code = web.WriteErrorBelow(w, path, err)
		return
	}
	if traced != nil {
		r = r.WithContext(frame.WithTrace(r.Context(), traced))
	}
	code = d.forwardSplit(w, r, path, waited, held.Take)
}

// statusBrokenOff is the status code under which metrics count an answer that broke off:
// 499 if the client's connection has ended, otherwise 502, the instance's fault.
func statusBrokenOff(r *http.Request) int {
	if r.Context().Err() != nil {
		return web.StatusHungUp
	}
	return http.StatusBadGateway
}

var methods = map[string]bool{http.MethodGet: true, http.MethodHead: true, http.MethodPost: true, http.MethodPut: true,
	http.MethodPatch: true, http.MethodDelete: true, http.MethodOptions: true}

// prepareHeader turns the client's headers into those of the batch's member, and returns the
// size of path, query and headers in bytes. It changes the map in place, since the map
// belongs to this request.
func prepareHeader(req *frame.Request, r *http.Request) (size int, err error) {
	h := req.Header
	web.DropHopByHop(h)
	if h["X-Forwarded-Host"] == nil && r.Host != "" {
		h["X-Forwarded-Host"] = []string{r.Host}
	}
	if h["X-Forwarded-For"] == nil {
		h["X-Forwarded-For"] = []string{r.RemoteAddr}
	}
	if size = headSize(req.Path, req.Query, h); size > maxHead {
		return 0, web.Refuse(http.StatusRequestHeaderFieldsTooLarge, "the request's path and headers take %d bytes, the limit is %d", size, maxHead)
	}
	return size, nil
}

// headSize is the size in bytes of a request's path, query and headers.
func headSize(path, query string, h http.Header) int {
	size := len(path) + len(query)
	for name, values := range h {
		for _, v := range values {
			size += len(name) + len(v) + 4
		}
	}
	return size
}

// writeResponse sends a member's answer to a request below a path and returns its status code.
func writeResponse(w http.ResponseWriter, path string, resp *frame.Response) int {
	if resp.Status < 200 || resp.Status > 599 {
		return web.WriteErrorBelow(w, path, web.Refuse(http.StatusBadGateway,
			"the function answered with status %d, which is not from 200 to 599", resp.Status))
	}
	web.DropHopByHop(resp.Header)
	h := w.Header()
	for name, values := range resp.Header {
		h[name] = values
	}
	if resp.Status == http.StatusNoContent || resp.Status == http.StatusNotModified {
		w.WriteHeader(resp.Status)
		return resp.Status
	}
	h["Content-Length"] = []string{strconv.Itoa(len(resp.Body))}
	w.WriteHeader(resp.Status)
	// The write fails if the client is gone.
	_, _ = w.Write(resp.Body)
	return resp.Status
}
