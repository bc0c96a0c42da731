package instance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/pixels"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/instance/text"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/ragged"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// DefaultBodyLimit is the maximum request body in bytes if Options.BodyLimit is 0.
const DefaultBodyLimit = 32 << 20

// defaultMaxRows is the smallest default of Options.MaxRows: clients do not know how
// small this instance's batches are.
const defaultMaxRows = 32

// frameBodies is the maximum of a batch's bodies together, in bytes. The dispatcher
// splits a batch whose bodies exceed half of it.
const frameBodies = 64 << 20

// Options configure a Server.
type Options struct {
	// Name is the model's name in the protocols' paths and responses.
	Name string
	// MaxBatch is the maximum number of rows in one execution, at least 1.
	MaxBatch int
	// MaxRows is the maximum number of rows in one request. A request with more than
	// MaxBatch rows runs in parts. 0 means the larger of MaxBatch and 32.
	MaxRows int
	// MaxShapes has the largest sizes of inputs, nil for any.
	MaxShapes tensor.Shapes
	// BodyLimit is the maximum body of one request in bytes, 0 for DefaultBodyLimit.
	// The bodies of one batch may have 64 MiB together, or BodyLimit if that is more.
	BodyLimit int64
	// Threads is the number of threads that the engine computes on, 0 if unknown.
	Threads int
	// Concurrency is the maximum number of batches that run at the same time, 0 for 1. More
	// than one needs a [DistributedEngine].
	Concurrency int
	// Beside is another server in this process, nil for none. Both take turns as one server
	// would: never do their engines run more batches at once than Beside allows. They share
	// the metrics, too.
	Beside *Server
	// Collectors are further metrics, which /metrics serves in addition to the server's own.
	Collectors []prometheus.Collector
	// Labels are the names of the model's classes by their index, nil if it has none.
	Labels []string
	// Images says how the model takes an image, nil if it takes none.
	Images *model.ImageForm
	// Text says how the model takes texts, nil if it takes none. Its files are in TextDir, unless TextFiles returns
	// them.
	Text        *bundle.Text
	TextDir     string
	TextFiles   func() (*text.Files, error)
	TextOptions text.Options
	// Startup holds the start's times for the metrics.
	Startup Startup
	Logger  zerolog.Logger
}

// Server answers inference requests, one by one and in batches, with an engine
// that runs one batch at a time, or Options.Concurrency. It is safe for concurrent use.
type Server struct {
	engine  Engine
	model   protocol.Model
	options Options
	dynamic bool
	turn    chan struct{} // holds one element for each batch that runs
	buffers buffers
	// processor measures the CPU time that batches cost outside the engine.
	processor *processor
	// distributed says that the engine is a DistributedEngine.
	distributed bool
	metrics     *metrics
	router      *mux.Router
	// frameLimit is the maximum length of a frame in bytes.
	frameLimit int64
	// answerLimit is maxAnswers; tests have less.
	answerLimit int
	// padding says how rows of tensors of different lengths run together, nil if they do not.
	padding *ragged.Padding
	// padsRows says that rows of different lengths run together, of texts or of tensors.
	padsRows bool
	// runTimes are the times of runs of padded rows by rows and length.
	runTimes runTimes
}

// NewServer returns a server over an engine that is ready to run. The caller closes
// the engine.
func NewServer(engine Engine, options Options) (*Server, error) {
	if options.MaxBatch < 1 {
		return nil, fmt.Errorf("the maximum batch is %d; it must be at least 1", options.MaxBatch)
	}
	if options.MaxRows < 0 {
		return nil, fmt.Errorf("the maximum number of rows in a request is %d; it must be at least 1, or 0 for the default", options.MaxRows)
	}
	if options.Name == "" {
		return nil, errors.New("the model's name is empty; give it one")
	}
	_, distributed := engine.(DistributedEngine)
	if options.Concurrency < 0 || options.Concurrency > 1 && !distributed {
		return nil, fmt.Errorf("the concurrency is %d; this model runs one batch at a time, so it must be 1", options.Concurrency)
	}
	if options.BodyLimit == 0 {
		options.BodyLimit = DefaultBodyLimit
	}
	if options.MaxRows == 0 {
		options.MaxRows = max(options.MaxBatch, defaultMaxRows)
	}
	if e, ok := engine.(unbatchedEngine); ok && e.Unbatched() != "" {
		options.MaxBatch = 1
		options.Logger.Info().Str("why", e.Unbatched()).Msg("the model takes one request an execution")
	}
	s := &Server{
		engine: engine,
		model: protocol.Model{
			Name: options.Name, Inputs: protocol.Own(engine.Inputs()), Outputs: protocol.Own(engine.Outputs()),
			MaxRows: options.MaxRows, MaxShapes: options.MaxShapes, MaxBody: options.BodyLimit, Labels: options.Labels,
			Created: options.Startup.Began.Unix(),
		},
		options: options,
		turn:    make(chan struct{}, max(1, options.Concurrency)),

		processor:   new(processor),
		distributed: distributed,
		answerLimit: maxAnswers,
		frameLimit:  max(frameBodies, options.BodyLimit) + frame.Overhead(options.MaxBatch),
	}
	if b := options.Beside; b != nil {
		s.turn, s.processor, s.metrics = b.turn, b.processor, b.metrics
	} else {
		s.metrics = newMetrics(options.Startup)
	}
	s.model.Statistics = s.metrics.statistics
	if e, ok := engine.(paddedEngine); ok {
		s.padding = e.Padding()
	}
	if p, ok := engine.(interface{ Platform() string }); ok {
		s.model.Platform = p.Platform()
	}
	for _, c := range options.Collectors {
		if err := s.metrics.registry.Register(c); err != nil {
			return nil, fmt.Errorf("the engine's metrics: %w", err)
		}
	}
	if options.Images != nil {
		var err error
		if s.model.Images, err = pixels.New(*options.Images, s.model.Inputs); err != nil {
			return nil, fmt.Errorf("com.openfaas.infer.image does not fit the model: %w", err)
		}
	}
	if options.Text != nil {
		if err := s.openText(); err != nil {
			return nil, err
		}
	}
	s.padsRows = s.model.Text != nil || s.padding != nil
	for _, in := range engine.Inputs() {
		for _, d := range in.Shape[1:] {
			s.dynamic = s.dynamic || d < 0
		}
	}
	s.routes()
	return s, nil
}

func (s *Server) routes() {
	s.router = mux.NewRouter()
	s.router.HandleFunc(frame.Path, s.serveBatch).Methods(http.MethodPost)
	s.router.HandleFunc("/_/health", s.serveHealth).Methods(http.MethodGet)
	s.router.HandleFunc("/_/ready", serveOK).Methods(http.MethodGet)
	s.router.Handle("/metrics", s.metrics.handler()).Methods(http.MethodGet)
	s.router.PathPrefix("/").HandlerFunc(s.serveOne)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.router.ServeHTTP(w, r) }

func serveOK(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") }

// serveHealth answers GET /_/health. An instance of which a part does not answer does not answer
// either: whoever asks judges it by its silence.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	if parts, ok := s.engine.(interface{ Alive(context.Context) error }); ok {
		if err := parts.Alive(r.Context()); err != nil {
			s.options.Logger.Warn().Err(err).Msg("a health question stays without an answer")
			panic(http.ErrAbortHandler)
		}
	}
	serveOK(w, r)
}

// joined is the mean size of a batch's answers in bytes up to which they are copied, to be written at once.
const joined = 64 << 10

// serveBatch answers POST /v1/batch.
func (s *Server) serveBatch(w http.ResponseWriter, r *http.Request) {
	came := time.Now()
	s.processor.begin()
	beside := sync.OnceValue(s.processor.end)
	defer beside()
	if got := r.Header.Get("Content-Type"); got != frame.ContentType {
		drain(r, s.frameLimit)
		write(w, protocol.Failure(http.StatusUnsupportedMediaType,
			fmt.Errorf("%s takes %q, not %q", frame.Path, frame.ContentType, got)))
		return
	}
	body, failure := s.read(r, s.frameLimit)
	if failure != nil {
		write(w, *failure)
		return
	}
	defer s.buffers.put(body)
	requests, err := frame.DecodeRequests(*body)
	if err == nil {
		err = bound(requests, r.Header, came)
	}
	parted := partsWriter{ResponseWriter: w}
	if err == nil {
		err = parted.setParts(requests, r.Header)
	}
	if err != nil {
		write(w, protocol.Failure(http.StatusBadRequest, err))
		return
	}
	responses, spent := s.HandleBatch(r.Context(), requests)
	out, length := frame.EncodeResponses(responses)
	h := w.Header()
	if parted.begun { // The head has gone.
		h = http.Header{}
	}
	spent.setHeaders(h)
	// The time to write the answer counts towards the next batch.
	h[frame.BesideHeader] = []string{strconv.FormatInt(beside().Microseconds(), 10)}
	if parted.begun {
		_ = parted.write(frame.Part{Member: -1, Header: h, Body: bytes.Join(out, nil)}) // It fails if the dispatcher has hung up.
		return
	}
	h["Content-Type"] = []string{frame.ContentType}
	h["Content-Length"] = []string{strconv.FormatInt(length, 10)}
	if length <= joined*int64(len(responses)) { // The server would write each part with system calls of its own.
		all := s.buffers.get(int(length))
		defer s.buffers.put(all)
		at := (*all)[:0]
		for _, part := range out {
			at = append(at, part...)
		}
		out = net.Buffers{at}
	}
	if _, err := out.WriteTo(w); err != nil {
		s.options.Logger.Debug().Err(err).Msg("the dispatcher closed the connection before it got the answers")
	}
}

// bound sets the members' due times, and whether they must not run twice, from the headers of a
// batch that arrived at came.
func bound(requests []frame.Request, header http.Header, came time.Time) error {
	within, err := frame.ParseWithin(header.Get(frame.WithinHeader), len(requests))
	if err != nil {
		return err
	}
	once := header.Get(frame.OnceHeader) == "1"
	for i := range requests {
		requests[i].Once = once
	}
	for i, d := range within {
		if d > 0 {
			requests[i].Due = came.Add(d)
		}
	}
	return nil
}

// serveOne answers a request that comes on its own.
func (s *Server) serveOne(w http.ResponseWriter, r *http.Request) {
	body, failure := s.read(r, s.options.BodyLimit)
	if failure != nil {
		s.metrics.request(failure.Status)
		write(w, *failure)
		return
	}
	defer s.buffers.put(body)
	responses, spent := s.HandleBatch(r.Context(), []frame.Request{{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header, Body: *body,
	}})
	spent.setHeaders(w.Header())
	write(w, responses[0])
}

// setHeaders writes the times and the size into the headers of an answer.
func (s Spent) setHeaders(h http.Header) {
	h[frame.ExecHeader] = []string{strconv.FormatInt(s.Exec.Microseconds(), 10)}
	h[frame.WaitHeader] = []string{strconv.FormatInt(s.Waited.Microseconds(), 10)}
	if s.Elements > 0 {
		h[frame.ElementsHeader] = []string{strconv.FormatInt(s.Elements, 10)}
	}
	if s.Rows > 0 {
		h[frame.RowsHeader] = []string{strconv.FormatFloat(s.Rows, 'f', 2, 64)}
	}
}

func write(w http.ResponseWriter, r frame.Response) {
	h := w.Header()
	for name, values := range r.Header {
		h[name] = values
	}
	h["Content-Length"] = []string{strconv.Itoa(len(r.Body))}
	w.WriteHeader(r.Status)
	w.Write(r.Body)
}

// read reads a body of at most limit bytes into a pooled buffer.
func (s *Server) read(r *http.Request, limit int64) (*[]byte, *frame.Response) {
	if r.ContentLength > limit {
		drain(r, limit)
		failure := tooLarge(r.URL.Path, limit)
		return nil, &failure
	}
	if r.ContentLength >= 0 {
		body := s.buffers.get(int(r.ContentLength))
		if _, err := io.ReadFull(r.Body, *body); err != nil {
			s.buffers.put(body)
			return nil, unreadable(err)
		}
		return body, nil
	}
	var body bytes.Buffer
	n, err := body.ReadFrom(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return nil, unreadable(err)
	}
	if n > limit {
		drain(r, limit)
		failure := tooLarge(r.URL.Path, limit)
		return nil, &failure
	}
	read := body.Bytes()
	return &read, nil
}

func unreadable(err error) *frame.Response {
	failure := protocol.Failure(http.StatusBadRequest, fmt.Errorf("reading the body: %w", err))
	return &failure
}

func tooLarge(path string, limit int64) frame.Response {
	return protocol.FailureAt(path, http.StatusRequestEntityTooLarge,
		fmt.Errorf("the body is larger than the limit of %d bytes", limit))
}

// drain reads and discards the rest of a refused body, at most four times limit. Some
// clients do not read before they have sent everything: they would find a broken
// connection instead of the reason. A client that announces more than four times limit
// gets the answer at once. So does one that sends Expect and waits to be asked for the
// body.
func drain(r *http.Request, limit int64) {
	const factor = 4
	if r.ContentLength > factor*limit || r.Header.Get("Expect") != "" {
		return
	}
	// If reading fails, so does writing the answer.
	_, _ = io.CopyN(io.Discard, r.Body, factor*limit)
}
