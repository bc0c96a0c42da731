// Package instances is the server inside an instance, "faas-infer instance", and what prepares a model for
// it. It reads flags and joins an engine, a server and listeners; it computes nothing itself. A paper adds
// roles of an instance beside that of a whole model; each is a subcommand.
//
// Begin reading at [Flags.run]; the seam for papers is [Role].
package instances

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/cluster/local/sandbox"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/copies"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// ownMemory is what an instance takes in addition to its engine's allocations, in bytes:
// the library's data, Go's heap, requests and answers.
const ownMemory = 64 << 20

// Flags are the flags that every instance has.
type Flags struct {
	// Model is the ONNX file, the manifest of a bundle, or another file that a role serves. Prepared is
	// the directory of its prepared form, and Library the ONNX Runtime library. Each may be "".
	Model, Prepared, Library string
	// Name is the model's name in requests.
	Name   string
	listen []string
	// Threads is the number of computing threads, and MaxBatch the maximum rows in one execution.
	Threads, MaxBatch int
	maxRows           int
	bodyLimit         int64
	memory            int64
	// WarmUp is the longest first run before the instance is ready.
	WarmUp time.Duration
	// warm is the directory of warm Python processes.
	warm string
	// standby is the directory of processes that stand by for a GPU.
	standby string
	// Device computes an ONNX model; "auto" is a GPU if the instance has a share of one.
	Device string
	sizes  profile.SizeFlags
	// Image says how the model expects images, as [model.ParseImageForm] reads it.
	Image string
	// Files say where the bundle is, and how long its texts may be.
	Files bundleFlags
	// Concurrency is the number of batches that the instance runs at the same time.
	Concurrency int
	// shared is the directory of the model's copy on this node, nil for none.
	shared *copies.Dir
	// node holds the content that the node's agent has, nil for none.
	node *os.File
	// trial makes the instance measure its model.
	trial bool
	// tls is the directory of the instance's certificate, and Identity what was read of it, nil for none.
	tls      string
	Identity *mutual.Identity
	// began is when the program began to run.
	began time.Time
}

// Served is an open instance.
type Served struct {
	// Handler answers requests.
	http.Handler
	// Startup says how long the parts of the start took.
	Startup instance.Startup
	// Closer frees the engine.
	io.Closer
	// Callers are the names in certificates that may send requests beside the provider's, with --tls.
	Callers []string
	// Logger is that of a role which says more of itself, nil for the one that it was opened with.
	Logger *zerolog.Logger
}

// NewCommand returns "faas-infer instance", with the roles that are registered.
func NewCommand() *cobra.Command {
	var f Flags
	var plain []plainRole
	c := &cobra.Command{
		Use:   "instance --model FILE --listen ADDRESS",
		Short: "Serve one model: the process that the provider starts for each instance",
		Long: `instance loads one ONNX model and answers inference requests for it, one by one
and in batches: POST /, the Open Inference Protocol v2, TensorFlow Serving's
predict API and the provider's batch endpoint.

--model may also be a bundle's manifest, bundle.yaml. Then another process beside the
instance runs the bundle:
  - Python, with the bundle's handler;
  - TensorFlow, with the bundle's SavedModel or Keras file;
  - a model server (Triton, TensorFlow Serving or MLServer), which gets batches of
    --max-batch and does not wait for more;
  - a program that works before and after the bundle's ONNX model.

With --prepared, the directory that "faas-infer instance prepare" printed, instance
maps a model that was optimised for this host before. That takes milliseconds, and all
instances share the weights.

Without it, instance looks for such a copy in the directory $FAAS_INFER_COPIES, which the
pods of one function on a node of a cluster share. The first one makes the copy.

On SIGTERM it finishes the requests in flight and exits.`,
		Example: `  faas-infer instance --model mnist.onnx --name mnist --listen tcp://127.0.0.1:9000
  curl http://127.0.0.1:9000/v2/models/mnist
  faas-infer instance --model mnist.onnx --prepared "$(faas-infer instance prepare --model mnist.onnx --cache .prepared)" \
    --threads 2 --max-batch 16 --listen unix:///tmp/mnist.sock`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.enter(c, stated(plain), false) },
	}
	f.define(c.Flags())
	f.wholeFlags(c.Flags())
	c.AddCommand(newPrepareCommand(), newStandByCommand())
	for _, r := range roles {
		c.AddCommand(r.command())
		p := plainRole{r.New(), pflag.NewFlagSet(r.Name, pflag.ContinueOnError)}
		p.as.Flags(p.own)
		p.own.VisitAll(func(flag *pflag.Flag) { flag.Hidden = true })
		c.Flags().AddFlagSet(p.own)
		plain = append(plain, p)
	}
	return c
}

// plainRole is a role that "instance" has when one of its own flags is given, as in pods: see [Arguments].
type plainRole struct {
	as  Instance
	own *pflag.FlagSet
}

// stated returns the role one of whose flags was given, nil if none was.
func stated(roles []plainRole) (as Instance) {
	for _, r := range roles {
		r.own.VisitAll(func(flag *pflag.Flag) {
			if flag.Changed {
				as = r.as
			}
		})
	}
	return as
}

// wholeFlags adds the flags of an instance of a whole model.
func (f *Flags) wholeFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&f.trial, "trial", false, "measure the model of a bundle at POST "+profile.TrialPath+", for a provider whose machine lacks the GPU")
}

// define defines the flags that every instance has.
func (f *Flags) define(flags *pflag.FlagSet) {
	flags.StringVar(&f.Model, "model", "", "the ONNX file, or the bundle.yaml of a bundle that Python or a model server runs")
	flags.StringVar(&f.warm, "warm", "", "the directory where warm Python processes listen; a handler's process is forked from one of them")
	flags.StringVar(&f.standby, "standby", "", "the directory where processes stand by for shares of GPUs, or empty; one for the instance's share, or an empty one, becomes the instance")
	f.inputFlags(flags)
	flags.StringVar(&f.Prepared, "prepared", "", "the directory of the model's prepared form; if that does not fit this host, --model is loaded")
	flags.StringVar(&f.Name, "name", "", "the model's name in requests (default: the file's name without .onnx)")
	flags.StringArrayVar(&f.listen, "listen", []string{"tcp://127.0.0.1:0"}, "where to serve: unix:///path or tcp://host:port; may be given more than once")
	flags.StringVar(&f.tls, "tls", "", "directory with tls.crt, tls.key and ca.crt: at TCP addresses, only the provider may send requests, over TLS; everybody may ask for health and metrics")
	flags.IntVar(&f.Threads, "threads", 1, "number of engine threads, at most the CPUs that the instance may use; an ONNX model on a GPU has one")
	flags.IntVar(&f.MaxBatch, "max-batch", 32, "maximum rows in one execution")
	flags.IntVar(&f.maxRows, "max-rows", 0, "maximum rows in one request; more than --max-batch run in parts (default: the larger of --max-batch and 32)")
	flags.Int64Var(&f.bodyLimit, "body-limit", instance.DefaultBodyLimit, "maximum size of a request's body in bytes")
	flags.Int64Var(&f.memory, "memory", 0, "memory that the instance may use in bytes, 0 for no limit; a batch that needs more fails, but the process survives")
	flags.DurationVar(&f.WarmUp, "warm-up", 20*time.Millisecond, "run one row before ready, unless the run is known to take longer than this: a request that waits for the instance would also wait for the run")
	flags.StringVar(&f.Library, "onnxruntime", "", "the ONNX Runtime library (default $"+onnxruntime.LibraryEnv+", or the one that faas-infer setup installs)")
	flags.StringVar(&f.Device, "device", automatic, "device for an ONNX model: cpu, cuda, or auto, which is cuda if the instance has a share of a GPU")
	flags.IntVar(&f.Concurrency, "concurrency", 1, "number of batches that run at the same time; an instance of a whole model runs one")
}

// inputFlags adds the flags that say what the model takes, and what its classes are called.
func (f *Flags) inputFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.Image, "image", "", "take images (JPEG, PNG, GIF, WebP, BMP, TIFF) and convert them for the model: width and height, such as 224x224, then fit=, colour=, range=, mean= and std=")
	f.Files.add(flags)
	f.sizes.Add(flags)
}

// enter is run in the environment of an instance. A process that stands by may become it: an empty one if
// fromEmpty is true.
func (f *Flags) enter(c *cobra.Command, as Instance, fromEmpty bool) error {
	// The secrets come first: Enter must run at the very start.
	if err := sandbox.Enter(); err != nil {
		return err
	}
	if as == nil || fromEmpty {
		if taken := f.takeStandby(fromEmpty); taken != nil {
			return exited(taken.Wait(c.Context()))
		}
	}
	return f.run(c, as)
}

// run serves until the command ends: a whole model, or what a role opens if it is not nil.
func (f *Flags) run(c *cobra.Command, as Instance) error {
	f.began = time.Now()
	if f.Model == "" && f.Prepared == "" {
		return errors.New("--model is missing: give the ONNX file or bundle.yaml to serve")
	}
	if !slices.Contains([]string{automatic, onCPU, OnCUDA}, f.Device) {
		return fmt.Errorf("--device %q: it must be %s, %s or %s", f.Device, automatic, onCPU, OnCUDA)
	}
	if f.Name == "" {
		f.Name = profile.SubjectName(f.Model)
	}
	if _, err := f.Images(); err != nil {
		return err
	}
	if f.Concurrency < 1 {
		return fmt.Errorf("--concurrency is %d: give 1 or more", f.Concurrency)
	}
	open, err := f.opener(as)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(c.Context())
	defer end(nil)
	f.tuneRuntime()
	logger := zerolog.New(engine.Log(c.ErrOrStderr())).With().Timestamp().Str("model", f.Name).Logger()

	if f.tls != "" {
		if f.Identity, err = mutual.Open(f.tls, mutual.InstanceName, logger); err != nil {
			return fmt.Errorf("--tls %s: %w", f.tls, err)
		}
	}
	listeners, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	if err := f.receive(ctx, listeners, logger); err != nil {
		if ctx.Err() != nil {
			return nil // It was stopped while it waited.
		}
		return err
	}
	s, err := open(ctx, logger)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // It was stopped while it loaded.
	case err != nil:
		return err
	}
	defer s.Closer.Close()
	defer f.shared.Close()
	if s.Logger != nil {
		logger = *s.Logger
	}
	instance.EndWithGPU(ctx, s.Closer, end)
	if err := f.measured(s); err != nil {
		return err
	}
	err = instance.Serve(ctx, Guarded(f.Identity, s.Handler, s.Callers...), listeners, f.Identity, logger, func() error {
		logger.Info().Dur("library_ms", s.Startup.Library).Dur("load_ms", s.Startup.Load).
			Dur("first_run_ms", s.Startup.FirstRun).Dur("start_ms", time.Since(f.began)).Msg("ready")
		for _, l := range listeners {
			if l.Addr().Network() == "tcp" {
				fmt.Fprintf(c.OutOrStdout(), "%s://%s\n", f.Identity.Scheme(), l.Addr())
			}
		}
		return instance.AnnounceReady()
	})
	if why := context.Cause(ctx); errors.Is(why, instance.ErrBroken) {
		return errors.Join(why, err)
	}
	return err
}

// opener refuses flags that do not fit together, and returns what opens the instance.
func (f *Flags) opener(as Instance) (func(context.Context, zerolog.Logger) (*Served, error), error) {
	for _, r := range roles {
		if as == nil && r.Assumes != nil && r.Assumes(f) {
			as = r.New()
		}
	}
	if as != nil {
		return func(ctx context.Context, logger zerolog.Logger) (*Served, error) { return as.Open(ctx, f, logger) }, as.Check(f)
	}
	for _, r := range roles {
		if r.Takes != nil && r.Takes(f) {
			return nil, fmt.Errorf("%s is not for an instance of a whole model: serve it with \"faas-infer instance %s\"", cmp.Or(f.Prepared, f.Model), r.Name)
		}
	}
	if f.Concurrency > 1 {
		return nil, fmt.Errorf("--concurrency is %d: an instance of a whole model runs one batch at a time", f.Concurrency)
	}
	return f.Whole, nil
}

// Guarded is a handler to which only the provider may send requests, and instances with the certificates of
// callers. All may ask for health and metrics. Without an identity, nil, it is the handler itself.
func Guarded(identity *mutual.Identity, h http.Handler, callers ...string) http.Handler {
	if identity == nil {
		return h
	}
	return mutual.Guard(h, rules(callers))
}

func rules(callers []string) mutual.Rules {
	callers = append([]string{mutual.ProviderName}, callers...)
	return mutual.Rules{
		Open:    []string{"/_/health", "/_/ready", "/metrics"},
		Callers: func(string) []string { return callers },
	}
}

// Whole opens a whole model and makes what serves it.
func (f *Flags) Whole(ctx context.Context, logger zerolog.Logger) (*Served, error) {
	images, err := f.Images()
	if err != nil {
		return nil, err
	}
	setText, err := f.Files.beginText(f.Model)
	if err != nil {
		return nil, err
	}
	f.Share(ctx, logger)
	engine, startup, err := f.load(ctx, logger)
	if err != nil {
		return nil, errors.Join(err, f.shared.Close())
	}
	options := f.ServerOptions(startup, logger)
	options.Images = images
	setText(&options)
	server, err := instance.NewServer(engine, options)
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return &Served{Handler: server, Startup: startup, Closer: engine}, nil
}

// Images reads how the model expects images, nil if it takes none.
func (f *Flags) Images() (*model.ImageForm, error) {
	if f.Image == "" {
		return nil, nil
	}
	form, err := model.ParseImageForm(f.Image)
	if err != nil {
		return nil, fmt.Errorf("--image is %q: %w, for example %q", f.Image, err, model.Example)
	}
	return &form, nil
}

// tuneRuntime sets Go's runtime for a process in which the engine does the work. Go gets
// no more threads than the engine, because further ones would only wake each other. The
// heap is small next to the model, so collections are rare, within the memory limit.
func (f *Flags) tuneRuntime() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, f.Threads))
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") == "" && f.memory > 0 {
		debug.SetMemoryLimit(max(f.memory/4, ownMemory/2))
	}
}

func (f *Flags) open(ctx context.Context) ([]net.Listener, error) {
	var listeners []net.Listener
	for _, address := range f.listen {
		l, err := instance.Listen(ctx, address)
		if err != nil {
			for _, open := range listeners {
				open.Close()
			}
			return nil, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// load loads the library and the model. It also runs a quick model once, so the first
// request finds a warm engine. For a slow model, the extra time of the first run is small
// next to the run itself.
func (f *Flags) load(ctx context.Context, logger zerolog.Logger) (instance.Engine, instance.Startup, error) {
	if kind, ok := f.beside(); ok {
		return f.loadBeside(ctx, kind, logger)
	}
	if f.onGPU() {
		return f.loadOnGPU(ctx, logger)
	}
	if err := onnxruntime.Load(f.Library); err != nil {
		return nil, instance.Startup{}, err
	}
	engine, err := f.openEngine(logger)
	if err != nil {
		return nil, instance.Startup{}, err
	}
	startup := instance.Startup{Library: onnxruntime.LibraryTime(), Load: engine.LoadTime()}
	if engine.ExpectedRun() <= f.WarmUp {
		if startup.FirstRun, err = engine.Warm(ctx, 1); err != nil {
			engine.Close()
			return nil, instance.Startup{}, fmt.Errorf("the model's first run: %w", err)
		}
	}
	return engine, startup, nil
}

func (f *Flags) openEngine(logger zerolog.Logger) (*onnxruntime.Engine, error) {
	options := onnxruntime.Options{Model: f.Model, Prepared: f.Prepared, Threads: f.Threads}
	options.MemoryLimit = f.EngineMemory()
	if f.Prepared == "" {
		return onnxruntime.Open(options)
	}
	engine, err := onnxruntime.Open(options)
	if err != nil && f.Model != "" && (errors.Is(err, onnxruntime.ErrNotPrepared) || f.shared != nil) {
		logger.Warn().Err(err).Msg("the prepared form cannot be used here; loading --model")
		options.Prepared = ""
		return onnxruntime.Open(options)
	}
	return engine, err
}

// ServerOptions are those of an instance's server that every kind of instance has.
func (f *Flags) ServerOptions(startup instance.Startup, logger zerolog.Logger) instance.Options {
	startup.Began = f.began
	var labels []string
	if dir := f.Files.dir(f.Model); dir != "" {
		var err error
		if labels, err = bundle.ReadLabels(dir); err != nil {
			logger.Warn().Err(err).Msg("classes have no names in answers")
		}
	}
	return instance.Options{
		Name: f.Name, MaxBatch: f.MaxBatch, MaxRows: f.maxRows, MaxShapes: f.sizes.Largest, BodyLimit: f.bodyLimit,
		Threads: f.Threads, Startup: startup, Logger: logger, Labels: labels,
	}
}
