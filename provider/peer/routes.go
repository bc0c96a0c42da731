package peer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/auth"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Prefix begins the paths of Handler's routes.
const Prefix = "/system/peer/"

const (
	invokePath   = Prefix + "invoke/"
	loadsPath    = Prefix + "loads"
	wakePath     = Prefix + "wake"
	drainPath    = Prefix + "drain"
	parkPath     = Prefix + "park"
	servePath    = Prefix + "serve"
	ratePath     = Prefix + "rate/"
	rolloutsPath = Prefix + "rollouts"

	decisionsPath = Prefix + "decisions"
)

// Handler serves the routes below Prefix to other replicas, which must send the
// credentials.
func (g *Group) Handler() http.Handler { return g.handler }

func (g *Group) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+invokePath+"{name}", g.serveInvoke)
	mux.HandleFunc("GET "+loadsPath, g.withLocal(g.serveLoads))
	mux.HandleFunc("GET "+decisionsPath, answerDecisions(g.boot, g.options.Decisions))
	mux.HandleFunc("POST "+wakePath, g.withLocal(g.serveWake))
	mux.HandleFunc("POST "+drainPath, g.withLocal(serveDrain))
	mux.HandleFunc("POST "+parkPath, g.withLocal(servePark))
	mux.HandleFunc("POST "+servePath, g.withLocal(serveServe))
	mux.HandleFunc("POST "+ratePath+"{name}", NewRates(g).serve)
	mux.HandleFunc("POST "+rolloutsPath, NewRollouts(g, g.leading).serve)
	handle := func(w http.ResponseWriter, r *http.Request) {
		if err := web.RefuseCallback(r); err != nil {
			web.WriteError(w, err)
			return
		}
		mux.ServeHTTP(w, r)
	}
	if c := g.options.Credentials; c != nil {
		return auth.DecorateWithBasicAuth(handle, c)
	}
	return http.HandlerFunc(handle)
}

// withLocal answers 503 before Attach.
func (g *Group) withLocal(serve func(Local, http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if l := g.attached(); l != nil {
			serve(l, w, r)
			return
		}
		http.Error(w, "the provider is starting", http.StatusServiceUnavailable)
	}
}

// serveInvoke dispatches a request that another replica hands on.
func (g *Group) serveInvoke(w http.ResponseWriter, r *http.Request) {
	if !g.options.InFlight.Enter() {
		fail(w, fmt.Errorf("%w: this replica is shutting down", errNotTaken))
		return
	}
	defer g.options.InFlight.Leave()
	d, ok := g.own.Load(r.PathValue("name"))
	if !ok {
		fail(w, fmt.Errorf("%w: this replica does not know the function (yet)", errNotTaken))
		return
	}
	req, held, err := g.receive(w, r)
	defer held.Release()
	if err != nil {
		fail(w, err)
		return
	}
	if g.options.Tracer != nil {
		req.Trace = g.options.Tracer.Begin(req.Header, time.Now())
	}
	sent, response, err := invokeInParts(w, r, &held, d.(provider.Dispatcher), req)
	if t := req.Trace; t != nil {
		t.Step, t.Function, t.Method, t.Status = frame.Handed, r.PathValue("name"), req.Method, web.StatusOf(err)
		if err == nil {
			t.Status, t.Late = response.Status, response.Late
		}
		g.options.Tracer.End(t)
	}
	if sent {
		return
	}
	if err == nil {
		err = held.TakeAnswer(int64(len(response.Body)))
	}
	if err != nil {
		fail(w, err)
		return
	}
	buffers, length := frame.EncodeResponses([]frame.Response{*response})
	if response.Late {
		w.Header().Set(lateHeader, "1")
	}
	w.Header().Set("Content-Type", frame.ContentType)
	w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	w.WriteHeader(http.StatusOK)
	for _, b := range buffers {
		if _, err := w.Write(b); err != nil {
			return // The other replica has hung up.
		}
	}
	held.Free()
}

// inHeader returns a header's time, in units; 0 if it is absent or wrong.
func inHeader(r *http.Request, name string, unit time.Duration) time.Duration {
	n, err := strconv.ParseInt(r.Header.Get(name), 10, 64)
	if err != nil || n < 0 || n > int64(math.MaxInt64/unit) {
		return 0
	}
	return time.Duration(n) * unit
}

// receive reads a frame of one request. The bytes that have come count as held.
func (g *Group) receive(w http.ResponseWriter, r *http.Request) (*frame.Request, web.Body, error) {
	held, err := g.options.Bodies.ReadFrame(w, r, r.PathValue("name"), frame.Overhead(1))
	if err != nil {
		web.CloseAfter(w, r)
		return nil, web.Body{}, err
	}
	requests, err := frame.DecodeRequests(held.Content())
	if err != nil || len(requests) != 1 {
		return nil, held, &web.Error{Status: http.StatusBadRequest, Text: "the body that another replica handed on is not one request"}
	}
	requests[0].Waited = inHeader(r, waitedHeader, time.Microsecond)
	return &requests[0], held, nil
}

// fail answers with an error and says whether another replica may execute the request: a closed
// dispatcher has certainly not.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var known web.HTTPError
	if errors.As(err, &known) {
		status = known.HTTPStatus()
	}
	var again web.Retryable
	if errors.As(err, &again) && again.RetryAfter() > 0 {
		w.Header().Set(retryHeader, strconv.FormatInt(again.RetryAfter().Milliseconds(), 10))
	}
	if errors.Is(err, dispatch.ErrClosed) || errors.Is(err, errNotTaken) {
		w.Header().Set(peerHeader, notTaken)
		status = http.StatusServiceUnavailable
	}
	http.Error(w, err.Error(), status)
}

func (g *Group) serveLoads(l Local, w http.ResponseWriter, r *http.Request) {
	since, err := strconv.ParseUint(r.URL.Query().Get("since"), 10, 64)
	if err != nil {
		http.Error(w, "since must be a number: the next of the previous answer, or 0 at first", http.StatusBadRequest)
		return
	}
	changed, _ := strconv.ParseUint(r.URL.Query().Get("changed"), 10, 64) // An earlier version of the provider sends none: it gets all.
	load := g.seen(l, since, changed)
	w.Header().Set("Content-Type", "application/json")
	// An error means that the reader has hung up.
	_ = json.NewEncoder(w).Encode(load)
}

// maxLoad bounds the load of another replica, in bytes.
const maxLoad = 64 << 20

func (g *Group) serveWake(l Local, w http.ResponseWriter, r *http.Request) {
	var load Load
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxLoad)).Decode(&load); err != nil || load.Boot == "" {
		http.Error(w, "the body must be a load, as GET "+loadsPath+" returns it", http.StatusBadRequest)
		return
	}
	g.remotes.pushed(r.Header.Get(peerHeader), load)
	g.wake(l)
	w.WriteHeader(http.StatusNoContent)
}

func serveDrain(l Local, w http.ResponseWriter, r *http.Request) {
	id, ok := instanceOf(w, r)
	if !ok {
		return
	}
	if err := l.Drain(r.Context(), id); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func servePark(l Local, w http.ResponseWriter, r *http.Request) {
	id, ok := instanceOf(w, r)
	switch {
	case !ok:
	case l.Park(id):
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, "the instance is needed", http.StatusConflict)
	}
}

// instanceOf returns the instance that a request names.
func instanceOf(w http.ResponseWriter, r *http.Request) (cluster.InstanceID, bool) {
	id := strings.TrimSpace(r.URL.Query().Get("instance"))
	if id == "" {
		http.Error(w, "name an instance: ?instance=ID", http.StatusBadRequest)
	}
	return cluster.InstanceID(id), id != ""
}

// served is an instance that takes batches.
type served struct {
	ID     cluster.InstanceID `json:"id"`
	Config cluster.Config     `json:"config"`
}

func serveServe(l Local, w http.ResponseWriter, r *http.Request) {
	var s served
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&s); err != nil || s.ID == "" {
		http.Error(w, "the body must name an instance and its config", http.StatusBadRequest)
		return
	}
	l.Serve(s.ID, s.Config)
	w.WriteHeader(http.StatusNoContent)
}
