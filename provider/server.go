package provider

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
	"github.com/openfaas/faas-provider/auth"
	"github.com/openfaas/faas-provider/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/console"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/grpc"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

// maxSystemBody is the most bytes of a request body of the system routes.
const maxSystemBody = 1 << 20

// DefaultMaxBody (32 MiB), DefaultMaxHeld (1 GiB) and DefaultBodyTimeout are the limits of
// Options.Bodies if that is nil, and the defaults of the flags for it.
const (
	DefaultMaxBody     = 32 << 20
	DefaultMaxHeld     = 1 << 30
	DefaultBodyTimeout = 30 * time.Second
)

// DefaultMaxAnswers is Options.MaxAnswers if that is 0.
const DefaultMaxAnswers = 256 << 20

// Options configures a Server.
type Options struct {
	// Store, Controller and Metrics are required.
	Store      Store
	Controller Controller
	Metrics    *metrics.Metrics
	// Gatherer is the registry of Metrics, which /metrics shows.
	Gatherer prometheus.Gatherer
	// Credentials guard the /system routes; nil leaves them open. Invocation,
	// health and metrics are always open, as in OpenFaaS.
	Credentials *auth.BasicAuthCredentials
	// Bodies reads the bodies of requests, except those to ordinary functions, whose
	// forwarders stream bodies and bound the time themselves. nil for one with the defaults.
	Bodies *web.BodyReader
	// MaxAnswers is the most memory in bytes that answers kept for equal requests may take, of all functions together,
	// 0 for DefaultMaxAnswers.
	MaxAnswers int64
	// InFlight counts the requests in flight; nil for a gate of the server's own. Shutdown
	// closes it.
	InFlight *web.Gate
	// ColdWait is how long, beyond its objective, a request may wait for a first instance. A
	// request for a function that is not back after a restart waits no longer, for both.
	ColdWait time.Duration
	// Secrets keeps functions' secrets and Logs reads functions' output. Without
	// them the routes of secrets and of logs answer 501.
	Secrets Secrets
	Logs    LogSource
	// Nodes lists the machines for /system/telemetry, which leaves them out if
	// it is nil.
	Nodes func(context.Context) ([]cluster.Node, error)
	// Build serves POST /build and PublicKey GET /publickey for faas-cli's remote
	// builder. They authenticate clients themselves. Without them the routes do not
	// exist.
	Build, PublicKey http.Handler
	// Upload makes a bundle of an uploaded model, for POST /system/upload. If it is nil, the route answers 501.
	Upload func(w http.ResponseWriter, r *http.Request) error
	// Defaults reads the annotations that images set, nil for none.
	Defaults Defaults
	// Fetcher brings models that deployments name by URIs; nil if the controller does that while it deploys. Downloads
	// end with Downloads, context.Background() if that is nil.
	Fetcher   Fetcher
	Downloads context.Context
	// Decisions has what was decided of late; nil for nothing. The server adds deployments.
	Decisions *decisions.Log
	// AccessKeys is a file with the keys of those who may call functions, for [access.Parse], "" for
	// none. It holds for functions whose deployments and namespaces name no secret with keys.
	AccessKeys string
	// Rates counts requests for all replicas of the provider, nil if there is only this one.
	Rates Rates
	// Rollouts are the other replicas of the provider as gradual rollouts see them, nil if there is only this one.
	Rollouts RolloutPeers
	// Revisions remembers the revisions of functions. If it is nil, Store does, if it can; otherwise they are forgotten
	// at the end.
	Revisions RevisionStore
	// Several: other replicas of the provider serve the same functions. While this one
	// restores its functions, /healthz then answers 503, so that load balancers send
	// requests to the others.
	Several bool
	// Hosts are the names by which clients may address the /system routes if there are no
	// Credentials; "*" stands for all. IP addresses and localhost are always allowed.
	Hosts []string
	// FunctionUser reports whether a user of this machine runs ordinary functions. Requests of these users'
	// processes to the /system routes are refused if there are no Credentials. nil: no user does.
	FunctionUser func(user int) bool
	// CORSOrigins are the origins (scheme://host[:port]) whose pages may use the
	// /system routes in a browser; "*" stands for all. None by default.
	CORSOrigins []string
	// BehindGateway: a stock gateway is in front of the provider, also where a proxy is in front of the gateway.
	BehindGateway bool
	// Tracer traces requests, nil for none. /metrics then shows the traces of some requests as exemplars.
	Tracer Tracer
	// Version is part of /system/info.
	Version types.VersionInfo
	Logger  zerolog.Logger
	// Now is the clock, time.Now if nil.
	Now func() time.Time
}

// Tracer decides which requests are traced. *trace.Tracer implements it. Its methods neither block nor lock.
type Tracer interface {
	// Begin returns the trace of a request with this header that came at a time, nil if it is not sampled. It
	// makes the request's span the parent of what gets the header.
	Begin(h http.Header, at time.Time) *frame.Trace
	// End takes a trace whose request has its answer.
	End(t *frame.Trace)
}

// Server serves the provider's routes. Create it with New, call Restore, then serve Handler;
// or call BeginRestore, serve Handler, and restore meanwhile.
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
	tracer      Tracer
	nodes       func(context.Context) ([]cluster.Node, error)
	defaults    Defaults
	events      eventRoutes
	upload      func(w http.ResponseWriter, r *http.Request) error
	cors        web.CORS
	hosts       web.Hosts
	// functionUser is Options.FunctionUser.
	functionUser func(user int) bool
	log          zerolog.Logger
	// sampledLog logs errors that any request may cause, at most 5 lines a second.
	sampledLog zerolog.Logger

	system, open *mux.Router
	calls        *grpc.Server
	async        Async
	inFlight     *web.Gate
	// leaving: see [Server.Leave].
	leaving atomic.Bool
	// answerMemory has the answers that are kept for equal requests.
	answerMemory answerMemory

	registry
	watcher    *watcher
	callers    callers
	namespaces namespaces
	changes    changes
	// namespaceLocks locks by namespace: shared while a function or secret is put into the
	// namespace, alone while the namespace is created, updated or deleted. functionLocks locks by
	// function, for one change at a time. Take namespaceLocks before functionLocks.
	namespaceLocks, functionLocks web.KeyedMutex
	fetching                      fetching
	// arriving are the functions that are being adopted or restored.
	arriving arrivals
	// restored is nil without BeginRestore.
	restored *restoration
	// coldWait is Options.ColdWait.
	coldWait time.Duration
	// several is Options.Several, behindGateway Options.BehindGateway.
	several, behindGateway bool
}

// deployed is a function with the parts that the request path and the lists need.
type deployed struct {
	*Function
	dispatcher Dispatcher
	// forwarder is the dispatcher of an ordinary function, otherwise nil.
	forwarder Forwarder
	metrics   *metrics.FunctionMetrics
	// rollout divides the requests while a later revision is rolled out, nil otherwise.
	rollout *atomic.Pointer[split]
	// policy says who may call the function and how often, nil for anybody and any number.
	policy atomic.Pointer[policy]
	// answers are those that are kept for equal requests, nil for none.
	answers *answers
	// labels are those in the function's status.
	labels *map[string]string
	// fixedStatus is the part of its status that does not change.
	fixedStatus fixedStatus
}

// functionLabel is the label that every OpenFaaS provider adds to a function. Its value
// is the function's name.
const functionLabel = "faas_function"

func (s *Server) deployed(f *Function, dispatcher Dispatcher) *deployed {
	d := &deployed{Function: f, dispatcher: dispatcher, metrics: s.metrics.Function(f.Name), rollout: s.rollouts.of(f.Name)}
	d.forwarder, _ = dispatcher.(Forwarder)
	d.metrics.SetObjective(f.Inference.SLO, f.Inference.Percentile/100)
	d.answers = newAnswers(f.Inference.AnswerCache, &s.answerMemory, d.metrics.Answers)
	labels := map[string]string{}
	if of := f.Deployment.Labels; of != nil {
		maps.Copy(labels, *of)
	}
	labels[functionLabel] = f.Deployment.Service
	d.labels = &labels
	before, _ := s.named(f.Name)
	l := s.arriving.limiter(f.Name, before.limiter(), f.Inference.Rate)
	s.callers.put(d, l, s.callers.defaultOf(f.Deployment.Namespace))
	return d
}

// New returns a server without functions.
func New(o Options) *Server {
	s := &Server{
		store: o.Store, controller: o.Controller, metrics: o.Metrics, credentials: o.Credentials,
		version: o.Version, now: o.Now, log: o.Logger,
		secrets: o.Secrets, logs: o.Logs, tracer: o.Tracer, nodes: o.Nodes, defaults: o.Defaults, events: eventRoutes{o.Decisions}, upload: o.Upload, cors: web.NewCORS(o.CORSOrigins), hosts: web.NewHosts(o.Hosts), functionUser: o.FunctionUser, several: o.Several, behindGateway: o.BehindGateway, coldWait: o.ColdWait,
		sampledLog: o.Logger.Sample(&zerolog.BurstSampler{Burst: 5, Period: time.Second}),
		inFlight:   cmp.Or(o.InFlight, web.NewGate()), namespaces: namespaces{o.Store},
	}
	s.answerMemory.limit = cmp.Or(o.MaxAnswers, DefaultMaxAnswers)
	s.arriving.shut = s.inFlight.Shut()
	s.fetching = fetching{by: o.Fetcher, patience: fetchPatience, ctx: o.Downloads}
	if s.fetching.ctx == nil {
		s.fetching.ctx = context.Background()
	}
	s.watcher = newWatcher(s)
	if s.bodies = o.Bodies; s.bodies == nil {
		s.bodies = web.NewBodyReader(DefaultMaxBody, DefaultBodyTimeout, DefaultMaxHeld)
	}
	s.changes = changes{s.bodies, s.inFlight}
	s.calls = grpc.New(grpc.Options{Handler: s.Handler(), Bodies: s.bodies, Charged: chargedName, Version: o.Version.Release, Ready: s.ready, Shut: s.inFlight.Shut()})
	if s.now == nil {
		s.now = time.Now
	}
	if s.upload == nil {
		s.upload = noUpload
	}
	s.started = s.now()
	s.callers = callers{secrets: s.secrets, namespaces: s.namespaces, file: o.AccessKeys, rates: o.Rates, now: s.now, log: s.log,
		guards: map[source]*guard{}, defaults: map[string]string{}}
	s.rollouts.connect(s, o.Rollouts, o.Revisions)
	s.routes(promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{EnableOpenMetrics: o.Tracer != nil}))
	if o.Build != nil {
		s.open.Handle("/build", unlessDraining(s.inFlight, o.Build))
	}
	if o.PublicKey != nil {
		s.open.Handle("/publickey", o.PublicKey)
	}
	return s
}

// systemPrefix begins the path of every route that needs credentials.
const systemPrefix = "/system/"

// nameExpression matches the names that faas-provider's routes accept. Names of functions
// are stricter, but the handler refuses a wrong one with a sentence.
const nameExpression = "{name:[-a-zA-Z_0-9.]+}"

func (s *Server) routes(prometheus http.Handler) {
	s.system, s.open = mux.NewRouter(), mux.NewRouter()
	s.system.Handle("/system/functions", s.route(byMethod{
		http.MethodGet: s.list, http.MethodPost: s.deploy, http.MethodPut: s.deploy, http.MethodDelete: s.remove}))
	s.system.Handle("/system/function/"+nameExpression, s.route(byMethod{http.MethodGet: s.describe}))
	s.system.Handle("/system/variants/"+nameExpression, s.route(byMethod{http.MethodGet: variantRoutes{s}.list}))
	s.system.Handle("/system/scale-function/"+nameExpression, s.route(byMethod{http.MethodPost: s.scale}))
	rolls := rolloutRoutes{&s.rollouts, s.changes}
	s.system.Handle("/system/rollout/"+nameExpression, s.route(byMethod{http.MethodGet: rolls.show, http.MethodPost: rolls.change}))
	s.system.Handle("/system/info", s.route(byMethod{http.MethodGet: gatewayRoutes{s}.info}))
	s.system.Handle("/system/alert", s.route(byMethod{http.MethodPost: gatewayRoutes{s}.alert}))
	s.system.Handle("/system/telemetry", s.route(byMethod{http.MethodGet: s.telemetry}))
	s.system.Handle("/system/upload", unlessDraining(s.inFlight, s.route(byMethod{http.MethodPost: s.upload})))
	s.system.Handle("/system/events", s.route(byMethod{http.MethodGet: s.events.list}))
	stats := statsRoutes{s}
	s.system.Handle("/system/stats", s.route(byMethod{http.MethodGet: stats.show}))
	s.system.Handle("/system/stream", s.route(byMethod{http.MethodGet: stats.stream}))
	s.system.Handle("/system/plan/"+nameExpression, s.route(byMethod{http.MethodPost: stats.plan}))
	absent := func(a address) error {
		_, err := s.find(a)
		if s.restored.isMissing(a.full()) {
			return nil
		}
		return err
	}
	s.system.Handle("/system/logs", s.route(byMethod{http.MethodGet: logRoutes{s.logs, absent, s.inFlight, s.now}.show}))
	secrets, spaces := secretRoutes{s.secrets, s.changes, s.namespaces, &s.namespaceLocks, s.callers.reload, s.log}, namespaceRoutes{s}
	s.system.Handle("/system/secrets", s.route(byMethod{
		http.MethodGet: secrets.list, http.MethodPost: secrets.create, http.MethodPut: secrets.update, http.MethodDelete: secrets.delete}))
	s.system.Handle("/system/namespaces", s.route(byMethod{http.MethodGet: spaces.list}))
	s.system.Handle("/system/namespace/{name:[^/]*}", s.route(byMethod{http.MethodGet: spaces.describe,
		http.MethodPost: spaces.create, http.MethodPut: spaces.update, http.MethodDelete: spaces.delete}))
	for path, answer := range map[string]func(http.ResponseWriter, *http.Request) error{"/healthz": s.health, "/readyz": s.health, "/startupz": alive, "/livez": alive} {
		s.open.Handle(path, s.route(byMethod{http.MethodGet: answer, http.MethodHead: answer}))
	}
	s.open.Handle("/metrics", prometheus)
	s.open.Handle("/api/v1/query", s.route(byMethod{http.MethodGet: s.query, http.MethodPost: s.query}))
	notFound := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		web.WriteError(w, web.Refuse(http.StatusNotFound, "there is no route %q", web.Clip(r.URL.Path)))
	})
	s.system.NotFoundHandler, s.open.NotFoundHandler = notFound, notFound
	s.system.PathPrefix(console.Prefix).HandlerFunc(console.Serve)
	s.open.Handle("/", console.Redirect(notFound))
	s.open.Handle("/ui", console.Redirect(notFound))
}

// byMethod holds one route's handlers by method. A handler's error becomes the answer.
type byMethod map[string]func(w http.ResponseWriter, r *http.Request) error

// route serves a route with the handler for the request's method, and 405 if there is none.
func (s *Server) route(m byMethod) http.Handler {
	allowed := strings.Join(slices.Sorted(maps.Keys(m)), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handle, ok := m[r.Method]
		if !ok {
			w.Header().Set("Allow", allowed)
			web.WriteError(w, web.Refuse(http.StatusMethodNotAllowed, "%s takes %s, not %q", web.Clip(r.URL.Path), allowed, web.Clip(r.Method)))
			return
		}
		s.answerError(w, r, handle(w, r))
	})
}

// answerError writes a handler's error as the answer, and logs one that gets status 500. It
// does nothing if err is nil.
func (s *Server) answerError(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil && writeErrorOf(w, r, err) == http.StatusInternalServerError {
		s.sampledLog.Error().Err(err).Str("method", r.Method).Str("path", r.URL.Path).Msg("a request failed")
	}
}

// writeErrorOf answers a request with an error in the form of its path, and returns the status code.
func writeErrorOf(w http.ResponseWriter, r *http.Request, err error) int {
	if isOpenAI(r.URL.EscapedPath()) {
		return web.WriteOpenAIError(w, err)
	}
	return web.WriteErrorBelow(w, below(r), err)
}

// below is a request's path below its function, "" if it is for no function.
func below(r *http.Request) (path string) {
	escaped := r.URL.EscapedPath()
	for _, prefix := range []string{functionPrefix, asyncPrefix} {
		if strings.HasPrefix(escaped, prefix) {
			_, path = splitPath(escaped, prefix)
		}
	}
	return path
}

// Handler serves every route of the provider, and gRPC.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	defer s.recoverPanic(w, r)
	if s.leaving.Load() {
		w.Header().Set("Connection", "close")
	}
	escaped := cmp.Or(r.URL.RawPath, r.URL.EscapedPath()) // Functions get the path as it was sent.
	if strings.HasPrefix(escaped, functionPrefix) {
		invocations{s}.invoke(w, r, escaped)
		return
	}
	if grpc.IsCall(r) {
		s.calls.ServeHTTP(w, r)
		return
	}
	defer s.bodies.LimitRest(w, r)
	if strings.HasPrefix(escaped, asyncPrefix) {
		s.accept(w, r, escaped)
		return
	}
	if (openAIRoutes{invocations{s}}).serve(w, r, escaped) {
		return
	}
	switch err := web.RefuseCallback(r); {
	case err != nil:
		web.WriteError(w, err)
	case strings.HasPrefix(r.URL.Path, systemPrefix), strings.HasPrefix(r.URL.Path, console.Prefix):
		systemRoutes{s}.serve(w, r)
	default:
		s.open.ServeHTTP(w, r)
	}
}

// systemRoutes serves the system routes, and the console that uses them, to clients that may use them.
type systemRoutes struct{ *Server }

func (s systemRoutes) serve(w http.ResponseWriter, r *http.Request) {
	var err error
	if s.credentials == nil {
		err = s.hosts.Check(r)
		if err == nil && s.functionUser != nil {
			err = web.RefuseUsers(r, s.functionUser)
		}
	}
	if err == nil && s.cors.Answer(w, r) {
		return
	}
	if err == nil {
		err = s.cors.Check(r)
	}
	if err == nil {
		err = authorize(w, r, s.credentials)
	}
	if err != nil {
		web.WriteError(w, err)
		return
	}
	s.system.ServeHTTP(w, r)
}

// recoverPanic, deferred, answers a panic with 500. Other requests are not affected.
func (s *Server) recoverPanic(w http.ResponseWriter, r *http.Request) {
	switch p := recover(); p {
	case nil:
	case http.ErrAbortHandler:
		panic(p)
	default:
		s.sampledLog.Error().Interface("panic", p).Str("method", r.Method).Str("path", r.URL.Path).Stack().Msg("a handler panicked")
		writeErrorOf(w, r, web.Refuse(http.StatusInternalServerError,
			"the provider failed at this request; its log has the details"))
	}
}
