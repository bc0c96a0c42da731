package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/gpu/device"
	"github.com/faas-infer/faas-infer/model/source/origin"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/access"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/build"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/pool"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Names of cold-start policies: the default, and the one with a fixed keep-alive.
const (
	defaultColdStart = systems.Default
	fixed            = "fixed"
)

// OneOf joins names for a sentence: "a, b or c".
func OneOf(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// ProviderFlags are the flags of every command that runs a provider. Register, or
// register, sets their defaults.
type ProviderFlags struct {
	listen, state, bundles, prepared, secrets string
	functionSecrets, payloadSecret            string
	maxBuild                                  int64
	corsOrigins, hosts                        []string
	behindGateway                             bool
	nats                                      asyncFlags
	traces                                    traceFlags
	policy, coldStart, scheduler              string
	keepAlive, coldWait, drain                time.Duration
	bodyTimeout, answerTimeout                time.Duration
	queueLimit                                int
	maxBody, maxHeld                          int64
	maxConnections                            int
	cores                                     []int
	gpus                                      []string
	standBy                                   bool
	mps                                       string
	noCgroups, measure, park                  bool
	modelSources                              []string
	modelsLimit                               string
	// Downloads configures the models that functions name by URIs. A platform sets its Claims before Serve.
	Downloads bundles.DownloadOptions
	logLevel  string
	infless   inflessFlags
	// accessKeys is a file with the keys of those who may call functions, "" for none.
	accessKeys string
	// tls is the directory of the provider's certificate, "" for none.
	tls string
	// doors are further addresses, acme says from where their certificates come without tls.
	doors doorFlags
	acme  acmeFlags
	// own measures the provider's own use of the machine.
	own ownUse
	// given reports whether a flag was set.
	given func(name string) bool
}

// register adds the flags of a provider on this machine.
func (f *ProviderFlags) register(flags *pflag.FlagSet) {
	f.Register(flags)
	flags.StringVar(&f.bundles, "bundles", "", "directory of the bundles that images name (default STATE/bundles)")
	flags.StringVar(&f.functionSecrets, "function-secrets", "", "directory with the functions' secrets, one file NAMESPACE/NAME each (default STATE/function-secrets)")
	flags.IntSliceVar(&f.cores, "cores", nil, "cores that instances may run on (default: all)")
	flags.StringSliceVar(&f.gpus, "gpus", []string{allGPUs}, "GPUs that instances may use: auto for all that there are, none, or indexes and UUIDs of GPUs and MIG instances")
	flags.StringVar(&f.mps, "mps-control", device.MPSProgram, "the program that shares a GPU between instances; without it each instance gets a whole GPU")
	flags.BoolVar(&f.standBy, "gpu-standby", true, "keep one process ready for each shared GPU, with the share that was used last: it becomes the next instance")
	flags.BoolVar(&f.noCgroups, "no-cgroups", false, "limit only the number of threads, even with the rights for cgroups")
}

// Register adds the flags of a provider on any platform.
func (f *ProviderFlags) Register(flags *pflag.FlagSet) {
	f.given = flags.Changed
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8080", "address of the provider's HTTP interface")
	flags.BoolVar(&f.behindGateway, "behind-gateway", false, "a stock gateway in front of the provider has the metrics gateway_…, so leave them out")
	flags.StringSliceVar(&f.modelSources, "model-sources", nil, "hosts (minio.example.com, .example.com), networks (10.0.0.0/8) and directories (/srv/models) from which models may come by URI, beside hosts with public addresses")
	flags.StringVar(&f.modelsLimit, "models-size", "20Gi", "maximum size of the models that were downloaded by URI; beyond it, those that no function uses are removed, least recently used first")
	flags.StringVar(&f.state, "state", "", "directory for functions, profiles, instances and logs (default $XDG_STATE_HOME/faas-infer)")
	flags.StringVar(&f.prepared, "prepared", "", "directory of prepared models (default: the user's cache)")
	flags.StringVar(&f.secrets, "secret-mount-path", "", "directory with basic-auth-user and basic-auth-password; without it the system routes need no credentials")
	flags.StringVar(&f.accessKeys, "access-keys", "", "file with the keys of those who may call functions: API keys, one a line, or the public keys of tokens (JWKS or PEM); it holds for functions that have no com.openfaas.infer.access, nor their namespaces. It is read again when it changes; without it anybody may call those")
	flags.StringVar(&f.payloadSecret, "payload-secret", "", "file with the secret that signs builds of faas-cli's --remote-builder; without it the provider refuses builds")
	flags.Int64Var(&f.maxBuild, "max-build", build.DefaultMaxBytes, "maximum size of a build's context in bytes; a larger one gets 413")
	flags.StringSliceVar(&f.corsOrigins, "cors-origin", nil, "origins, such as https://console.example.com, whose pages may use the system routes from a browser")
	flags.StringSliceVar(&f.hosts, "allow-host", nil, "names, such as provider.example.com, by which clients may address the system routes of a provider without credentials; IP addresses, localhost and the name in --listen are always allowed, and * allows all")
	flags.StringVar(&f.policy, "policy", batching.SharedName, "batching policy of functions without one of their own: "+OneOf(batching.Names()))
	flags.StringVar(&f.coldStart, "cold-start", defaultColdStart, "how long an idle function keeps its instances, and whether it gets one ahead of time: "+OneOf(coldstart.Names())+"; fixed uses --keep-alive, the others learn from idle times (default "+defaultColdStart+", or fixed with --keep-alive)")
	flags.Lookup("cold-start").DefValue = ""
	flags.DurationVar(&f.keepAlive, "keep-alive", coldstart.DefaultKeepAlive, "how long an idle function keeps its instances with --cold-start fixed")
	flags.BoolVar(&f.park, "park", true, "after two seconds without a request, give back the CPU and GPU share of a function's instances and keep its model in memory; only with --cold-start "+defaultColdStart)
	flags.StringVar(&f.scheduler, "scheduler", systems.Schedulers()[0], "how to choose the instances' configs and nodes: "+systems.AboutSchedulers())
	f.infless.register(flags)
	flags.DurationVar(&f.coldWait, "cold-wait", 30*time.Second, "how long a request may wait for a first instance, in addition to its SLO if it has one")
	flags.IntVar(&f.queueLimit, "queue-limit", 16384, "maximum number of waiting requests per function; further ones get 429")
	flags.Int64Var(&f.maxBody, "max-body", provider.DefaultMaxBody, "maximum size of a request body for models and of asynchronous requests, in bytes; larger ones get 413")
	flags.Int64Var(&f.maxHeld, "max-held", 0, "memory in bytes that all requests to models may hold together, with their bodies, headers and answers; requests beyond it get 503, and requests of a client or a function that holds more than is free get 429 (default: a quarter of the memory, at most 1 GiB)")
	flags.IntVar(&f.maxConnections, "max-connections", 0, "maximum number of open connections of clients; beyond it the longest idle ones are closed (default: half of the descriptors that the process may open, at most one for every 64 KiB of --max-held)")
	flags.DurationVar(&f.bodyTimeout, "body-timeout", provider.DefaultBodyTimeout, "time in which a client must send a request's body; for ordinary functions, whose bodies stream, the longest gap in the body. Slower clients get 408")
	flags.DurationVar(&f.answerTimeout, "answer-timeout", 30*time.Second, "how long a client may take nothing of an answer that waits for it; then its connection is closed. Answers that stream may pause for longer")
	flags.DurationVar(&f.drain, "drain", 30*time.Second, "how long requests in flight may take at shutdown; the rest of it takes at most "+stopping.String()+" more")
	flags.BoolVar(&f.measure, "measure", false, "measure each model as a whole when it is deployed, instead of predicting its times from its operators")
	f.nats.register(flags)
	f.traces.register(flags)
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
}

// complete fills in the defaults that depend on the environment, and refuses values that make no sense. It
// changes nothing on the disk.
func (f *ProviderFlags) complete() error {
	if f.state == "" {
		dir, err := stateDir()
		if err != nil {
			return fmt.Errorf("--state is missing, and there is no default: %w", err)
		}
		f.state = dir
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
	if f.prepared, err = profile.PreparedDir(f.prepared); err != nil {
		return err
	}
	if err := f.acme.check(f.tls); err != nil {
		return err
	}
	if err := checkAccessKeys(f.accessKeys); err != nil {
		return err
	}
	if err := checkCores(f.cores); err != nil {
		return err
	}
	f.Downloads.Dir = filepath.Join(f.state, "models")
	if f.Downloads.MaxBytes, err = annotation.ParseMemory(cmp.Or(f.modelsLimit, "20Gi")); err != nil {
		return fmt.Errorf("--models-size %q: it must be %w", f.modelsLimit, err)
	}
	if f.Downloads.Sources, err = origin.ParseSources(slices.Concat(
		f.modelSources, slices.Sorted(maps.Values(f.Downloads.Claims)))); err != nil {
		return fmt.Errorf("--model-sources %w", err)
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
	case slices.ContainsFunc(f.corsOrigins, notOrigin):
		return fmt.Errorf("--cors-origin %q: it must be an origin without a path or a slash at its end, such as https://console.example.com, or * for all", f.corsOrigins[slices.IndexFunc(f.corsOrigins, notOrigin)])
	case slices.ContainsFunc(f.hosts, notHost):
		return fmt.Errorf("--allow-host %q: it must be a host name such as provider.example.com, without scheme and port, or * for all", f.hosts[slices.IndexFunc(f.hosts, notHost)])
	case f.bodyTimeout <= 0 || f.answerTimeout <= 0:
		return errors.New("--body-timeout and --answer-timeout must be positive")
	case f.nats.concurrency < 0 || f.nats.results < 0 || f.nats.resultCount < 0 || f.nats.callbackTimeout < 0:
		return errors.New("--async-concurrency, --async-results, --async-results-count and --callback-timeout must not be negative")
	case f.traces.sample < 0 || f.traces.sample > 1:
		return fmt.Errorf("--trace-sample is %v: it must be from 0 to 1", f.traces.sample)
	case f.maxConnections < 0:
		return errors.New("--max-connections must be at least 1, or 0 for the default")
	case f.maxHeld == 0:
		f.maxHeld = max(defaultMaxHeld(), f.maxBody)
	case f.maxHeld < f.maxBody:
		return fmt.Errorf("--max-held is %d: it must be at least --max-body, %d", f.maxHeld, f.maxBody)
	}
	return f.checkNames()
}

// checkCores refuses cores on which this process may not run: no instance would start.
func checkCores(cores []int) error {
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		return fmt.Errorf("--cores: the cores of this process: %w", err)
	}
	for _, core := range cores {
		if core < 0 || !own.IsSet(core) {
			return fmt.Errorf("--cores %d: this process may run on %d cores, and this is none of them; taskset -cp $$ lists them", core, own.Count())
		}
	}
	return nil
}

// checkAccessKeys refuses a file of keys with which nobody could call a function. "" is none.
func checkAccessKeys(file string) error {
	if file == "" {
		return nil
	}
	text, err := provider.ReadKeysFile(file)
	if err == nil {
		_, err = access.Parse(text)
	}
	if err != nil {
		return fmt.Errorf("--access-keys %s: %w", file, err)
	}
	return nil
}

// checkNames sets the defaults of the policies' names and checks the names.
func (f *ProviderFlags) checkNames() error {
	kept := f.given != nil && f.given("keep-alive")
	if chosen := f.given != nil && f.given("cold-start"); !chosen && kept {
		f.coldStart = fixed
	}
	f.coldStart = cmp.Or(f.coldStart, defaultColdStart)
	f.scheduler = cmp.Or(f.scheduler, systems.Schedulers()[0])
	if _, err := f.system(); err != nil {
		return fmt.Errorf("--scheduler %w", err)
	}
	if _, err := coldstart.New(f.coldStart, coldstart.Options{KeepAlive: f.keepAlive}); err != nil {
		return fmt.Errorf("--cold-start %q: it must be %s", f.coldStart, OneOf(coldstart.Names()))
	}
	if f.coldStart != fixed && kept {
		return fmt.Errorf("--keep-alive is for --cold-start fixed; %s chooses the time itself", f.coldStart)
	}
	if err := f.infless.check(f.coldStart, f.given); err != nil {
		return err
	}
	if err := batching.CheckName(f.policy); err != nil {
		return fmt.Errorf("--policy: %w", err)
	}
	return nil
}

// notOrigin reports whether s is neither "*" nor an origin as browsers send it.
func notOrigin(s string) bool {
	u, err := url.Parse(s)
	return s != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != s)
}

// notHost reports whether this is no host name, such as a URL or a name with a port.
func notHost(s string) bool { return s == "" || strings.ContainsAny(s, ":/ ") }

// AllowHosts adds names to --allow-host.
func (f *ProviderFlags) AllowHosts(names ...string) { f.hosts = append(f.hosts, names...) }

// Hosts returns the names by which clients may address a provider without credentials:
// those of --allow-host and those of --listen and --listen-admin.
func (f *ProviderFlags) Hosts() []string {
	var hosts []string
	for _, address := range []string{f.listen, f.doors.admin} {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
			hosts = append(hosts, host)
		}
	}
	return append(hosts, f.hosts...)
}

// logger returns a logger that writes lines for people to a terminal, and otherwise JSON. Lines about instances that
// functions share name these functions.
func (f *ProviderFlags) logger(decided *decisions.Log) (zerolog.Logger, error) {
	level, err := zerolog.ParseLevel(f.logLevel)
	if err != nil {
		return zerolog.Nop(), fmt.Errorf("--log-level %q: it must be debug, info, warn or error", f.logLevel)
	}
	return zerolog.New(pool.Lines{To: logWriter(), Members: decided.Members}).Level(level).With().Timestamp().Logger(), nil
}

// hidden returns the provider's directories, which ordinary functions must not see.
func (f *ProviderFlags) hidden() []string {
	hidden := []string{f.state, f.bundles, f.functionSecrets, f.prepared}
	if f.secrets != "" {
		hidden = append(hidden, f.secrets)
	}
	return hidden
}

// State returns the provider's state directory.
func (f *ProviderFlags) State() string { return f.state }

// BodyTimeout returns --body-timeout.
func (f *ProviderFlags) BodyTimeout() time.Duration { return f.bodyTimeout }

// ColdWait returns --cold-wait.
func (f *ProviderFlags) ColdWait() time.Duration { return f.coldWait }

// warmDir returns the directory where warm Python processes listen.
func (f *ProviderFlags) warmDir() string { return filepath.Join(f.state, "warm") }

// standbyDir returns the directory where processes stand by for GPUs and for shadows.
func (f *ProviderFlags) standbyDir() string { return filepath.Join(f.state, "standby") }

// system returns the default system with the scheduler of --scheduler, α and β.
func (f *ProviderFlags) system() (systems.System, error) {
	system, err := systems.ByName(systems.Default)
	if err != nil {
		return systems.System{}, err
	}
	if system, err = system.WithScheduler(f.scheduler); err != nil {
		return systems.System{}, err
	}
	return f.infless.apply(system, f.given), nil
}

// The values of --gpus that name no GPU.
const allGPUs, noGPUs = "auto", "none"

// logWriter returns standard error, with colours if it is a terminal whose user wants them.
func logWriter() io.Writer {
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: "15:04:05.000", NoColor: !report.Coloured(os.Stderr)}
	}
	return os.Stderr
}
