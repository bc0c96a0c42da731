package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/build"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/processes"
	"github.com/faas-infer/faas-infer/provider/router"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// builtinBundles writes the built-in bundles. A directory of bundles that cannot
// be written to, as one that machines share, goes without.
func (f *ProviderFlags) builtinBundles(log zerolog.Logger) {
	if err := bundle.WriteBuiltin(f.bundles); err != nil {
		log.Warn().Err(err).Msg("there are no built-in bundles")
	}
}

// rowsPerRequest is the most rows that one request may have, on every instance
// of a function whatever its batch size.
const rowsPerRequest = 32

// instanceCommand is how the local backend starts an instance: this program's
// own instance subcommand.
func (f *ProviderFlags) instanceCommand(spec cluster.InstanceSpec, socket string) (argv, env []string) {
	if spec.Kind == cluster.Process {
		return watchdogCommand(spec, socket)
	}
	argv = append([]string{process.Self(), "instance", "--prepared", spec.Model, "--warm", f.warmDir()}, f.InstanceArguments(spec)...)
	argv = append(argv, "--listen", "unix://"+socket)
	for _, name := range []string{"FAAS_INFER_ONNXRUNTIME", "XDG_CACHE_HOME"} {
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return argv, env
}

// InstanceArguments are what "faas-infer instance" is told of a model's instance
// on every platform: all but where the model is and where to listen.
func (f *ProviderFlags) InstanceArguments(spec cluster.InstanceSpec) []string {
	argv := []string{"--name", functionName(spec.Function),
		"--threads", strconv.Itoa(spec.Config.Threads()), "--max-batch", strconv.Itoa(spec.Config.Batch),
		"--memory", strconv.FormatInt(spec.Config.Memory, 10), "--body-limit", strconv.FormatInt(f.maxBody, 10),
		"--max-rows", strconv.Itoa(rowsPerRequest)}
	if spec.Images != "" {
		argv = append(argv, "--image", spec.Images)
	}
	return argv
}

// watchdogCommand is the same for an ordinary function's instance.
func watchdogCommand(spec cluster.InstanceSpec, socket string) (argv, env []string) {
	return []string{process.Self(), "watchdog", "--bundle", spec.Bundle, "--name", functionName(spec.Function), "--listen", "unix://" + socket}, nil
}

// How often the controllers look at the load, and how long a retired instance
// may take to finish what it has, and then to leave.
const (
	tick  = 100 * time.Millisecond
	grace = 10 * time.Second
)

// warmth keeps warm Python processes until ctx ends; nil where it cannot, which is logged.
func (f *ProviderFlags) warmth(ctx context.Context, log zerolog.Logger) *python.Warmth {
	warm, err := python.NewWarmth(f.warmDir(), log)
	if err != nil {
		log.Warn().Err(err).Msg("Python functions start without warm processes")
		return nil
	}
	context.AfterFunc(ctx, func() { _ = warm.Close() }) // They end with this process in any case.
	return warm
}

// control makes the controllers of both kinds of functions.
func (f *ProviderFlags) control(ctx context.Context, b Base, backend cluster.Backend, kept *store.Store, secrets *store.Secrets, looked *childModels) (*router.Controller, error) {
	models, ordinary := router.Split(backend)
	o, err := f.ControlOptions(b)
	if err != nil {
		return nil, err
	}
	o.Backend, o.Models, o.Bundles, o.Secrets = models, looked, bundles(f.bundles), secrets
	o.Profiles, o.Corrections, o.Histories = kept, kept, kept
	m, err := control.New(ctx, o)
	if err != nil {
		return nil, err
	}
	p, err := processes.New(ctx, processes.Options{
		Backend: ordinary, Bundles: bundles(f.bundles), Secrets: secrets, Metrics: b.Metrics, Logger: b.Log,
		ColdWait: f.coldWait, QueueLimit: f.queueLimit, BodyTimeout: f.bodyTimeout, Tick: tick, DrainGrace: f.drain, StopGrace: grace,
	})
	if err != nil {
		return nil, errors.Join(err, m.Close(ctx))
	}
	return router.New(m, p, b.Log), nil
}

// ControlOptions are the options of the controller of models as the flags have
// them; what the platform has to add is its backend and where things are kept.
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
		System: system, Cold: cold, Predict: !f.measure, Metrics: b.Metrics, Logger: b.Log,
		Policy: f.policy, ColdWait: f.coldWait, QueueLimit: f.queueLimit,
		Tick: tick, StopGrace: grace, Engine: onnxruntime.Name(), Machine: report.Machine(),
	}, nil
}

// warmDir is where warm Python processes listen.
func (f *ProviderFlags) warmDir() string { return filepath.Join(f.state, "warm") }

// childModels looks at models in child processes.
func (f *ProviderFlags) childModels() *childModels {
	return &childModels{prepared: f.prepared, database: filepath.Join(f.state, operators.FileName)}
}

// system is the one that production runs, with the scheduler that --scheduler names.
func (f *ProviderFlags) system() (systems.System, error) {
	system, err := systems.ByName(systems.Default)
	if err != nil {
		return systems.System{}, err
	}
	return system.WithScheduler(f.scheduler)
}

// cold is the cold-start policy that --cold-start names. A keep-alive of 0 is one,
// too.
func (f *ProviderFlags) cold() (coldstart.Policy, error) {
	if f.coldStart == fixed {
		return coldstart.NewFixed(f.keepAlive), nil
	}
	return coldstart.New(f.coldStart, coldstart.Options{Unparked: !f.park})
}

// bundles is the directory of bundles.
type bundles string

// Model is control.Bundles'.
func (root bundles) Model(_ context.Context, f *provider.Function) (dir, file string, err error) {
	image, model := f.Deployment.Image, f.Inference.Model
	b, err := bundle.Open(string(root), image)
	if err != nil {
		return "", "", err
	}
	if err := b.CheckModel(); err != nil {
		return "", "", fmt.Errorf("image %q: %w", image, err)
	}
	if file, err = b.ModelFile(model); err != nil {
		return "", "", fmt.Errorf("image %q: %w", image, err)
	}
	return b.Dir, file, nil
}

// defaults is provider.Defaults: what the bundle's manifest says.
func (root bundles) defaults(_ context.Context, d types.FunctionDeployment) (map[string]string, error) {
	b, err := bundle.Open(string(root), d.Image)
	if err != nil {
		return nil, nil // Deploying says why.
	}
	return b.Annotations, nil
}

// Program is processes.Bundles'.
func (root bundles) Program(image string) (processes.Program, error) {
	b, err := bundle.Open(string(root), image)
	if err != nil {
		return processes.Program{}, err
	}
	if err := b.CheckProgram(); err != nil {
		return processes.Program{}, fmt.Errorf("image %q: %w", image, err)
	}
	fingerprint, err := b.Fingerprint()
	if err != nil {
		return processes.Program{}, fmt.Errorf("image %q: %w", image, err)
	}
	return processes.Program{Dir: b.Dir, Env: b.Environment(), Network: b.Network, Fingerprint: fingerprint}, nil
}

// Publish brings a bundle to where images are taken from; nil keeps it among those
// of this machine.
type Publish = func(ctx context.Context, image string, b *bundle.Bundle, say func(format string, args ...any)) error

// Builder answers faas-cli's remote builder, if there is a secret to know it by.
func (f *ProviderFlags) Builder(log zerolog.Logger, publish Publish) (http.Handler, error) {
	if f.payloadSecret == "" {
		return http.HandlerFunc(build.Disabled), nil
	}
	secret, err := os.ReadFile(f.payloadSecret)
	if err != nil {
		return nil, fmt.Errorf("--payload-secret: %w", err)
	}
	// As faas-cli does.
	if secret = bytes.TrimSpace(secret); len(secret) == 0 {
		return nil, errors.New("--payload-secret: the file is empty; write a secret into it, for example with: openssl rand -hex 16")
	}
	o := build.Options{Root: f.bundles, Secret: secret, MaxBytes: f.maxBuild, Logger: log, CheckModel: f.childModels().check, Publish: publish}
	if publish == nil { // Otherwise it runs elsewhere.
		o.Install = func(ctx context.Context, manifest string) error {
			_, err := f.childModels().Prepare(ctx, manifest)
			return err
		}
	}
	return build.New(o)
}

// Models looks at models in child processes of this program.
func (f *ProviderFlags) Models() latency.Models { return f.childModels() }

// Builds tells whether faas-cli's remote builder is to be answered.
func (f *ProviderFlags) Builds() bool { return f.payloadSecret != "" }
