package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local"
	"github.com/faas-infer/faas-infer/cluster/local/gpus"
	"github.com/faas-infer/faas-infer/cluster/local/sandbox"
	"github.com/faas-infer/faas-infer/cluster/sets"
	"github.com/faas-infer/faas-infer/provider/build"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/router"
	"github.com/faas-infer/faas-infer/provider/store"
)

// machine is the platform that runs functions on this machine.
type machine struct{}

// Open implements [Platform]. It takes over the instances that an earlier provider left
// running.
func (machine) Open(ctx context.Context, b Base) (p Parts, err error) {
	var close []func() error
	p.Close = func() error { return closeBackwards(close) }
	f := b.Flags
	kept, err := store.Open(filepath.Join(f.state, "faas-infer.db"))
	if err != nil {
		return p, err
	}
	close = append(close, kept.Close)
	secrets, err := store.OpenSecrets(f.functionSecrets)
	if err != nil {
		return p, err
	}
	close = append(close, secrets.Close)
	f.builtinBundles(b.Log)
	options, warm := f.backendOptions(b.Log), f.warmth(ctx, b.Log)
	if options.GPUs, err = f.gpuOptions(); err != nil {
		return p, err
	}
	if f.standBy {
		options.GPUs.Beside = standbyMemory
	}
	// The backend calls Command only after it is opened.
	var backend *local.Backend
	beside, err := f.standbys(b.Log)
	if err != nil {
		return p, err
	}
	close = append(close, beside.Close)
	options.Beside = func() int64 {
		if warm == nil {
			return beside.memory()
		}
		return warm.Memory() + beside.memory()
	}
	options.Command = func(spec cluster.InstanceSpec, socket string) (argv, env []string) {
		beside.starts(spec, backend.GPUs().Env(&spec))
		return f.instanceCommand(spec, socket)
	}
	if backend, err = local.New(ctx, options); err != nil {
		return p, err
	}
	close = append(close, backend.Close)
	if warm != nil { // A fork outside an instance's group is being measured.
		warm.Started = func(pid int) { _ = backend.Place(pid, false) }
	}
	looked := f.Models()
	looked.Warm, looked.Place, looked.Largest = warm, backend.Place, largestModel()
	if err = looked.KeepIn(kept, b.Log); err != nil {
		return p, err
	}
	found := bundles.New(bundles.Dir(f.bundles), f.state, looked, b.Log)
	downloads := f.Downloads
	downloads.Hashed = looked.Remember
	found.Downloads = bundles.NewDownloads(downloads, secrets, kept.Functions)
	models, ordinary := router.Split(backend)
	made, err := sets.New(ctx, models, sets.Options{Logger: b.Log})
	if err != nil {
		return p, err
	}
	close = append(close, made.Close)
	controller, err := f.control(ctx, b, made, ordinary, backend, kept, secrets, found, &beside)
	if err != nil {
		return p, err
	}
	found.BeginTidying(kept.Functions, backend.Instances)
	close = append(close, found.Close)
	builder, err := f.Builder(b.Log, nil)
	if err != nil {
		return p, err
	}
	p.Store, p.Secrets, p.Controller, p.Nodes = kept, secrets, controller, backend.Nodes
	p.Logs, p.FunctionUser, p.Fetcher = functionLogs{files: backend.Logs(), name: controller.Logs, log: b.Log}, sandbox.FunctionUser, found.Downloads
	p.Defaults = bundles.Dir(f.bundles).Defaults
	p.Build, p.Upload, p.PublicKey = builder, builder.Upload, http.HandlerFunc(build.PublicKey)
	return p, nil
}

// closeBackwards calls all functions, the last one first.
func closeBackwards(all []func() error) (err error) {
	for _, close := range slices.Backward(all) {
		err = errors.Join(err, close())
	}
	return err
}

// gpuOptions reads --gpus.
func (f *ProviderFlags) gpuOptions() (gpus.Options, error) {
	o := gpus.Options{Library: nvml.New(), MPS: f.mps}
	switch {
	case slices.Equal(f.gpus, []string{allGPUs}):
		return o, nil
	case slices.Equal(f.gpus, []string{noGPUs}):
		return gpus.Options{}, nil
	case len(f.gpus) == 0 || slices.ContainsFunc(f.gpus, func(name string) bool { return name == "" || name == allGPUs || name == noGPUs }):
		return o, fmt.Errorf("--gpus is %q: it must be %s, %s, or indexes and UUIDs of GPUs such as 0,2", strings.Join(f.gpus, ","), allGPUs, noGPUs)
	}
	o.Names = f.gpus
	return o, nil
}

func (f *ProviderFlags) backendOptions(log zerolog.Logger) local.Options {
	return local.Options{
		Dir: filepath.Join(f.state, "local"), Command: f.instanceCommand, Cores: f.cores, PinCPUs: true, Favour: true, Own: f.own.CPU, NoCgroups: f.noCgroups, Logger: log,
		Hide: f.hidden(),
	}
}
