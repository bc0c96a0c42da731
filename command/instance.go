package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/forkjoin"
	"github.com/faas-infer/faas-infer/instance/member"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// ownMemory is what an instance takes in addition to its engine's allocations, in bytes:
// the library's data, Go's heap, requests and answers.
const ownMemory = 64 << 20

// instanceFlags are the flags of the instance command.
type instanceFlags struct {
	model     string
	prepared  string
	library   string
	name      string
	listen    []string
	threads   int
	maxBatch  int
	maxRows   int
	bodyLimit int64
	memory    int64
	warmUp    time.Duration
	// warm is the directory of warm Python processes.
	warm string
	// standby is the directory of processes that stand by for a GPU.
	standby string
	// device computes an ONNX model; "auto" is a GPU if the instance has a share of one.
	device string
	sizes  sizeFlags
	// image says how the model expects images, as [model.ParseImageForm] reads it.
	image string
	// labels is the directory with the names of the model's classes, "" for that of the model.
	labels string
	// part is the member of a set whose parts of a cut model are served, -1 for a whole model.
	// plan is the plan's JSON, "" if the parts are prepared.
	part int
	plan string
	// concurrency is the number of batches that a master runs at the same time.
	concurrency int
	// shared is the directory of the model's copy on this node, nil for none.
	shared *copies.Dir
	// body makes a whole model take shadows; shadow is the Φ of a shadow, and relay the address
	// where bodies connect to it.
	body          bool
	shadow, relay string
	// trial makes the instance measure its model.
	trial bool
	// tls is the directory of the instance's certificate, and identity what was read of it.
	tls      string
	identity *mutual.Identity
	// began is when the program began to run.
	began time.Time
}

// newInstanceCommand returns "faas-infer instance", the server inside an instance.
func newInstanceCommand() *cobra.Command {
	var f instanceFlags
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

With --shadow, instance holds only some blocks of a prepared model and computes rows for
bodies, which connect to --relay. With --body, it holds the whole model and splits batches
with the shadows that PUT /v1/shadows names ($FAAS_INFER_BODY: of a copy as above).

With --part, instance is a member of a set that serves a cut model together. Member 0 is
the master: it answers requests, and PUT /v1/workers tells it where the others are. The
others serve their parts of each round at /v2/models/PLAN-ROUND. The parts come from the
directory that "faas-infer instance prepare" printed for a model's file *.plan.json. With
--plan, the member cuts its own parts out of --model.

On SIGTERM it finishes the requests in flight and exits.`,
		Example: `  faas-infer instance --model mnist.onnx --name mnist --listen tcp://127.0.0.1:9000
  curl http://127.0.0.1:9000/v2/models/mnist
  faas-infer instance --model mnist.onnx --prepared "$(faas-infer instance prepare --model mnist.onnx --cache .prepared)" \
    --threads 2 --max-batch 16 --listen unix:///tmp/mnist.sock
  faas-infer instance --prepared "$(faas-infer instance prepare --model vgg.plan.json --cache .prepared)" \
    --part 0 --concurrency 2 --name vgg --listen unix:///tmp/vgg-0.sock`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			// The secrets come first: Enter must run at the very start.
			if err := sandbox.Enter(); err != nil {
				return err
			}
			if taken := f.takeStandby(); taken != nil {
				return exited(taken.Wait(c.Context()))
			}
			return f.run(c)
		},
	}
	f.define(c.Flags())
	c.AddCommand(newPrepareCommand(), newStandByCommand())
	return c
}

// define defines the flags of the instance command.
func (f *instanceFlags) define(flags *pflag.FlagSet) {
	flags.StringVar(&f.model, "model", "", "the ONNX file, or the bundle.yaml of a bundle that Python or a model server runs")
	flags.StringVar(&f.warm, "warm", "", "the directory where warm Python processes listen; a handler's process is forked from one of them")
	flags.StringVar(&f.standby, "standby", "", "the directory where processes stand by for shares of GPUs, and for shadows; one for the instance's share, or an empty one, becomes the instance")
	f.inputFlags(flags)
	flags.StringVar(&f.prepared, "prepared", "", "the directory of the model's prepared form; if that does not fit this host, --model is loaded")
	flags.StringVar(&f.name, "name", "", "the model's name in requests (default: the file's name without .onnx)")
	flags.StringArrayVar(&f.listen, "listen", []string{"tcp://127.0.0.1:0"}, "where to serve: unix:///path or tcp://host:port; may be given more than once")
	flags.StringVar(&f.tls, "tls", "", "directory with tls.crt, tls.key and ca.crt: at TCP addresses, only the provider may send requests, over TLS, and only instances connect to --relay; everybody may ask for health and metrics")
	flags.IntVar(&f.threads, "threads", 1, "number of engine threads, at most the CPUs that the instance may use; an ONNX model on a GPU has one")
	flags.IntVar(&f.maxBatch, "max-batch", 32, "maximum rows in one execution")
	flags.IntVar(&f.maxRows, "max-rows", 0, "maximum rows in one request; more than --max-batch run in parts (default: the larger of --max-batch and 32)")
	flags.Int64Var(&f.bodyLimit, "body-limit", instance.DefaultBodyLimit, "maximum size of a request's body in bytes")
	flags.Int64Var(&f.memory, "memory", 0, "memory that the instance may use in bytes, 0 for no limit; a batch that needs more fails, but the process survives")
	flags.DurationVar(&f.warmUp, "warm-up", 20*time.Millisecond, "run one row before ready, unless the run is known to take longer than this: a request that waits for the instance would also wait for the run")
	flags.StringVar(&f.library, "onnxruntime", "", "the ONNX Runtime library (default $"+onnxruntime.LibraryEnv+", or the one that `make onnxruntime` installs)")
	flags.StringVar(&f.device, "device", automatic, "device for an ONNX model: cpu, cuda, or auto, which is cuda if the instance has a share of a GPU")
	flags.IntVar(&f.part, "part", member.All, "serve a member's parts of a cut model: 0 is the master (-1: a whole model)")
	flags.StringVar(&f.plan, "plan", "", "the plan of a cut model as JSON, for a member that cuts its own parts out of --model")
	flags.IntVar(&f.concurrency, "concurrency", 1, "number of batches that the master of a cut model runs at the same time; each worker computes one part at a time")
	flags.BoolVar(&f.body, "body", false, "take shadows: PUT /v1/shadows says where they are; --concurrency 2 lets them begin the next batch meanwhile")
	flags.BoolVar(&f.trial, "trial", false, "measure the model of a bundle at POST "+profile.TrialPath+", for a provider whose machine lacks the GPU")
	flags.StringVar(&f.shadow, "shadow", "", "hold only these blocks of the prepared model for bodies, such as 0:18 or 0:18,20:22")
	flags.StringVar(&f.relay, "relay", "", "where bodies connect to a shadow: unix:///path or tcp://host:port")
}

// inputFlags adds the flags that say what the model takes, and what its classes are called.
func (f *instanceFlags) inputFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.image, "image", "", "take images (JPEG, PNG, GIF, WebP, BMP, TIFF) and convert them for the model: width and height, such as 224x224, then fit=, colour=, range=, mean= and std=")
	flags.StringVar(&f.labels, "labels", "", "the directory of the file "+bundle.LabelsFile+", which names the model's classes, one on each line (default: that of --model)")
	f.sizes.add(flags)
}

func (f *instanceFlags) run(c *cobra.Command) error {
	f.began = time.Now()
	if f.model == "" && f.prepared == "" {
		return errors.New("--model is missing: give the ONNX file or bundle.yaml to serve")
	}
	if !slices.Contains([]string{automatic, onCPU, onCUDA}, f.device) {
		return fmt.Errorf("--device %q: it must be %s, %s or %s", f.device, automatic, onCPU, onCUDA)
	}
	if f.name == "" {
		f.name = profile.SubjectName(f.model)
	}
	if _, err := f.images(); err != nil {
		return err
	}
	ofSet, err := f.isMember()
	if err != nil {
		return err
	}
	ofPair, err := f.ofPair()
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(c.Context())
	defer end(nil)
	f.tuneRuntime()
	logger := zerolog.New(engine.Log(c.ErrOrStderr())).With().Timestamp().Str("model", f.name).Logger()

	if f.tls != "" {
		if f.identity, err = mutual.Open(f.tls, mutual.InstanceName, logger); err != nil {
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
	open := f.whole
	switch {
	case ofPair && f.prepared == "":
		open = f.pairedByCopy
	case ofPair:
		open = f.paired
	}
	if ofSet {
		logger = logger.With().Int("member", f.part).Logger()
		open = f.member
	}
	s, err := open(ctx, logger)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // It was stopped while it loaded.
	case err != nil:
		return err
	}
	defer s.closer.Close()
	defer f.shared.Close()
	instance.EndWithGPU(ctx, s.closer, end)
	if err := f.measured(s); err != nil {
		return err
	}
	err = instance.Serve(ctx, f.guarded(s.Handler), listeners, f.identity, logger, func() error {
		logger.Info().Dur("library_ms", s.startup.Library).Dur("load_ms", s.startup.Load).
			Dur("first_run_ms", s.startup.FirstRun).Dur("start_ms", time.Since(f.began)).Msg("ready")
		for _, l := range listeners {
			if l.Addr().Network() == "tcp" {
				fmt.Fprintf(c.OutOrStdout(), "%s://%s\n", scheme(f.identity), l.Addr())
			}
		}
		return instance.AnnounceReady()
	})
	if why := context.Cause(ctx); errors.Is(why, instance.ErrBroken) {
		return errors.Join(why, err)
	}
	return err
}

// guarded is a handler within the rules of --tls.
func (f *instanceFlags) guarded(h http.Handler) http.Handler {
	if f.identity == nil {
		return h
	}
	return mutual.Guard(h, f.rules())
}

// rules say who may ask the instance for what with --tls. The workers of a set also answer their
// master, which is an instance.
func (f *instanceFlags) rules() mutual.Rules {
	callers := []string{mutual.ProviderName}
	if f.part > 0 {
		callers = append(callers, mutual.InstanceName)
	}
	return mutual.Rules{
		Open:    []string{"/_/health", "/_/ready", "/metrics"},
		Callers: func(string) []string { return callers },
	}
}

// scheme is how URLs of a server with an identity begin; nil is none.
func scheme(i *mutual.Identity) string {
	if i != nil {
		return "https"
	}
	return "http"
}

// whole opens a whole model and makes what serves it.
func (f *instanceFlags) whole(ctx context.Context, logger zerolog.Logger) (*served, error) {
	images, err := f.images()
	if err != nil {
		return nil, err
	}
	f.share(ctx, logger)
	engine, startup, err := f.load(ctx, logger)
	if err != nil {
		return nil, errors.Join(err, f.shared.Close())
	}
	options := f.serverOptions(startup, logger)
	options.Images = images
	server, err := instance.NewServer(engine, options)
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return &served{server, startup, engine}, nil
}

// images reads how the model expects images, nil if it takes none.
func (f *instanceFlags) images() (*model.ImageForm, error) {
	if f.image == "" {
		return nil, nil
	}
	form, err := model.ParseImageForm(f.image)
	if err != nil {
		return nil, fmt.Errorf("--image is %q: %w, for example %q", f.image, err, model.Example)
	}
	return &form, nil
}

// tuneRuntime sets Go's runtime for a process in which the engine does the work. Go gets
// no more threads than the engine, because further ones would only wake each other. The
// heap is small next to the model, so collections are rare, within the memory limit. A member
// of a set moves tensors through its heap, and has little memory beside its parts: its
// collections are frequent.
func (f *instanceFlags) tuneRuntime() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, f.threads))
	}
	if os.Getenv("GOGC") == "" {
		percent := 400
		if f.part != member.All {
			percent = 50
		}
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" && f.memory > 0 {
		debug.SetMemoryLimit(max(f.memory/4, ownMemory/2))
	}
}

func (f *instanceFlags) open(ctx context.Context) ([]net.Listener, error) {
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
func (f *instanceFlags) load(ctx context.Context, logger zerolog.Logger) (instance.Engine, instance.Startup, error) {
	if kind, ok := f.beside(); ok {
		return f.loadBeside(ctx, kind, logger)
	}
	if f.onGPU() {
		return f.loadOnGPU(ctx, logger)
	}
	if err := onnxruntime.Load(f.library); err != nil {
		return nil, instance.Startup{}, err
	}
	engine, err := f.openEngine(logger)
	if err != nil {
		return nil, instance.Startup{}, err
	}
	startup := instance.Startup{Library: onnxruntime.LibraryTime(), Load: engine.LoadTime()}
	if engine.ExpectedRun() <= f.warmUp {
		if startup.FirstRun, err = engine.Warm(ctx, 1); err != nil {
			engine.Close()
			return nil, instance.Startup{}, fmt.Errorf("the model's first run: %w", err)
		}
	}
	return engine, startup, nil
}

func (f *instanceFlags) openEngine(logger zerolog.Logger) (*onnxruntime.Engine, error) {
	options := onnxruntime.Options{Model: f.model, Prepared: f.prepared, Threads: f.threads}
	options.MemoryLimit = f.engineMemory()
	if f.prepared == "" {
		return onnxruntime.Open(options)
	}
	engine, err := onnxruntime.Open(options)
	if err != nil && f.model != "" && (errors.Is(err, onnxruntime.ErrNotPrepared) || f.shared != nil) {
		logger.Warn().Err(err).Msg("the prepared form cannot be used here; loading --model")
		options.Prepared = ""
		return onnxruntime.Open(options)
	}
	return engine, err
}

func newPrepareCommand() *cobra.Command {
	var model, cache, library, name, request string
	var part int
	var lean, asJSON bool
	var sizes sizeFlags
	var trial profile.TryFlags
	c := &cobra.Command{
		Use:   "prepare --model FILE --cache DIR",
		Short: "Prepare a model for this host, once, and print the directory for --prepared",
		Long: `prepare optimises a model for this host's CPU and writes it in the form that
instances map into memory. It does so once per model, CPU and engine version,
and checks that the outputs stay the same. For the bundle.yaml of a bundle that
Python or a model server runs, it installs the bundle's requirements into a virtual
environment in the user's cache, once, and keeps a copy of the bundle.

For a cut model, whose file ends in .plan.json and has the keys "plan" and "source", it
cuts the source and prepares the parts one after the other, each in a process of its own.`,
		Example: `  faas-infer instance prepare --model mnist.onnx --cache /var/lib/faas-infer/prepared
  faas-infer instance prepare --model vgg.plan.json --part 1 --cache /var/lib/faas-infer/prepared`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if model == "" || cache == "" {
				return errors.New("--model or --cache is missing: give both")
			}
			if forkjoin.IsCutting(model) {
				return prepareParts(c.Context(), c.OutOrStdout(), model, part, cache, library, asJSON)
			}
			if part != member.All {
				return fmt.Errorf("--part is %d: only a cut model (*%s) has parts", part, forkjoin.Suffix)
			}
			if engines.IsManifest(model) {
				return prepareBeside(c.Context(), c.OutOrStdout(), model, cache, asJSON)
			}
			if err := sizes.checkFile(model); err != nil {
				return err
			}
			if request != "" {
				return learn(model, cache, library, name, request, sizes.largest, c.OutOrStdout())
			}
			usual, err := trial.Shapes(model, sizes.usual)
			if err != nil {
				return err
			}
			if err := onnxruntime.Load(library); err != nil {
				return err
			}
			prepared, err := onnxruntime.Prepare(model, cache, onnxruntime.PrepareOptions{Lean: lean, Shapes: usual, MaxRun: trial.MaxRun})
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(struct {
					Dir string `json:"dir"`
					onnxruntime.Prepared
				}{prepared.Dir, prepared})
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), prepared.Dir)
			return err
		},
	}
	flags := c.Flags()
	flags.StringVar(&model, "model", "", "the ONNX file, a bundle.yaml, or a cut model's *.plan.json")
	flags.StringVar(&cache, "cache", "", "the directory for prepared models")
	flags.StringVar(&library, "onnxruntime", "", "the ONNX Runtime library (default $"+onnxruntime.LibraryEnv+")")
	flags.IntVar(&part, "part", member.All, "prepare only the parts of this member of a cut model (-1: of all)")
	sizes.add(c.Flags())
	trial.Flags(c.Flags())
	flags.StringVar(&request, "request", "", "a file with a batch of one request: prepare the model with its sizes, and print these as JSON")
	flags.StringVar(&name, "name", "", "with --request, the name of the function that got it")
	flags.BoolVar(&lean, "lean", false, "take at most three times the model's size of memory: one session at a time")
	flags.BoolVar(&asJSON, "json", false, "print all measurements as JSON")
	return c
}
