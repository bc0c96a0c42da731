package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local"
	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/command/instances"
	"github.com/faas-infer/faas-infer/command/profile/shares"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/instance/watchdog"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/build"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/children"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/pool"
	"github.com/faas-infer/faas-infer/provider/processes"
	"github.com/faas-infer/faas-infer/provider/router"
	"github.com/faas-infer/faas-infer/provider/store"
)

// builtinBundles writes the built-in bundles. If the directory of bundles is read-only,
// for example shared between machines, there are none.
func (f *ProviderFlags) builtinBundles(log zerolog.Logger) {
	if err := bundle.WriteBuiltin(f.bundles); err != nil {
		log.Warn().Err(err).Msg("cannot write the built-in bundles")
	}
}

// rowsPerRequest is the maximum number of rows in a request. It is the same on every
// instance of a function, whatever the instance's batch size is.
const rowsPerRequest = 32

// instanceCommand returns the command with which the local backend starts an instance: a
// subcommand of this program.
func (f *ProviderFlags) instanceCommand(spec cluster.InstanceSpec, socket string) (argv, env []string) {
	if spec.Kind == cluster.Process {
		return watchdogCommand(spec, socket)
	}
	listen := "unix://" + socket
	argv = append([]string{process.Self()}, f.InstanceArguments(spec, listen)...)
	argv = append(argv, "--prepared", spec.Model, "--warm", f.warmDir())
	if spec.Original != "" {
		argv = append(argv, "--model", spec.Original)
	}
	if spec.Bundle != "" { // The prepared form may be that of other bundles, too.
		argv = append(argv, "--bundle", spec.Bundle)
	}
	if spec.Config.GPU > 0 && f.standBy || spec.Role == cluster.Shadow {
		argv = append(argv, "--standby", f.standbyDir())
	}
	argv = append(argv, "--listen", listen)
	for _, name := range []string{"FAAS_INFER_ONNXRUNTIME", "XDG_CACHE_HOME"} {
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return argv, env
}

// InstanceArguments returns "instance", its role, and the arguments that are the same on every platform: all
// except the model's path and --listen, the address. The threads and the memory of a member of a set are its
// share. The memory that instances map together is left out: the engine must not take it for tensors.
func (f *ProviderFlags) InstanceArguments(spec cluster.InstanceSpec, listen string) []string {
	argv := append(instances.Arguments(spec, listen), "--name", functionName(spec.Function),
		"--threads", strconv.Itoa(spec.Config.Threads()), "--max-batch", strconv.Itoa(spec.Config.Batch),
		"--memory", strconv.FormatInt(spec.Config.Own(), 10), "--body-limit", strconv.FormatInt(f.maxBody, 10),
		"--max-rows", strconv.Itoa(rowsPerRequest))
	if spec.Images != "" && spec.Member == 0 {
		argv = append(argv, "--image", spec.Images)
	}
	if spec.Shapes != "" {
		argv = append(argv, "--shapes", spec.Shapes)
	}
	if spec.MaxShapes != "" && spec.Member == 0 {
		argv = append(argv, "--max-shapes", spec.MaxShapes)
	}
	if spec.MaxLength > 0 {
		argv = append(argv, "--max-length", strconv.Itoa(spec.MaxLength))
	}
	if spec.RefuseLong {
		argv = append(argv, "--refuse-long")
	}
	if spec.Role == cluster.Trial {
		argv = append(argv, "--trial")
	}
	if spec.Config.Concurrency > 1 {
		argv = append(argv, "--concurrency", strconv.Itoa(spec.Config.Concurrency))
	}
	return argv
}

// watchdogCommand returns the command for an instance of an ordinary function, and the PATH of its program.
func watchdogCommand(spec cluster.InstanceSpec, socket string) (argv, env []string) {
	return []string{process.Self(), "watchdog", "--bundle", spec.Bundle, "--name", functionName(spec.Function), "--listen", "unix://" + socket}, []string{"PATH=" + bundle.ProgramPath}
}

// tick is how often the controllers look at the load. grace is how long a retired instance
// may take to finish its requests, and then to exit.
const (
	tick  = 100 * time.Millisecond
	grace = 10 * time.Second
)

// warmth keeps warm Python processes until ctx ends. If that fails, it logs the error and
// returns nil.
func (f *ProviderFlags) warmth(ctx context.Context, log zerolog.Logger) *python.Warmth {
	warm, err := python.NewWarmth(f.warmDir(), log)
	if err != nil {
		log.Warn().Err(err).Msg("Python functions start without warm processes")
		return nil
	}
	context.AfterFunc(ctx, func() { _ = warm.Close() }) // They end with this process in any case.
	return warm
}

// control makes the controllers of models and of ordinary functions, each with the instances of its
// kind. machine is the backend that runs them all, beside keeps processes beside these.
func (f *ProviderFlags) control(ctx context.Context, b Base, models, ordinary cluster.Backend, machine *local.Backend, kept *store.Store, secrets *store.Secrets, found *bundles.Registrar, beside *standbys) (*router.Controller, error) {
	o, err := f.ControlOptions(b)
	if err != nil {
		return nil, err
	}
	o.OneMachine = true
	o.Backend, o.Models, o.Secrets = models, found.Children, secrets
	o.Bundles, o.Improver, o.Cuttable = found, found, found.Cuttable
	o.Move, o.CPU, o.Mapped = machine.Move, machine.CPU, onnxruntime.MappedWeights
	o.Shadows = control.ShadowsOn(ctx, localPlatform(b, found.Children, beside))
	o.Devices = found.Children.GPUs(machine.GPUs().Inventory, nil)
	o.Profiles, o.Corrections, o.Histories = kept, kept, kept
	left, err := models.Instances(ctx)
	if err != nil {
		return nil, err
	}
	pools := pool.New(pool.Options{
		Bundles: found, Secrets: secrets, Hash: o.Models.Hash, Metrics: b.Metrics, Logger: b.Log,
		Decisions: b.Decisions, Policy: f.policy, Instances: left,
	})
	o.Bundles, o.Backlog = pools.Bundles(), pools.Backlog(o.Backlog)
	m, err := control.New(ctx, o)
	if err != nil {
		return nil, err
	}
	pools.Attach(m)
	p, err := processes.New(ctx, processes.Options{
		Backend: ordinary, Bundles: bundles.Dir(f.bundles), Validate: validate, Secrets: secrets, Metrics: b.Metrics, Logger: b.Log, Decisions: b.Decisions,
		ColdWait: f.coldWait, QueueLimit: f.queueLimit, BodyTimeout: f.bodyTimeout, Tick: tick, DrainGrace: f.drain, StopGrace: grace,
	})
	if err != nil {
		return nil, errors.Join(err, m.Close(ctx))
	}
	return router.New(m, p, pools, b.Log), nil
}

// ControlOptions returns the options of the controller of models that the flags determine.
// The platform adds its backend and its stores.
func (f *ProviderFlags) ControlOptions(b Base) (control.Options, error) {
	system, err := f.system()
	if err != nil {
		return control.Options{}, err
	}
	cold, err := f.cold()
	if err != nil {
		return control.Options{}, err
	}
	return control.Options{
		System: system, Cold: cold, Predict: !f.measure,
		Longest: f.infless.takesLongest(engineCPU), LongestOn: f.infless.takesLongest(engineGPU), Metrics: b.Metrics, Logger: b.Log, Decisions: b.Decisions,
		Policy: f.policy, ColdWait: f.coldWait, QueueLimit: f.queueLimit, Bodies: b.Bodies, Backlog: b.Backlog,
		Tick: tick, StopGrace: grace, Engine: onnxruntime.Name(), EngineOn: onnxruntime.CUDAName(), Machine: report.Machine(), Pace: f.Models().Pace,
	}, nil
}

// Models returns models that are read and measured in child processes of this program.
func (f *ProviderFlags) Models() *children.Models { return children.New(f.children()) }

// children says how child processes read and measure models.
func (f *ProviderFlags) children() children.Config {
	return children.Config{
		Prepared: f.prepared, Database: filepath.Join(f.state, operators.FileName), Machine: report.Machine(),
		Longest: f.infless.takesLongest(engineCPU), LongestOn: f.infless.takesLongest(engineGPU),
	}
}

// ModelsIn returns models that are read and measured in child processes of this program,
// and prepared in a directory.
func ModelsIn(prepared string) latency.Models {
	return children.New(children.Config{Prepared: prepared, Machine: report.Machine()})
}

// Cutter makes a cutter for instances that cut their parts out of their own images.
func (f *ProviderFlags) Cutter(shared bundles.Sharing, files bundles.Files, log zerolog.Logger) bundles.Cutter {
	return bundles.NewCutter(bundles.CutterOptions{State: f.state, Models: f.Models(), Pods: true, Shared: shared, Files: files, Logger: log})
}

// ImportOperators adds rows to the provider's operators' profiles, as "faas-infer profile import" does.
func (f *ProviderFlags) ImportOperators(rows *database.Database) (database.Merged, error) {
	file, err := operators.Open(f.children().Database, nil)
	if err != nil {
		return database.Merged{}, err
	}
	merged, err := file.Import(rows)
	return merged, errors.Join(err, file.Close())
}

// OperatorEngines are the engines whose operators' profiles the provider uses, on GPUs and on cores.
func OperatorEngines() []string { return []string{shares.EngineName(), onnxruntime.Name()} }

// cold returns the cold-start policy of --cold-start. A --keep-alive of 0 is valid.
func (f *ProviderFlags) cold() (coldstart.Policy, error) {
	if f.coldStart == fixed {
		return coldstart.NewFixed(f.keepAlive), nil
	}
	return coldstart.New(f.coldStart, coldstart.Options{Unparked: !f.park, Gamma: f.infless.gamma})
}

// Publish brings a bundle to the registry of its image; nil keeps the bundle on this
// machine.
type Publish = func(ctx context.Context, image string, b *bundle.Bundle, say func(format string, args ...any)) error

// Builder returns what makes bundles for faas-cli's remote builder, and of uploads. Without --payload-secret it
// refuses builds.
func (f *ProviderFlags) Builder(log zerolog.Logger, publish Publish) (*build.Handler, error) {
	var secret []byte
	if f.payloadSecret != "" {
		var err error
		if secret, err = os.ReadFile(f.payloadSecret); err != nil {
			return nil, fmt.Errorf("--payload-secret: %w", err)
		}
		// faas-cli trims its secret, too.
		if secret = bytes.TrimSpace(secret); len(secret) == 0 {
			return nil, errors.New("--payload-secret: the file is empty; write a secret into it, for example with: openssl rand -hex 16")
		}
	}
	models := f.Models()
	o := build.Options{
		Root: f.bundles, Secret: secret, MaxBytes: f.maxBuild, Logger: log, CheckModel: models.CheckFile, Verdict: models.Verdict, Publish: publish,
	}
	if publish == nil { // A published function runs elsewhere.
		o.Install = func(ctx context.Context, manifest string) error {
			_, err := models.Prepare(ctx, manifest)
			return err
		}
	}
	return build.New(o)
}

// Builds reports whether the provider accepts builds of faas-cli's remote builder.
func (f *ProviderFlags) Builds() bool { return f.payloadSecret != "" }

// validate returns an error if a program with this environment could not start in a bundle's directory.
func validate(environment map[string]string, dir string) error {
	return watchdog.Validate(environment, dir, bundle.ProgramPath)
}

// functionName returns a full name without its namespace.
func functionName(full string) string {
	name, _, _ := strings.Cut(full, ".")
	return strings.TrimSuffix(name, provider.CandidateSuffix) // Clients call a candidate by its function's name.
}
