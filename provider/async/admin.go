package async

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Prefix is the path of the administration routes.
const Prefix = "/system/async"

// defaultLetters is the number of dead letters in a list if the query has no limit,
// maxLetters the maximum.
const (
	defaultLetters = 100
	maxLetters     = 1000
)

// maxSystemBody is the most bytes of a request body of these routes.
const maxSystemBody = 1 << 20

// Admin serves the routes at and below Prefix.
type Admin struct {
	Broker *queue.Broker
	Dead   *DeadLetters
	// InHand returns the messages in hand, counted by queue.Message.Key.
	InHand func() map[string]queue.PoolStats
	// Address returns where gateways publish, "" if nowhere.
	Address func() string
	// Send stores a dead letter's message in the queue again.
	Send   Sender
	Logger zerolog.Logger
}

// Serve answers everything at and below Prefix. The caller checks the credentials. If
// Serve returns an error, the caller writes the answer. The error is a *web.Error, or the
// request's context's.
//
//	GET    /system/async                        Status
//	GET    /system/async/dead?limit=&from=      []DeadLetter, the oldest first
//	GET    /system/async/dead/SEQUENCE          Shown
//	POST   /system/async/dead/replay            {"sequences":[…]} or {"all":true} → Replayed
//	DELETE /system/async/dead                   {"purged":N}
//	DELETE /system/async/dead/SEQUENCE
func (a *Admin) Serve(w http.ResponseWriter, r *http.Request) error {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, "/"), Prefix)
	if !ok {
		return errNoRoute
	}
	switch {
	case rest == "":
		return route(w, r, methods{http.MethodGet: a.status})
	case rest == "/dead":
		return route(w, r, methods{http.MethodGet: a.listDead, http.MethodDelete: a.purgeDead})
	case rest == "/dead/replay":
		return route(w, r, methods{http.MethodPost: a.replayDead})
	case strings.HasPrefix(rest, "/dead/"):
		return route(w, r, methods{http.MethodGet: a.showDead, http.MethodDelete: a.removeDead})
	}
	return errNoRoute
}

var errNoRoute = web.Refuse(http.StatusNotFound, "there is no such route below %s", Prefix)

type methods map[string]func(w http.ResponseWriter, r *http.Request) error

func route(w http.ResponseWriter, r *http.Request, m methods) error {
	if serve, ok := m[r.Method]; ok {
		return adminUnavailable(serve(w, r))
	}
	allowed := slices.Sorted(maps.Keys(m))
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return web.Refuse(http.StatusMethodNotAllowed, "this route takes %s", strings.Join(allowed, " and "))
}

// adminUnavailable turns an error of a queue that does not answer into a 503.
func adminUnavailable(err error) error {
	var known *web.Error
	if err == nil || errors.As(err, &known) || errors.Is(err, context.Canceled) {
		return err
	}
	return web.Unavailable(2*time.Second, "the queue does not answer: %v", err)
}

func (a *Admin) listDead(w http.ResponseWriter, r *http.Request) error {
	limit, err := number(r, "limit", defaultLetters)
	if err != nil {
		return err
	}
	from, err := number(r, "from", 0)
	if err != nil {
		return err
	}
	letters, err := a.Dead.List(r.Context(), from, int(min(limit, maxLetters)))
	if err != nil {
		return err
	}
	return writeJSON(w, letters)
}

// number reads a whole number from a query, otherwise if it is absent.
func number(r *http.Request, name string, otherwise uint64) (uint64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, web.Refuse(http.StatusBadRequest, "the query's %s is %q: it must be a whole number", name, web.Clip(text))
	}
	return n, nil
}

// Shown is a dead letter with its request. Raw is the message if it is not a request.
type Shown struct {
	DeadLetter
	Request *types.QueueRequest `json:"request,omitempty"`
	Raw     []byte              `json:"raw,omitempty"`
}

func sequence(r *http.Request) (uint64, error) {
	text := strings.TrimPrefix(strings.TrimSuffix(r.URL.Path, "/"), Prefix+"/dead/")
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, web.Refuse(http.StatusBadRequest, "the sequence is %q: it must be the number of a dead letter; GET %s/dead lists them", web.Clip(text), Prefix)
	}
	return n, nil
}

func (a *Admin) showDead(w http.ResponseWriter, r *http.Request) error {
	seq, err := sequence(r)
	if err != nil {
		return err
	}
	l, data, err := a.Dead.Get(r.Context(), seq)
	if err != nil {
		return absent(err, seq)
	}
	shown := Shown{DeadLetter: l}
	if request, err := queue.DecodeRequest(data); err == nil {
		shown.Request = &request.QueueRequest
	} else {
		shown.Raw = data
	}
	return writeJSON(w, shown)
}

func absent(err error, seq uint64) error {
	if errors.Is(err, ErrNoDeadLetter) {
		return web.Refuse(http.StatusNotFound, "there is no dead letter %d; GET %s/dead lists them", seq, Prefix)
	}
	return err
}

func (a *Admin) removeDead(w http.ResponseWriter, r *http.Request) error {
	seq, err := sequence(r)
	if err != nil {
		return err
	}
	if err := a.Dead.Remove(r.Context(), seq); err != nil {
		return absent(err, seq)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Purged is the number of dead letters removed.
type Purged struct {
	Purged uint64 `json:"purged"`
}

func (a *Admin) purgeDead(w http.ResponseWriter, r *http.Request) error {
	n, err := a.Dead.Purge(r.Context())
	if err != nil {
		return err
	}
	a.Logger.Info().Uint64("purged", n).Msg("dead letters were removed")
	return writeJSON(w, Purged{n})
}

// ReplayOrder says which dead letters to replay: some, or all.
type ReplayOrder struct {
	Sequences []uint64 `json:"sequences,omitempty"`
	All       bool     `json:"all,omitempty"`
}

func (a *Admin) replayDead(w http.ResponseWriter, r *http.Request) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSystemBody))
	if err != nil {
		return web.Refuse(http.StatusBadRequest, "the request body could not be read: %v", err)
	}
	var order ReplayOrder
	if err := json.Unmarshal(text, &order); err != nil || order.All == (len(order.Sequences) > 0) {
		return web.Refuse(http.StatusBadRequest, `the request body must be {"sequences":[1,2]} with the letters to replay, or {"all":true}`)
	}
	result, err := a.Dead.Replay(r.Context(), order.Sequences, a.Send)
	if err != nil {
		return err
	}
	a.Logger.Info().Int("replayed", result.Replayed).Int("failed", len(result.Failed)).Msg("dead letters were replayed")
	return writeJSON(w, result)
}

func writeJSON(w http.ResponseWriter, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	// The write fails if the client is gone.
	_, _ = w.Write(append(text, '\n'))
	return nil
}
