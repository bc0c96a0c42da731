package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/openfaas/faas-provider/auth"
	"github.com/openfaas/faas-provider/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/report"
	"github.com/faas-infer/faas-infer/scaling"
)

// providerFlags are the flags of everything that runs a provider.
type providerFlags struct {
	listen, state, bundles, prepared, secrets string
	functionSecrets                           string
	policy                                    string
	keepAlive, coldWait, drain, bodyTimeout   time.Duration
	queueLimit                                int
	maxBody, maxHeld                          int64
	cores                                     []int
	noCgroups                                 bool
	logLevel                                  string
}

func (f *providerFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8081", "address of the provider's HTTP interface")
	flags.StringVar(&f.state, "state", "", "directory for functions, profiles, instances and logs (default $XDG_STATE_HOME/faas-infer)")
	flags.StringVar(&f.bundles, "bundles", "", "directory of the bundles that images name (default STATE/bundles)")
	flags.StringVar(&f.prepared, "prepared", "", "directory of prepared models (default: the user's cache)")
	flags.StringVar(&f.secrets, "secret-mount-path", "", "directory with basic-auth-user and basic-auth-password; without it the system routes are open")
	flags.StringVar(&f.functionSecrets, "function-secrets", "", "directory with the functions' secrets, a file NAMESPACE/NAME for each (default STATE/function-secrets)")
	flags.StringVar(&f.policy, "policy", batching.SharedName, "batching policy of functions that name none: one-to-one, infless or shared")
	flags.DurationVar(&f.keepAlive, "keep-alive", coldstart.DefaultKeepAlive, "how long an idle function keeps its instances")
	flags.DurationVar(&f.coldWait, "cold-wait", 30*time.Second, "how long beyond its SLO a request may wait for a first instance")
	flags.IntVar(&f.queueLimit, "queue-limit", 16384, "requests that may wait per function; more get 429")
	flags.Int64Var(&f.maxBody, "max-body", provider.DefaultMaxBody, "largest request body in bytes; a larger one gets 413")
	flags.Int64Var(&f.maxHeld, "max-held", 0, "bytes that the bodies of all requests that wait may take together, more get 503 (default: a quarter of the memory, at most 1 GiB)")
	flags.DurationVar(&f.bodyTimeout, "body-timeout", provider.DefaultBodyTimeout, "how long a client may take to send a request's body; a slower one gets 408")
	flags.DurationVar(&f.drain, "drain", 30*time.Second, "how long requests in flight may take at shutdown")
	flags.IntSliceVar(&f.cores, "cores", nil, "cores that instances may run on (default: all)")
	flags.BoolVar(&f.noCgroups, "no-cgroups", false, "limit threads only, even where there are the rights for cgroups")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
}

// complete fills in the defaults that depend on the environment.
func (f *providerFlags) complete() error {
	if f.state == "" {
		home := os.Getenv("XDG_STATE_HOME")
		if home == "" {
			user, err := os.UserHomeDir()
			if err != nil {
				return fmt.Errorf("where to keep state: %w; give --state", err)
			}
			home = filepath.Join(user, ".local", "state")
		}
		f.state = filepath.Join(home, "faas-infer")
	}
	var err error
	if f.state, err = filepath.Abs(f.state); err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	if f.bundles == "" {
		f.bundles = filepath.Join(f.state, "bundles")
	}
	if f.functionSecrets == "" {
		f.functionSecrets = filepath.Join(f.state, "function-secrets")
	}
	if err := os.MkdirAll(f.bundles, 0o755); err != nil {
		return fmt.Errorf("--bundles: %w", err)
	}
	if f.prepared, err = preparedDir(f.prepared); err != nil {
		return err
	}
	// Instances have another working directory.
	for _, dir := range []*string{&f.bundles, &f.prepared, &f.functionSecrets} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	switch {
	case f.keepAlive < 0 || f.coldWait < 0 || f.drain < 0:
		return errors.New("--keep-alive, --cold-wait and --drain must not be negative")
	case f.queueLimit < 1 || f.maxBody < 1:
		return errors.New("--queue-limit and --max-body must be at least 1")
	case f.bodyTimeout <= 0:
		return errors.New("--body-timeout must be positive")
	case f.maxHeld == 0:
		f.maxHeld = max(defaultMaxHeld(), f.maxBody)
	case f.maxHeld < f.maxBody:
		return fmt.Errorf("--max-held is %d, less than one request may take; it must be at least --max-body, %d", f.maxHeld, f.maxBody)
	}
	return batching.CheckName(f.policy)
}

// defaultMaxHeld is a quarter of the machine's memory, at most what the
// provider's own default is, in bytes.
func defaultMaxHeld() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return provider.DefaultMaxHeld
	}
	return int64(min(uint64(info.Totalram)*uint64(info.Unit)/4, provider.DefaultMaxHeld))
}

// runningProvider is a provider that serves.
type runningProvider struct {
	flags      *providerFlags
	log        zerolog.Logger
	store      *store.Store
	backend    *local.Backend
	controller *control.Controller
	metrics    *metrics.Metrics
	registry   *prometheus.Registry
	provider   *provider.Server
	http       *http.Server
	listener   net.Listener
	stopRun    context.CancelFunc
	ran        chan struct{}
	served     chan error
	// insists ends when the user insists on leaving; release ends that.
	insists context.Context
	release func()
}

// logger writes lines for people on a terminal and JSON elsewhere.
func (f *providerFlags) logger() (zerolog.Logger, error) {
	level, err := zerolog.ParseLevel(f.logLevel)
	if err != nil {
		return zerolog.Nop(), fmt.Errorf("--log-level %q: it is debug, info, warn or error", f.logLevel)
	}
	return zerolog.New(logWriter()).Level(level).With().Timestamp().Logger(), nil
}

// start opens everything, takes over what an earlier provider left running, and
// serves.
func (f *providerFlags) start(ctx context.Context) (_ *runningProvider, err error) {
	if err := f.complete(); err != nil {
		return nil, err
	}
	tuneCollector(2*f.maxHeld + ownMemory)
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
	if s.listener, err = net.Listen("tcp", f.listen); err != nil {
		return nil, fmt.Errorf("--listen: %w; is a provider running already?", err)
	}
	if s.store, err = store.Open(filepath.Join(f.state, "faas-infer.db")); err != nil {
		return nil, err
	}
	s.registry = prometheus.NewRegistry()
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.metrics = metrics.New(s.registry)
	if s.backend, err = local.New(ctx, f.backendOptions(s.log)); err != nil {
		return nil, err
	}
	if s.controller, err = control.New(ctx, f.controlOptions(s)); err != nil {
		return nil, err
	}
	s.provider = provider.New(provider.Options{
		Store: s.store, Controller: s.controller, Metrics: s.metrics, Gatherer: s.registry, Credentials: credentials,
		MaxBody: f.maxBody, MaxHeld: f.maxHeld, BodyTimeout: f.bodyTimeout, Version: types.VersionInfo{Release: "dev", SHA: report.Commit}, Logger: s.log,
	})
	if err := s.provider.Restore(ctx); err != nil {
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
	}
}

// rowsPerRequest is the most rows that one request may have, on every instance
// of a function whatever its batch size.
const rowsPerRequest = 32

// instanceCommand is how the local backend starts an instance: this program's
// own instance subcommand.
func (f *providerFlags) instanceCommand(spec cluster.InstanceSpec, socket string) (argv, env []string) {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	argv = []string{self, "instance", "--prepared", spec.Model, "--name", functionName(spec.Function),
		"--threads", strconv.Itoa(spec.Config.Threads()), "--max-batch", strconv.Itoa(spec.Config.Batch),
		"--memory", strconv.FormatInt(spec.Config.Memory, 10), "--body-limit", strconv.FormatInt(f.maxBody, 10),
		"--max-rows", strconv.Itoa(rowsPerRequest), "--listen", "unix://" + socket}
	for _, name := range []string{"FAAS_INFER_ONNXRUNTIME", "XDG_CACHE_HOME"} {
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return argv, env
}

func (f *providerFlags) controlOptions(s *runningProvider) control.Options {
	return control.Options{
		Backend: s.backend, Scaling: scaling.DefaultSettings(), Cold: coldstart.NewFixed(f.keepAlive),
		Models: &childModels{prepared: f.prepared}, Profiles: s.store, Bundles: bundles(f.bundles), Secrets: functionSecrets(f.functionSecrets), Metrics: s.metrics,
		Logger: s.log, Policy: f.policy, ColdWait: f.coldWait, QueueLimit: f.queueLimit,
		Tick: 100 * time.Millisecond, StopGrace: 10 * time.Second, Engine: engineName(), Machine: report.Machine(),
	}
}

// functionSecrets is the directory of the functions' secrets.
type functionSecrets string

// File is control.Secrets'. The provider has checked both names.
func (root functionSecrets) File(namespace, secret string) (string, error) {
	file := filepath.Join(string(root), namespace, secret)
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("there is no secret %q: put its value into the file %s", secret, file)
	}
	return file, nil
}

// bundles is the directory of bundles.
type bundles string

// Model is control.Bundles'.
func (root bundles) Model(image, model string) (dir, file string, err error) {
	b, err := bundle.Open(string(root), image)
	if err != nil {
		return "", "", err
	}
	if model == "" {
		return b.Dir, b.ModelPath(), nil
	}
	file, err = b.File(model)
	return b.Dir, file, err
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
