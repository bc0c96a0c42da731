package async

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/web"
)

// The headers of messages that clients may ask for: idHeader is the ID, or byNumber for the one of the
// message's number. untilHeader, of a kept result, is the time until which it is kept, in ms since 1970.
const (
	idHeader    = "Faas-Id"
	byNumber    = "number"
	untilHeader = "Faas-Until"
)

// keepHeader is the request's header with the time for which its result is kept.
const keepHeader = "X-Keep-Result"

// maxResult is the size in bytes of the largest result that is kept. An external server may take less.
const maxResult = 8 << 20

// KeptResult describes a result that a client has asked to keep.
type KeptResult struct {
	// Bytes is its size, Until the time until which it is kept.
	Bytes int64     `json:"bytes"`
	Until time.Time `json:"until,omitzero"`
	// Problem says why it is not kept, "" if it is.
	Problem string `json:"problem,omitempty"`
}

// record is what StateStream has of a request.
type record struct {
	Progress
	// Sequence is the number of the message in the queue if the request was replayed, otherwise 0.
	Sequence uint64 `json:"sequence,omitempty"`
	// revision is the record's own number in its stream, 0 if there is none yet.
	revision uint64
}

// states are the streams of what became of requests, and of their results.
type states struct {
	broker *queue.Broker
	// settled is [queue.Broker.Settled].
	settled func() bool
	// large has a value while no result is being read from a file.
	large chan struct{}
}

func newStates(b *queue.Broker) *states {
	s := &states{broker: b, settled: b.Settled, large: make(chan struct{}, 1)}
	s.large <- struct{}{}
	return s
}

// get returns what is stored of a request, the zero record if nothing is.
func (s *states) get(ctx context.Context, id string) (r record, err error) {
	m, err := last(ctx, s.broker, queue.StateStream, queue.StateSubjects+id)
	if m == nil || err != nil {
		return record{}, err
	}
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return record{}, fmt.Errorf("state of a request: %w", err)
	}
	r.revision = m.Sequence
	return r, nil
}

// last returns the last message with a subject, nil if there is none.
func last(ctx context.Context, b *queue.Broker, stream, subject string) (*jetstream.RawStreamMsg, error) {
	from, err := b.JetStream().Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	m, err := from.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return m, err
}

// put stores a record, and returns when it is stored.
func (s *states) put(ctx context.Context, r record, how ...jetstream.PublishOpt) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("state of a request: %w", err)
	}
	return s.store(ctx, &nats.Msg{Subject: queue.StateSubjects + r.ID, Data: data}, how...)
}

// store stores a message, and returns when it is stored, or the server is in trouble: it gives no answer then.
func (s *states) store(ctx context.Context, m *nats.Msg, how ...jetstream.PublishOpt) error {
	if err := s.broker.Trouble(); err != nil {
		return err
	}
	future, err := s.broker.JetStream().PublishMsgAsync(m, append(how, jetstream.WithStallWait(time.Second))...)
	if err != nil {
		return err
	}
	_, err = awaitAck(ctx.Done(), future, s.broker.Trouble)
	return err
}

// parseDuration reads a duration above 0 and at most longest from a request's header, 0 if it is absent.
func parseDuration(h http.Header, name string, longest time.Duration) (time.Duration, error) {
	text := h.Get(name)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > longest {
		return 0, web.Refuse(http.StatusBadRequest,
			"the header %s is %q: it must be a duration above 0 and at most %v, for example \"10m\"", name, web.Clip(text), longest)
	}
	return d, nil
}

// maxBytes is the size in bytes of the largest result that this server takes.
func (s *states) maxBytes() int64 { return min(maxResult, s.broker.MaxPayload()-headroom) }

// keep stores the result of a request, and says what became of it.
func (s *states) keep(ctx context.Context, id string, r *CallbackResult, a *answer, wanted time.Duration) *KeptResult {
	kept := &KeptResult{Bytes: r.Size}
	if r.Size > s.maxBytes() || a.dropped {
		kept.Problem = fmt.Sprintf("it is larger than %d bytes, the limit for kept results", s.maxBytes())
		return kept
	}
	// What is left of a full disk is for acknowledgements and dead letters.
	if err := s.broker.Usable(); err != nil {
		kept.Problem = fmt.Sprintf("it could not be stored: %v", err)
		return kept
	}
	data, release, err := s.content(ctx, r)
	if err != nil {
		kept.Problem = fmt.Sprintf("it could not be read: %v", err)
		return kept
	}
	defer release()
	until := time.Now().Add(wanted)
	m := &nats.Msg{Subject: queue.ResultSubjects + id, Data: data, Header: nats.Header{
		statusHeader: {strconv.Itoa(r.Status)}, untilHeader: {strconv.FormatInt(until.UnixMilli(), 10)},
		"Content-Type": {oneLine(r.Header.Get("Content-Type"))}}}
	err = s.store(ctx, m, jetstream.WithMsgTTL(max(time.Second, wanted.Round(time.Second))))
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api) && api.ErrorCode == codeStoreFailed:
		kept.Problem = "the store of results is full"
	case err != nil:
		kept.Problem = fmt.Sprintf("it could not be stored: %v", err)
	default:
		kept.Until = until
	}
	return kept
}

// content returns a result's body. Bodies in files are read one at a time. Call release when it is stored.
func (s *states) content(ctx context.Context, r *CallbackResult) (data []byte, release func(), err error) {
	if r.Body == nil {
		return nil, func() {}, nil
	}
	release = func() {}
	if r.Size > maxInMemory {
		select {
		case <-s.large:
			release = func() { s.large <- struct{}{} }
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	data = make([]byte, r.Size)
	if n, err := r.Body.ReadAt(data, 0); int64(n) < r.Size {
		release()
		return nil, nil, err
	}
	return data, release, nil
}

// result writes a kept result as the answer, or returns the reason why there is none.
func (s *states) result(ctx context.Context, w http.ResponseWriter, p Progress) error {
	m, err := (*jetstream.RawStreamMsg)(nil), error(nil)
	if p.Result != nil && p.Result.Problem == "" {
		m, err = last(ctx, s.broker, queue.ResultStream, queue.ResultSubjects+p.ID)
	}
	switch {
	case err != nil:
		return err
	case !p.ended():
		return web.Refuse(http.StatusNotFound, "the request has no result yet: it is %s", p.State)
	case p.Result == nil && p.State == Cancelled:
		return web.Refuse(http.StatusNotFound, "the request has no result: it was cancelled")
	case p.Result == nil:
		return web.Refuse(http.StatusNotFound,
			"the request's result was not kept: it did not ask for that with the header %s", keepHeader)
	case p.Result.Problem != "":
		return web.Refuse(http.StatusNotFound, "the request's result was not kept: %s", p.Result.Problem)
	case m == nil || !time.Now().Before(p.Result.Until):
		return web.Refuse(http.StatusNotFound, "the request's result was kept until %s",
			p.Result.Until.UTC().Format(time.RFC3339))
	}
	writeResult(w, m)
	return nil
}

// resultOnly is result for a request whose state has made room for others, but whose result is kept.
func (s *states) resultOnly(ctx context.Context, w http.ResponseWriter, id string) error {
	m, err := last(ctx, s.broker, queue.ResultStream, queue.ResultSubjects+id)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) { // It is missing if no results are kept.
		return err
	}
	if m == nil {
		return errUnknownID
	}
	until, err := strconv.ParseInt(m.Header.Get(untilHeader), 10, 64)
	if err != nil || !time.Now().Before(time.UnixMilli(until)) {
		return errUnknownID
	}
	writeResult(w, m)
	return nil
}

// writeResult writes a kept result as the answer.
func writeResult(w http.ResponseWriter, m *jetstream.RawStreamMsg) {
	h := w.Header()
	h.Set("Content-Type", cmp.Or(m.Header.Get("Content-Type"), "application/octet-stream"))
	h.Set(web.FunctionStatusHeader, m.Header.Get(statusHeader))
	h.Set("Content-Length", strconv.Itoa(len(m.Data)))
	_, _ = w.Write(m.Data) // It fails if the client is gone.
}
