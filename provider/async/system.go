package async

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/async/broker"
	"github.com/faas-infer/faas-infer/provider/async/consume"
	"github.com/faas-infer/faas-infer/provider/async/dead"
	"github.com/faas-infer/faas-infer/provider/async/message"
)

// Prefix is where System's routes are.
const Prefix = "/system/async"

// How many dead letters are listed at a time, unless the caller says, and at
// most.
const (
	usualLetters = 100
	mostLetters  = 1000
)

// mostSystemBody is the largest body of System's routes, in bytes.
const mostSystemBody = 1 << 20

// System serves everything at and below Prefix. It asks for no credentials: that
// is the caller's part. An error has not been answered; it may be an *Error.
//
//	GET    /system/async                        Status
//	GET    /system/async/dead?limit=&from=      dead.Letters, the oldest first
//	GET    /system/async/dead/SEQUENCE          Shown
//	POST   /system/async/dead/replay            {"sequences":[…]} or {"all":true} → dead.Replayed
//	DELETE /system/async/dead                   {"purged":N}
//	DELETE /system/async/dead/SEQUENCE
func (q *Queue) System(w http.ResponseWriter, r *http.Request) error {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, "/"), Prefix)
	if !ok {
		return errNoRoute
	}
	switch {
	case rest == "":
		return route(w, r, methods{http.MethodGet: q.status})
	case rest == "/dead":
		return route(w, r, methods{http.MethodGet: q.listDead, http.MethodDelete: q.purgeDead})
	case rest == "/dead/replay":
		return route(w, r, methods{http.MethodPost: q.replayDead})
	case strings.HasPrefix(rest, "/dead/"):
		return route(w, r, methods{http.MethodGet: q.showDead, http.MethodDelete: q.removeDead})
	}
	return errNoRoute
}

var errNoRoute = refuse(http.StatusNotFound, "there is no such route below %s", Prefix)

type methods map[string]func(w http.ResponseWriter, r *http.Request) error

func route(w http.ResponseWriter, r *http.Request, m methods) error {
	if serve, ok := m[r.Method]; ok {
		return q503(serve(w, r))
	}
	allowed := make([]string, 0, len(m))
	for method := range m {
		allowed = append(allowed, method)
	}
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return refuse(http.StatusMethodNotAllowed, "this route takes %s", strings.Join(allowed, " and "))
}

// q503 makes a queue that does not answer a 503.
func q503(err error) error {
	var known *Error
	if err == nil || errors.As(err, &known) || errors.Is(err, context.Canceled) {
		return err
	}
	return &Error{http.StatusServiceUnavailable, 2 * time.Second, "the queue does not answer: " + err.Error()}
}

// Status is what System tells of the queue.
type Status struct {
	// Queued requests wait or are put off to a later try; InFlight are taken
	// out of the queue. Dead are given up.
	Queued   uint64 `json:"queued"`
	InFlight int    `json:"inFlight"`
	Dead     uint64 `json:"dead"`
	// Bytes is what those in the queue take on the disk.
	Bytes uint64 `json:"bytes"`
	// Functions are those with requests, by name.
	Functions []FunctionStatus `json:"functions"`
	// Server is the NATS server: "embedded", "embedded at ADDRESS", or its
	// URL.
	Server string `json:"server"`
	// Problem is why no requests are taken, "" if they are.
	Problem string `json:"problem,omitempty"`
}

// FunctionStatus is what there is of one function.
type FunctionStatus struct {
	Name     string `json:"name"`
	Queued   uint64 `json:"queued"`
	InFlight int    `json:"inFlight"`
}

// Status asks the streams.
func (q *Queue) Status(ctx context.Context) (Status, error) {
	s := Status{Server: q.server(), Functions: []FunctionStatus{}}
	if err := q.broker.Usable(); err != nil {
		s.Problem = err.Error()
	}
	work, err := q.broker.JetStream().Stream(ctx, broker.WorkStream)
	if err != nil {
		return s, err
	}
	info, err := work.Info(ctx, jetstream.WithSubjectFilter(broker.WorkSubjects+">"))
	if err != nil {
		return s, err
	}
	if s.Dead, err = q.dead.Count(ctx); err != nil {
		return s, err
	}
	s.Queued, s.Bytes = info.State.Msgs, info.State.Bytes
	inHand := q.stats()
	for subject, n := range info.State.Subjects {
		key := strings.TrimPrefix(subject, broker.WorkSubjects)
		f := FunctionStatus{Name: fromKey(key), InFlight: inHand[key].Held}
		// Both are counted at slightly different times.
		f.Queued = n - min(n, uint64(f.InFlight))
		s.InFlight += f.InFlight
		s.Functions = append(s.Functions, f)
	}
	s.Queued -= min(s.Queued, uint64(s.InFlight))
	slices.SortFunc(s.Functions, func(a, b FunctionStatus) int { return cmp.Compare(a.Name, b.Name) })
	return s, nil
}

func (q *Queue) server() string {
	if !q.broker.Embedded() {
		return q.broker.URL()
	}
	if at := q.broker.Address(); at != "" {
		return "embedded at " + at
	}
	return "embedded"
}

// stats is what is in hand by key.
func (q *Queue) stats() map[string]consume.Stats {
	q.mu.Lock()
	pool := q.pool
	q.mu.Unlock()
	if pool == nil {
		return nil
	}
	return pool.Stats()
}

func (q *Queue) status(w http.ResponseWriter, r *http.Request) error {
	s, err := q.Status(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, s)
}

func (q *Queue) listDead(w http.ResponseWriter, r *http.Request) error {
	limit, err := number(r, "limit", usualLetters)
	if err != nil {
		return err
	}
	from, err := number(r, "from", 0)
	if err != nil {
		return err
	}
	letters, err := q.dead.List(r.Context(), from, int(min(limit, mostLetters)))
	if err != nil {
		return err
	}
	return writeJSON(w, letters)
}

// number is a query's whole number.
func number(r *http.Request, name string, otherwise uint64) (uint64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, refuse(http.StatusBadRequest, "the query's %s is %q; it must be a whole number", name, clip(text))
	}
	return n, nil
}

// Shown is a dead letter with its request; Raw is the message where it is none.
type Shown struct {
	dead.Letter
	Request *types.QueueRequest `json:"request,omitempty"`
	Raw     []byte              `json:"raw,omitempty"`
}

func sequence(r *http.Request) (uint64, error) {
	text := strings.TrimPrefix(strings.TrimSuffix(r.URL.Path, "/"), Prefix+"/dead/")
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, refuse(http.StatusBadRequest, "%q is no dead letter's sequence, which is a number; GET %s/dead lists them", clip(text), Prefix)
	}
	return n, nil
}

func (q *Queue) showDead(w http.ResponseWriter, r *http.Request) error {
	seq, err := sequence(r)
	if err != nil {
		return err
	}
	l, data, err := q.dead.Get(r.Context(), seq)
	if err != nil {
		return absent(err, seq)
	}
	shown := Shown{Letter: l}
	if request, err := message.Decode(data); err == nil {
		shown.Request = &request.QueueRequest
	} else {
		shown.Raw = data
	}
	return writeJSON(w, shown)
}

func absent(err error, seq uint64) error {
	if errors.Is(err, dead.ErrAbsent) {
		return refuse(http.StatusNotFound, "there is no dead letter %d; GET %s/dead lists them", seq, Prefix)
	}
	return err
}

func (q *Queue) removeDead(w http.ResponseWriter, r *http.Request) error {
	seq, err := sequence(r)
	if err != nil {
		return err
	}
	if err := q.dead.Remove(r.Context(), seq); err != nil {
		return absent(err, seq)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Purged is how many dead letters were removed.
type Purged struct {
	Purged uint64 `json:"purged"`
}

func (q *Queue) purgeDead(w http.ResponseWriter, r *http.Request) error {
	n, err := q.dead.Purge(r.Context())
	if err != nil {
		return err
	}
	q.log.Info().Uint64("purged", n).Msg("dead letters were removed")
	return writeJSON(w, Purged{n})
}

// ReplayOrder says which dead letters to replay: some, or all.
type ReplayOrder struct {
	Sequences []uint64 `json:"sequences,omitempty"`
	All       bool     `json:"all,omitempty"`
}

func (q *Queue) replayDead(w http.ResponseWriter, r *http.Request) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostSystemBody))
	if err != nil {
		return refuse(http.StatusBadRequest, "the request body could not be read: %v", err)
	}
	var order ReplayOrder
	if err := json.Unmarshal(text, &order); err != nil || order.All == (len(order.Sequences) > 0) {
		return refuse(http.StatusBadRequest, `the request body must be {"sequences":[1,2]} with the letters to replay, or {"all":true}`)
	}
	result, err := q.dead.Replay(r.Context(), order.Sequences, q.sendAgain)
	if err != nil {
		return err
	}
	q.log.Info().Int("replayed", result.Replayed).Int("failed", len(result.Failed)).Msg("dead letters were replayed")
	return writeJSON(w, result)
}

// sendAgain puts a dead letter's message back into the queue.
func (q *Queue) sendAgain(ctx context.Context, id string, _ dead.Letter, data []byte) error {
	request, err := message.Decode(data)
	if err != nil {
		return refuse(http.StatusBadRequest, "it holds no request that could be executed: %v", err)
	}
	if err := q.known(request.Name); err != nil {
		return refuse(http.StatusNotFound, "%v; deploy it first", err)
	}
	future, err := q.publish(request.Name, data, id)
	if err != nil {
		return err
	}
	select {
	case ack := <-future.Ok():
		if !ack.Duplicate {
			q.stored(request.Name)
		}
		return nil
	case err := <-future.Err():
		return q.notStored(err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func writeJSON(w http.ResponseWriter, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	// A client that is gone cannot be told.
	_, _ = w.Write(append(text, '\n'))
	return nil
}
