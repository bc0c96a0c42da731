package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Share returns a dispatcher that hands a function's requests on to the function's owner, which
// may be this replica; d is this replica's dispatcher. It returns an ordinary function's forwarder
// as it is: each replica forwards by itself.
func (g *Group) Share(f *provider.Function, d provider.Dispatcher) provider.Dispatcher {
	if _, forwards := d.(provider.Forwarder); forwards {
		g.own.Delete(f.Name)
		return d
	}
	g.own.Store(f.Name, d)
	return &shared{Dispatcher: d, group: g, name: f.Name, limit: dispatch.Longest(f.Inference.SLO, g.options.ColdWait), once: f.Inference.Once}
}

// Unshare forgets a removed function.
func (g *Group) Unshare(name string) { g.own.Delete(name) }

// shared is a function's dispatcher that hands requests on to the owner.
type shared struct {
	provider.Dispatcher
	group *Group
	name  string
	// limit is the longest time that the owner may take.
	limit time.Duration
	// once says that no request may run twice.
	once bool
}

var (
	_ provider.PatientDispatcher = (*shared)(nil)
	_ provider.LoadDispatcher    = (*shared)(nil)
)

// Invoke implements [provider.Dispatcher].
func (s *shared) Invoke(ctx context.Context, req *frame.Request) (*frame.Response, error) {
	return s.InvokePatiently(ctx, req, 0)
}

// InvokePatiently implements [provider.PatientDispatcher].
func (s *shared) InvokePatiently(ctx context.Context, req *frame.Request, patience time.Duration) (*frame.Response, error) {
	g := s.group
	members, self := g.options.Membership.Members(), g.options.Membership.Self()
	if len(members) == 0 || len(members) == 1 && members[0].ID == self {
		return invoke(ctx, s.Dispatcher, req, patience)
	}
	died := false
	for _, m := range Rank(s.name, members) {
		if m.ID == self {
			break
		}
		if g.isDown(m) {
			continue
		}
		began := time.Now()
		response, err := g.send(ctx, m, s, req, patience)
		switch {
		case errors.Is(err, errNotTaken):
		case errors.As(err, new(brokenOffError)):
			return nil, err
		case errors.Is(err, errDied) && !died && !s.once:
			// Executing a model changes nothing, unless the function says so, and then the request
			// may run again, as after the death of an instance. It runs again only once: otherwise
			// a request that kills its replica would kill them all.
			died = true
		default:
			return response, err
		}
		again := *req // The caller's stays as it is.
		again.Waited += time.Since(began)
		if req = &again; req.Waited >= s.limit+patience {
			return nil, dispatch.ErrLate
		}
	}
	return invoke(ctx, s.Dispatcher, req, patience)
}

// CountElsewhere implements [provider.LoadDispatcher]: the leader adds up what all replicas count.
func (s *shared) CountElsewhere() {
	if d, ok := s.Dispatcher.(provider.LoadDispatcher); ok {
		d.CountElsewhere()
	}
}

// invoke runs a request on a dispatcher of this replica.
func invoke(ctx context.Context, d provider.Dispatcher, req *frame.Request, patience time.Duration) (*frame.Response, error) {
	if patient, ok := d.(provider.PatientDispatcher); ok {
		return patient.InvokePatiently(ctx, req, patience)
	}
	return d.Invoke(ctx, req)
}

// Headers between replicas.
const (
	// peerHeader names the replica that asks. In an answer, the value notTaken says that
	// the request was not dispatched.
	peerHeader = "X-Faas-Infer-Peer"
	notTaken   = "not-taken"
	// patienceHeader has the patience of InvokePatiently, waitedHeader [frame.Request.Waited],
	// and retryHeader, in an answer, the time of Retry-After.
	patienceHeader = "X-Faas-Infer-Patience-Ms"
	waitedHeader   = "X-Faas-Infer-Waited-Us"
	retryHeader    = "X-Faas-Infer-Retry-Ms"
	// lateHeader, in an answer, says that it came after the request's objective.
	lateHeader = "X-Faas-Infer-Late"
)

// send makes another replica dispatch a request.
func (g *Group) send(ctx context.Context, m Member, s *shared, req *frame.Request, patience time.Duration) (*frame.Response, error) {
	silent, done := watched(g, m)
	defer done()
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	if !s.once { // Another replica may run it.
		defer context.AfterFunc(silent, func() { give(errSilent) })()
	}
	// The time is that of the whole answer, or of its first part.
	late := time.AfterFunc(s.limit+patience+handTime-req.Waited, func() { give(errStuck) })
	defer late.Stop()
	buffers, length := frame.EncodeRequests([]frame.Request{*req})
	body := func() (io.ReadCloser, error) {
		again := slices.Clone(buffers)
		return io.NopCloser(&again), nil
	}
	first, _ := body() // body returns no error.
	r, err := g.request(ctx, m, http.MethodPost, invokePath+s.name, first)
	if err != nil {
		return nil, err
	}
	// With GetBody the transport retries if a kept connection was closed while idle.
	r.ContentLength, r.GetBody = length, body
	r.Header.Set("Content-Type", frame.ContentType)
	if patience > 0 {
		r.Header.Set(patienceHeader, strconv.FormatInt(patience.Milliseconds(), 10))
	}
	if req.Waited > 0 {
		r.Header.Set(waitedHeader, strconv.FormatInt(req.Waited.Microseconds(), 10))
	}
	if req.Parts != nil {
		r.Header.Set(frame.PartsHeader, "0")
	}
	// The owner counts what its client holds, not what this replica holds.
	if through := req.Header["X-Forwarded-For"]; len(through) > 0 {
		r.Header["X-Forwarded-For"] = through[:1]
	}
	answer, err := g.client.Do(r)
	if err != nil {
		return nil, g.sendFailed(ctx, m, err)
	}
	defer answer.Body.Close()
	if answer.Header.Get(frame.PartsHeader) != "" {
		late.Stop()
		if s.once { // No other limit ends the parts of a replica that is silent.
			defer context.AfterFunc(silent, func() { give(errSilent) })()
		}
		response, err := takeParts(m, answer, req)
		if err != nil {
			return nil, brokenOffError{g.sendFailed(ctx, m, err)}
		}
		return response, nil
	}
	release, err := g.options.Bodies.HoldAnswer(s.name, max(0, answer.ContentLength))
	if err != nil {
		return nil, err
	}
	defer release() // The caller counts the answer from here.
	read, err := readBody(answer)
	switch {
	case errors.Is(err, errAnswerTooLarge):
		return nil, err
	case err != nil:
		return nil, g.sendFailed(ctx, m, err)
	}
	return take(m, answer, read)
}

// errStuck is the cause of the timeout of send.
var errStuck = errors.New("it takes too long")

func (g *Group) sendFailed(ctx context.Context, m Member, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errSilent):
		return errDied
	case cause != nil && !errors.Is(cause, errStuck):
		return ctx.Err() // The client has left.
	}
	g.outOfReach(m, err)
	if errors.As(err, new(connectError)) {
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	if context.Cause(ctx) != nil {
		return errNoAnswer
	}
	return errDied
}

const (
	// maxReply bounds an owner's answer, in bytes. onTrust is the size of the buffer for it
	// before any of it has come.
	maxReply = 1<<30 + web.MaxHead
	onTrust  = 1 << 20
)

// readBody reads an answer's body, mostly in one allocation.
func readBody(r *http.Response) ([]byte, error) {
	var body bytes.Buffer
	body.Grow(int(min(max(0, r.ContentLength), onTrust)) + bytes.MinRead)
	n, err := body.ReadFrom(io.LimitReader(r.Body, maxReply+1))
	if err == nil && n > maxReply {
		err = errAnswerTooLarge
	}
	return body.Bytes(), err
}

// take decodes an owner's answer.
func take(m Member, answer *http.Response, body []byte) (*frame.Response, error) {
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed:
		// The replica has another version or other credentials.
		return nil, fmt.Errorf("%w: replica %s answers %s", errNotTaken, m.ID, answer.Status)
	}
	if answer.Header.Get(peerHeader) == notTaken {
		return nil, fmt.Errorf("%w: %s", errNotTaken, body)
	}
	if answer.StatusCode != http.StatusOK {
		ms, _ := strconv.ParseInt(answer.Header.Get(retryHeader), 10, 64) // Absent: no Retry-After.
		status := answer.StatusCode
		if status < 400 || status > 599 {
			status = http.StatusBadGateway
		}
		return nil, &web.Error{Status: status, After: time.Duration(ms) * time.Millisecond, Text: string(bytes.TrimSpace(body))}
	}
	return decode(m, answer.Header, body)
}

// decode decodes the frame of an owner's answer.
func decode(m Member, header http.Header, body []byte) (*frame.Response, error) {
	responses, err := frame.DecodeResponses(body)
	if err != nil || len(responses) != 1 {
		return nil, &web.Error{Status: http.StatusBadGateway, Text: fmt.Sprintf("cannot read the answer of replica %s of the provider; do all replicas have the same version?", m.ID)}
	}
	// The owner's dispatcher has set the header. Without it the revision is unknown, 0.
	responses[0].Revision, _ = strconv.ParseUint(responses[0].Header.Get(web.RevisionHeader), 10, 64)
	responses[0].Late = header.Get(lateHeader) != ""
	return &responses[0], nil
}

// request makes a request to another replica.
func (g *Group) request(ctx context.Context, m Member, method, path string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, m.URL+path, body)
	if err != nil {
		return nil, fmt.Errorf("%w: the address of replica %s: %w", errNotTaken, m.ID, err)
	}
	r.Header.Set(peerHeader, g.options.Membership.Self())
	if c := g.options.Credentials; c != nil {
		r.SetBasicAuth(c.User, c.Password)
	}
	return r, nil
}
