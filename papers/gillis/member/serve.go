package member

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/papers/gillis/forkjoin"
)

// Handler serves a master: the requests of an instance's server, and the addresses of the
// workers at [forkjoin.WorkersPath].
func (m *Master) Handler(server *instance.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == forkjoin.WorkersPath {
			m.Workers.ServeHTTP(w, r)
			return
		}
		server.ServeHTTP(w, r)
	})
}

// maxHead bounds the JSON of a part's request in bytes.
const maxHead = 1 << 20

// Handler serves a worker's parts, each as a model named [forkjoin.PartName] in the Open
// Inference Protocol. One part runs at a time: the member has the cores for one. Health,
// readiness and metrics are as those of any instance. Of the options it takes MaxBatch,
// Threads, Startup and Logger.
func (w *Worker) Handler(o instance.Options) (http.Handler, error) {
	h := &handler{worker: w, parts: make(map[string]*instance.Server)}
	for i, e := range w.engines.all {
		part := instance.Options{MaxBatch: o.MaxBatch, Threads: o.Threads, Startup: o.Startup, Logger: o.Logger, Beside: h.first}
		part.Name = forkjoin.PartName(w.plan, w.rounds[i])
		part.BodyLimit = w.largest[i]*int64(max(1, o.MaxBatch)) + maxHead
		server, err := instance.NewServer(e, part)
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", w.rounds[i], err)
		}
		if h.first == nil {
			h.first = server
		}
		h.parts[part.Name] = server
	}
	return h, nil
}

type handler struct {
	worker *Worker
	parts  map[string]*instance.Server
	first  *instance.Server
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rest, ok := strings.CutPrefix(r.URL.Path, "/v2/models/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		if s := h.parts[name]; s != nil {
			s.ServeHTTP(w, r)
			return
		}
		refuse(w, fmt.Errorf("there is no part %.100q here; this is member %d of the plan %s, with the parts of rounds %s",
			name, h.worker.member, h.worker.plan, strings.Trim(fmt.Sprint(h.worker.rounds), "[]")))
		return
	}
	switch r.URL.Path {
	case "/v2", "/v2/health/live", "/v2/health/ready", "/_/health", "/_/ready", "/metrics":
		h.first.ServeHTTP(w, r)
	default:
		refuse(w, fmt.Errorf("there is no %.100s here: this is a worker of a cut model; send requests to its master", r.URL.Path))
	}
}

func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()}) // The client may have hung up.
}
