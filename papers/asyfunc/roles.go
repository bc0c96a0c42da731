package asyfunc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/instances"
	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/papers/asyfunc/pair"
)

// bodyBatches is the number of batches that a body takes at the same time: its shadow begins the second
// while it computes its own layers of the first.
const bodyBatches = 2

// bodyRole is the role of an instance that may have shadows, "instance body". In a pod it is that of a whole
// model, and a body by its environment: see [instances.Arguments].
func bodyRole() instances.Role {
	return instances.Role{
		Name:  "body",
		Short: "Serve a whole model and split its batches with shadows",
		Long: `body serves a whole model, and splits batches with the shadows that PUT /v1/shadows names.
--concurrency 2 lets them begin the next batch meanwhile. The model is the directory that
"faas-infer instance prepare" printed, or the copy in $FAAS_INFER_COPIES.`,
		Example: `  faas-infer instance body --prepared "$(faas-infer instance prepare --model vgg.onnx --cache .prepared)" \
    --concurrency 2 --name vgg --listen unix:///tmp/vgg.sock`,
		New: func() instances.Instance { return body{} },
		Of: func(spec cluster.InstanceSpec, listen string) (arguments []string, is bool) {
			return []string{"--concurrency", fmt.Sprint(bodyBatches)}, spec.Role == cluster.Body && spec.Paired && instances.OnMachine(listen)
		},
		Assumes: func(f *instances.Flags) bool { return os.Getenv(pair.BodyEnv) != "" && f.InPod() && f.OnCores() },
	}
}

// shadowRole is the role of an instance that holds a part of a model, "instance shadow".
func shadowRole() instances.Role {
	return instances.Role{
		Name:  "shadow",
		Short: "Hold some blocks of a model and compute rows for bodies",
		Long: `shadow holds only some blocks of a prepared model and computes rows for bodies, which connect
to --relay. The model is the directory that "faas-infer instance prepare" printed, or the
copy in $FAAS_INFER_COPIES, which a body makes.`,
		Example: `  faas-infer instance shadow --prepared "$(faas-infer instance prepare --model vgg.onnx --cache .prepared)" \
    --shadow 0:18 --relay unix:///tmp/vgg.relay --listen unix:///tmp/vgg-shadow.sock`,
		New: func() instances.Instance { return new(shadowFlags) },
		Of: func(spec cluster.InstanceSpec, listen string) (arguments []string, is bool) {
			relay := listen + ".relay"
			if !instances.OnMachine(listen) {
				relay = fmt.Sprintf("tcp://:%d", pair.RelayPort)
			}
			return []string{"--shadow", spec.Part, "--relay", relay}, spec.Role == cluster.Shadow
		},
		FromEmpty: true,
	}
}

// check refuses flags with which an instance can be in no pair.
func check(f *instances.Flags) error {
	switch {
	case f.Prepared == "" && !f.InPod():
		return errors.New("--prepared is missing: a pair shares the form that \"faas-infer instance prepare\" printed")
	case f.Device == instances.OnCUDA:
		return errors.New("--device is cuda: a pair computes on CPUs; leave it out")
	}
	return nil
}

// prepare loads the library, and returns the options of a body or a shadow.
func prepare(f *instances.Flags, logger zerolog.Logger) (pair.Options, error) {
	if err := onnxruntime.Load(f.Library); err != nil {
		return pair.Options{}, err
	}
	if os.Getenv("GOMAXPROCS") == "" {
		// While something is computed, another thread exchanges tensors.
		runtime.GOMAXPROCS(max(1, f.Threads) + 1)
	}
	return pair.Options{Threads: f.Threads, Memory: f.EngineMemory(), MaxRows: f.MaxBatch, Dial: f.Identity.Dial, Logger: logger}, nil
}

// body is a body. It has no flags of its own.
type body struct{}

// Flags implements [instances.Instance].
func (body) Flags(*pflag.FlagSet) {}

// Check implements [instances.Instance].
func (body) Check(f *instances.Flags) error { return check(f) }

// Open implements [instances.Instance]. Without a prepared model it uses the copy that the pods of a function on
// this node share, and makes it if it is the first; if there is none, it serves the whole model and refuses shadows.
func (body) Open(ctx context.Context, f *instances.Flags, logger zerolog.Logger) (*instances.Served, error) {
	if f.Prepared != "" {
		return openBody(ctx, f, f.Concurrency, logger)
	}
	f.Share(ctx, logger)
	why := errors.New("there is no prepared copy of the model on its node; its log says why")
	if f.Prepared != "" {
		s, err := openBody(ctx, f, bodyBatches, logger)
		if err == nil {
			return s, nil
		}
		logger.Warn().Err(err).Msg("the instance serves without shadows")
		why = fmt.Errorf("the prepared copy of the model on its node cannot be used: %w", err)
	}
	s, err := f.Whole(ctx, logger)
	if err != nil {
		return nil, err
	}
	s.Handler = pair.Alone(s.Handler, why)
	return s, nil
}

// openBody opens a body that runs so many batches at the same time.
func openBody(ctx context.Context, f *instances.Flags, concurrency int, logger zerolog.Logger) (_ *instances.Served, err error) {
	o, err := prepare(f, logger)
	if err != nil {
		return nil, err
	}
	images, err := f.Images()
	if err != nil {
		return nil, err
	}
	b, err := pair.OpenBody(f.Prepared, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	startup := instance.Startup{Library: onnxruntime.LibraryTime(), Load: b.Load()}
	if b.ExpectedRun() <= f.WarmUp {
		if startup.FirstRun, err = b.Warm(ctx, 1); err != nil {
			return nil, fmt.Errorf("the model's first run: %w", err)
		}
	}
	options := f.ServerOptions(startup, o.Logger)
	options.Images, options.Concurrency, options.Collectors = images, concurrency, []prometheus.Collector{b}
	if err := f.Files.ReadText(f.Model, &options); err != nil {
		return nil, err
	}
	server, err := instance.NewServer(b, options)
	if err != nil {
		return nil, err
	}
	return &instances.Served{Handler: b.Handler(server), Startup: options.Startup, Closer: b}, nil
}

// shadowFlags are a shadow's own flags: the blocks that it holds, as [pair.ParsePhi] reads them, and where bodies
// connect.
type shadowFlags struct{ blocks, relay string }

// Flags implements [instances.Instance].
func (x *shadowFlags) Flags(flags *pflag.FlagSet) {
	flags.StringVar(&x.blocks, "shadow", "", "the blocks of the prepared model to hold, such as 0:18 or 0:18,20:22 (required)")
	flags.StringVar(&x.relay, "relay", "", "where bodies connect: unix:///path or tcp://host:port; with --tls only instances do (required)")
}

// Check implements [instances.Instance].
func (x *shadowFlags) Check(f *instances.Flags) error {
	switch {
	case x.blocks == "":
		return errors.New("--shadow is missing: give the blocks to hold, such as 0:18")
	case x.relay == "":
		return errors.New("--relay is missing: give the address where bodies connect, such as unix:///run/shadow.sock")
	}
	return check(f)
}

// Open implements [instances.Instance]. Without a prepared model the shadow waits for the copy that a body makes.
func (x *shadowFlags) Open(ctx context.Context, f *instances.Flags, logger zerolog.Logger) (_ *instances.Served, err error) {
	if f.Prepared == "" {
		if err := f.AwaitCopy(ctx); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, f.Release())
			}
		}()
	}
	o, err := prepare(f, logger)
	if err != nil {
		return nil, err
	}
	phi, err := pair.ParsePhi(x.blocks)
	if err != nil {
		return nil, fmt.Errorf("--shadow: %w", err)
	}
	l, err := instance.Listen(ctx, x.relay)
	if err != nil {
		return nil, fmt.Errorf("--relay: %w", err)
	}
	if f.Identity != nil && l.Addr().Network() == "tcp" {
		l = f.Identity.ListenTo(l, mutual.InstanceName) // Bodies are instances.
	}
	s, err := pair.OpenShadow(f.Prepared, phi, o)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	stop := s.Start(ctx, l, o.Logger)
	mapped := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "faas_infer_instance_mapped_weights_bytes", Help: "Size of the weights of the blocks that a shadow holds.",
	})
	mapped.Set(float64(s.Weights()))
	registry := prometheus.NewRegistry()
	if err := registry.Register(mapped); err != nil {
		return nil, errors.Join(err, stop())
	}
	mux := http.NewServeMux()
	for _, path := range []string{"/_/health", "/_/ready", "/v2/health/live", "/v2/health/ready"} {
		mux.HandleFunc("GET "+path, func(http.ResponseWriter, *http.Request) {})
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	startup := f.ServerOptions(instance.Startup{Library: onnxruntime.LibraryTime(), Load: s.Load()}, logger).Startup
	return &instances.Served{Handler: mux, Startup: startup, Closer: closing(stop)}, nil
}

// closing is a function that closes.
type closing func() error

// Close implements io.Closer.
func (c closing) Close() error { return c() }
