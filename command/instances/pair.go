package instances

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/copies"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/pair"
)

// ofPair reports whether the instance is a body or a shadow, and refuses flags that do not fit
// together.
func (f *Flags) ofPair() (bool, error) {
	pod := f.Prepared == "" && f.Model != "" && os.Getenv(copies.Env) != ""
	if os.Getenv(pair.BodyEnv) != "" && pod && f.mayBeBody() {
		f.body, f.Concurrency = true, bodyBatches
	}
	switch {
	case !f.body && f.shadow == "" && f.relay == "":
		return false, nil
	case f.body && f.shadow != "":
		return false, errors.New("--body and --shadow are given: an instance is one of them")
	case f.Prepared == "" && !pod:
		return false, errors.New("--prepared is missing: a pair shares the form that \"faas-infer instance prepare\" printed")
	case f.Device == OnCUDA:
		return false, errors.New("--device is cuda: a pair computes on CPUs; leave it out")
	case f.shadow != "" && f.relay == "":
		return false, errors.New("--relay is missing: give the address where bodies connect, such as unix:///run/shadow.sock")
	case f.shadow == "" && f.relay != "":
		return false, errors.New("--relay is for a shadow: give --shadow, too")
	}
	return true, nil
}

// bodyBatches is the number of batches that a body takes at the same time: its shadow begins the second
// while it computes its own layers of the first.
const bodyBatches = 2

// mayBeBody reports whether the instance serves a whole ONNX model on cores and is no shadow.
func (f *Flags) mayBeBody() bool {
	_, beside := f.beside()
	return f.shadow == "" && !beside && !f.onGPU()
}

// pairedByCopy opens a body or a shadow of the copy of the model that the pods of a function on this node
// share. A body makes the copy if it is the first; without one it serves the whole model and refuses shadows.
func (f *Flags) pairedByCopy(ctx context.Context, logger zerolog.Logger) (*Served, error) {
	if f.shadow != "" {
		if err := f.awaitCopy(ctx); err != nil {
			return nil, err
		}
		s, err := f.paired(ctx, logger)
		if err != nil {
			return nil, errors.Join(err, f.shared.Close())
		}
		return s, nil
	}
	f.share(ctx, logger)
	why := errors.New("there is no prepared copy of the model on its node; its log says why")
	if f.Prepared != "" {
		s, err := f.paired(ctx, logger)
		if err == nil {
			return s, nil
		}
		logger.Warn().Err(err).Msg("the instance serves without shadows")
		why = fmt.Errorf("the prepared copy of the model on its node cannot be used: %w", err)
	}
	s, err := f.whole(ctx, logger)
	if err != nil {
		return nil, err
	}
	s.Handler = pair.Alone(s.Handler, why)
	return s, nil
}

// paired opens a body or a shadow.
func (f *Flags) paired(ctx context.Context, logger zerolog.Logger) (*Served, error) {
	if err := onnxruntime.Load(f.Library); err != nil {
		return nil, err
	}
	if os.Getenv("GOMAXPROCS") == "" {
		// While something is computed, another thread exchanges tensors.
		runtime.GOMAXPROCS(max(1, f.Threads) + 1)
	}
	o := pair.Options{Threads: f.Threads, Memory: f.EngineMemory(), MaxRows: f.MaxBatch, Dial: f.Identity.Dial, Logger: logger}
	if f.body {
		return f.openBody(ctx, o)
	}
	return f.openShadow(ctx, o)
}

func (f *Flags) openBody(ctx context.Context, o pair.Options) (_ *Served, err error) {
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
	options.Images, options.Concurrency, options.Collectors = images, f.Concurrency, []prometheus.Collector{b}
	server, err := instance.NewServer(b, options)
	if err != nil {
		return nil, err
	}
	return &Served{Handler: b.Handler(server), Startup: options.Startup, Closer: b}, nil
}

func (f *Flags) openShadow(ctx context.Context, o pair.Options) (*Served, error) {
	phi, err := pair.ParsePhi(f.shadow)
	if err != nil {
		return nil, fmt.Errorf("--shadow: %w", err)
	}
	l, err := instance.Listen(ctx, f.relay)
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
	startup := instance.Startup{Began: f.began, Library: onnxruntime.LibraryTime(), Load: s.Load()}
	return &Served{Handler: mux, Startup: startup, Closer: closing(stop)}, nil
}

// closing is a function that closes.
type closing func() error

// Close implements io.Closer.
func (c closing) Close() error { return c() }

// EmptySocket is where the empty instance of a node waits, in the directory of standbys: it has the
// library and no model, and adopts any shadow (AsyFunc §3.4).
func EmptySocket(dir string) string { return filepath.Join(dir, "empty.sock") }
