package provider

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/mux"
	"github.com/openfaas/faas-provider/auth"
	"github.com/openfaas/faas-provider/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

// DefaultMaxBody is the largest request body of an invocation, in bytes, where
// Options say nothing; maxSystemBody is that of the system routes.
const (
	DefaultMaxBody = 32 << 20
	maxSystemBody  = 1 << 20
)

// DefaultMaxHeld and DefaultBodyTimeout are what Options say of themselves.
const (
	DefaultMaxHeld     = 1 << 30
	DefaultBodyTimeout = 30 * time.Second
)

// Options are what a Server works with.
type Options struct {
	// Store, Controller and Metrics are required.
	Store      Store
	Controller Controller
	Metrics    *metrics.Metrics
	// Gatherer is what /metrics shows: the registry of Metrics.
	Gatherer prometheus.Gatherer
	// Credentials guard the /system routes; nil leaves them open. Invocation,
	// health and metrics are always open, as OpenFaaS has them.
	Credentials *auth.BasicAuthCredentials
	// MaxBody is the largest body of an invocation in bytes, DefaultMaxBody
	// if 0.
	MaxBody int64
	// MaxHeld is how many bytes the bodies of all invocations that have not
	// been answered may take together, DefaultMaxHeld if 0 and at least
	// MaxBody; what comes beyond it gets 503.
	MaxHeld int64
	// BodyTimeout is how long a client may take to send a request's body,
	// DefaultBodyTimeout if 0; then it gets 408. Ordinary functions' bodies
	// are not collected: their forwarders bound them.
	BodyTimeout time.Duration
	// Secrets is where functions' secrets are kept and Logs is what functions
	// printed; without them the routes of secrets and of logs answer 501.
	Secrets Secrets
	Logs    LogSource
	// Nodes lists the machines for /system/telemetry, which leaves them out if
	// it is nil.
	Nodes func(context.Context) ([]cluster.Node, error)
	// Build answers POST /build and PublicKey GET /publickey, faas-cli's remote
	// builder; they check who asks themselves. Without them the routes are not
	// there.
	Build, PublicKey http.Handler
	// Defaults are the annotations that images bring along; nil for none.
	Defaults Defaults
	// CORSOrigins are the origins (scheme://host[:port]) whose pages a browser
	// may let use the /system routes; "*" stands for all. None by default.
	CORSOrigins []string
	// Version is what /system/info tells.
	Version types.VersionInfo
	Logger  zerolog.Logger
	// Now is the clock for CreatedAt, time.Now if nil.
	Now func() time.Time
}

// Server serves the provider's routes. Make it with New, call Restore, then
// serve Handler.
type Server struct {
	store       Store
	controller  Controller
	metrics     *metrics.Metrics
	credentials *auth.BasicAuthCredentials
	bodies      *web.BodyReader
	version     types.VersionInfo
	now         func() time.Time
	started     time.Time
	secrets     Secrets
	logs        LogSource
	nodes       func(context.Context) ([]cluster.Node, error)
	defaults    Defaults
	cors        web.CORS
	log         zerolog.Logger
	// unexpected logs what can happen on every request, a few lines a second.
	unexpected zerolog.Logger

	system, open *mux.Router
	async        Async
	inFlight     *web.Gate

	registry
	spaces  namespaces
	changes changes
	// placing is held for as long as something is put into a namespace, and
	// alone while one is made or deleted; it comes before busy, which keeps
	// changes of one function apart.
	placing, busy web.KeyedMutex
	// arriving are functions that are being adopted.
	arriving arrivals
}

// deployed is a function with what the request's way needs of it.
type deployed struct {
	*Function
	dispatcher Dispatcher
	// forwarder is the dispatcher of an ordinary function, else nil.
	forwarder Forwarder
	metrics   *metrics.FunctionMetrics
	// labels are what the function's status shows.
	labels *map[string]string
	// lasting is what of its status does not change.
	lasting lasting
}

// functionLabel is what every provider of OpenFaaS adds to a function's labels:
// its name.
const functionLabel = "faas_function"

func (s *Server) deployed(f *Function, dispatcher Dispatcher) *deployed {
	d := &deployed{Function: f, dispatcher: dispatcher, metrics: s.metrics.Function(f.Name)}
	d.forwarder, _ = dispatcher.(Forwarder)
	labels := map[string]string{}
	if of := f.Deployment.Labels; of != nil {
		maps.Copy(labels, *of)
	}
	labels[functionLabel] = f.Deployment.Service
	d.labels = &labels
	return d
}

// New makes a server that knows no function yet.
func New(o Options) *Server {
	s := &Server{
		store: o.Store, controller: o.Controller, metrics: o.Metrics, credentials: o.Credentials,
		version: o.Version, now: o.Now, log: o.Logger,
		secrets: o.Secrets, logs: o.Logs, nodes: o.Nodes, defaults: o.Defaults, cors: web.NewCORS(o.CORSOrigins),
		unexpected: o.Logger.Sample(&zerolog.BurstSampler{Burst: 5, Period: time.Second}),
		inFlight:   web.NewGate(), spaces: namespaces{o.Store},
	}
	most := o.MaxBody
	if most <= 0 {
		most = DefaultMaxBody
	}
	s.bodies = web.NewBodyReader(most, cmp.Or(o.BodyTimeout, DefaultBodyTimeout), max(cmp.Or(o.MaxHeld, DefaultMaxHeld), most+1))
	s.changes = changes{s.bodies, s.inFlight}
	if s.now == nil {
		s.now = time.Now
	}
	s.started = s.now()
	s.functions.Store(&map[string]*deployed{})
	s.routes(promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{}))
	if o.Build != nil {
		s.open.Handle("/build", unlessDraining(s.inFlight, o.Build))
	}
	if o.PublicKey != nil {
		s.open.Handle("/publickey", o.PublicKey)
	}
	return s
}

// systemPrefix is where everything is that needs credentials.
const systemPrefix = "/system/"

// nameExpression is what faas-provider's routes take for a name; the names of
// functions are stricter, but a wrong one is to be told so.
const nameExpression = "{name:[-a-zA-Z_0-9.]+}"

func (s *Server) routes(prometheus http.Handler) {
	s.system, s.open = mux.NewRouter(), mux.NewRouter()
	s.system.Handle("/system/functions", s.route(byMethod{
		http.MethodGet: s.list, http.MethodPost: s.create, http.MethodPut: s.update, http.MethodDelete: s.remove}))
	s.system.Handle("/system/function/"+nameExpression, s.route(byMethod{http.MethodGet: s.describe}))
	s.system.Handle("/system/scale-function/"+nameExpression, s.route(byMethod{http.MethodPost: s.scale}))
	s.system.Handle("/system/info", s.route(byMethod{http.MethodGet: s.info}))
	s.system.Handle("/system/telemetry", s.route(byMethod{http.MethodGet: s.telemetry}))
	s.system.Handle("/system/logs", s.route(byMethod{http.MethodGet: logRoutes{s}.show}))
	secrets, spaces := secretRoutes{s}, namespaceRoutes{s}
	s.system.Handle("/system/secrets", s.route(byMethod{
		http.MethodGet: secrets.list, http.MethodPost: secrets.create, http.MethodPut: secrets.update, http.MethodDelete: secrets.delete}))
	s.system.Handle("/system/namespaces", s.route(byMethod{http.MethodGet: spaces.list}))
	s.system.Handle("/system/namespace/{name:[^/]*}", s.route(byMethod{http.MethodGet: spaces.describe,
		http.MethodPost: spaces.create, http.MethodPut: spaces.update, http.MethodDelete: spaces.delete}))
	s.open.Handle("/healthz", s.route(byMethod{http.MethodGet: s.health, http.MethodHead: s.health}))
	s.open.Handle("/metrics", prometheus)
	s.open.Handle("/api/v1/query", s.route(byMethod{http.MethodGet: s.query, http.MethodPost: s.query}))
	nowhere := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		web.WriteError(w, web.Refuse(http.StatusNotFound, "there is nothing at %q", web.Clip(r.URL.Path)))
	})
	s.system.NotFoundHandler, s.open.NotFoundHandler = nowhere, nowhere
}

// byMethod is one route's handlers. An error that one returns is the answer.
type byMethod map[string]func(w http.ResponseWriter, r *http.Request) error

// route picks the handler by method.
func (s *Server) route(m byMethod) http.Handler {
	allowed := strings.Join(slices.Sorted(maps.Keys(m)), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handle, ok := m[r.Method]
		if !ok {
			w.Header().Set("Allow", allowed)
			web.WriteError(w, web.Refuse(http.StatusMethodNotAllowed, "%s takes %s, not %q", web.Clip(r.URL.Path), allowed, web.Clip(r.Method)))
			return
		}
		s.answered(w, r, handle(w, r))
	})
}

// answered answers with a handler's error, if there is one.
func (s *Server) answered(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil && web.WriteError(w, err) == http.StatusInternalServerError {
		s.unexpected.Error().Err(err).Str("method", r.Method).Str("path", r.URL.Path).Msg("a request failed")
	}
}

// Handler serves every route of the provider.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	defer s.recovered(w, r)
	escaped := r.URL.EscapedPath()
	if strings.HasPrefix(escaped, functionPrefix) {
		invocations{s}.invoke(w, r, escaped)
		return
	}
	defer s.bodies.LimitRest(w, r)
	switch {
	case strings.HasPrefix(escaped, asyncPrefix):
		s.accept(w, r, escaped)
	case strings.HasPrefix(r.URL.Path, systemPrefix):
		if s.cors.Answer(w, r) {
			return
		}
		err := s.cors.Check(r)
		if err == nil {
			err = authorize(w, r, s.credentials)
		}
		if err != nil {
			web.WriteError(w, err)
			return
		}
		s.system.ServeHTTP(w, r)
	default:
		s.open.ServeHTTP(w, r)
	}
}

// recovered, deferred, answers a panic with 500, so that one request's mistake
// is not the end of the others.
func (s *Server) recovered(w http.ResponseWriter, r *http.Request) {
	switch p := recover(); p {
	case nil:
	case http.ErrAbortHandler:
		panic(p)
	default:
		s.unexpected.Error().Interface("panic", p).Str("method", r.Method).Str("path", r.URL.Path).Stack().Msg("a handler panicked")
		web.WriteError(w, web.Refuse(http.StatusInternalServerError, "the provider failed at this request; its log tells more"))
	}
}
