package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/openfaas/faas-provider/auth"
	"github.com/openfaas/faas-provider/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster/local"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/async"
	"github.com/faas-infer/faas-infer/provider/build"
	"github.com/faas-infer/faas-infer/provider/kinds"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/port"
	"github.com/faas-infer/faas-infer/provider/secret"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/report"
)

// runningProvider is a provider that serves.
type runningProvider struct {
	flags      *providerFlags
	log        zerolog.Logger
	store      *store.Store
	secrets    *secret.Store
	backend    *local.Backend
	controller *kinds.Controller
	metrics    *metrics.Metrics
	registry   *prometheus.Registry
	provider   *provider.Server
	async      *async.Queue
	http       *http.Server
	listener   net.Listener
	stopRun    context.CancelFunc
	ran        chan struct{}
	served     chan error
	// insists ends when the user insists on leaving; release ends that.
	insists context.Context
	release func()
}

// start opens everything, takes over what an earlier provider left running, and
// serves.
func (f *providerFlags) start(ctx context.Context) (_ *runningProvider, err error) {
	if err := f.complete(); err != nil {
		return nil, err
	}
	tuneCollector(2*f.maxHeld + queueMemory + ownMemory)
	s := &runningProvider{flags: f}
	s.insists, s.release = insistence()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeParts())
		}
	}()
	if s.log, err = f.logger(); err != nil {
		return nil, err
	}
	credentials, err := f.credentials()
	if err != nil {
		return nil, err
	}
	if credentials == nil {
		s.log.Warn().Msg("whoever reaches the provider can deploy, functions that share this machine's network too: give --secret-mount-path a directory with basic-auth-user and basic-auth-password")
	}
	if s.listener, err = port.Listen(f.listen); err != nil {
		return nil, fmt.Errorf("--listen: %w; is a provider running already? Stop it, or give --listen another address", err)
	}
	if s.store, err = store.Open(filepath.Join(f.state, "faas-infer.db")); err != nil {
		return nil, err
	}
	if s.secrets, err = secret.Open(f.functionSecrets); err != nil {
		return nil, err
	}
	f.builtinBundles(s.log)
	s.registry = prometheus.NewRegistry()
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.metrics = metrics.New(s.registry)
	if s.backend, err = local.New(ctx, f.backendOptions(s.log)); err != nil {
		return nil, err
	}
	if s.controller, err = f.control(ctx, s); err != nil {
		return nil, err
	}
	builder, err := f.builder(s)
	if err != nil {
		return nil, err
	}
	s.provider = provider.New(provider.Options{
		Store: s.store, Controller: s.controller, Metrics: s.metrics, Gatherer: s.registry, Credentials: credentials,
		MaxBody: f.maxBody, MaxHeld: f.maxHeld, BodyTimeout: f.bodyTimeout, Version: types.VersionInfo{Release: "dev", SHA: cmp.Or(report.Commit, "unknown")}, Logger: s.log,
		Secrets: s.secrets, Logs: functionLogs{files: s.backend.Logs(), log: s.log}, Nodes: s.backend.Nodes, CORSOrigins: f.corsOrigins,
		Build: builder, PublicKey: http.HandlerFunc(build.PublicKey),
	})
	if s.async, err = f.openAsync(ctx, s); err != nil {
		return nil, err
	}
	s.provider.UseAsync(s.async)
	if err := s.provider.Restore(ctx); err != nil {
		return nil, err
	}
	if err := s.async.Start(); err != nil {
		return nil, err
	}
	s.run()
	return s, nil
}

// tuneCollector makes Go's garbage collector run a fifth as often: the provider
// keeps a few MiB, so that at thousands of requests per second it would collect
// tens of times a second. Bodies that wait are no such few MiB: above limit bytes
// it runs as often as it must, 0 for no limit.
func tuneCollector(limit int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(500)
	}
	if os.Getenv("GOMEMLIMIT") == "" && limit > 0 {
		debug.SetMemoryLimit(limit)
	}
}

func (f *providerFlags) credentials() (*auth.BasicAuthCredentials, error) {
	if f.secrets == "" {
		return nil, nil
	}
	return provider.Credentials(f.secrets)
}

func (f *providerFlags) backendOptions(log zerolog.Logger) local.Options {
	return local.Options{
		Dir: filepath.Join(f.state, "local"), Command: f.instanceCommand, Cores: f.cores, PinCPUs: true, NoCgroups: f.noCgroups, Logger: log,
		Hide: f.hidden(),
	}
}

// run starts the control loop and the HTTP server.
func (s *runningProvider) run() {
	ctx, cancel := context.WithCancel(context.Background())
	s.stopRun, s.ran, s.served = cancel, make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(s.ran)
		s.controller.Run(ctx)
	}()
	s.http = &http.Server{Handler: s.provider.Handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() { s.served <- s.http.Serve(s.listener) }()
}
