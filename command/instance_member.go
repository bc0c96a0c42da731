package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/forkjoin"
	"github.com/faas-infer/faas-infer/instance/member"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/postmortem"
)

// isMember reports whether the instance is a member of a set, and refuses flags that do not
// fit together.
func (f *instanceFlags) isMember() (bool, error) {
	prepared := f.prepared != "" && member.IsPrepared(f.prepared)
	cutting := forkjoin.IsCutting(f.model)
	switch {
	case f.concurrency < 1:
		return false, fmt.Errorf("--concurrency is %d: give 1 or more", f.concurrency)
	case f.part < 0 && f.plan != "":
		return false, errors.New("--part is missing: --plan needs the member whose parts to serve, 0 for the master")
	case f.part < 0 && prepared:
		return false, fmt.Errorf("--part is missing: %s has the parts of a cut model; give the member whose parts to serve, 0 for the master", f.prepared)
	case f.part < 0 && cutting:
		return false, fmt.Errorf("--part is missing: %s is a cut model; give the member whose parts to serve, 0 for the master", f.model)
	case f.part < 0 && f.concurrency > 1 && !f.body:
		return false, fmt.Errorf("--concurrency is %d: only the master of a cut model (--part 0) and a body (--body) run several batches at the same time", f.concurrency)
	case f.part < 0:
		return false, nil
	case !prepared && !cutting && f.plan == "":
		return false, fmt.Errorf("--part is %d, but there is no cut model: give --plan with --model, or the directory that \"faas-infer instance prepare\" printed for a plan with --prepared", f.part)
	case f.plan != "" && (f.model == "" || cutting):
		return false, errors.New("--plan needs the model's ONNX file: give it with --model")
	case f.device == onCUDA:
		return false, errors.New("--device is cuda: the parts of a cut model are computed on CPUs; leave it out")
	case f.part > 0 && f.image != "":
		return false, errors.New("--image is for the master of a cut model (--part 0); workers get tensors")
	}
	return true, nil
}

// member opens the parts of a member and returns what serves them.
func (f *instanceFlags) member(ctx context.Context, logger zerolog.Logger) (*served, error) {
	if err := onnxruntime.Load(f.library); err != nil {
		return nil, err
	}
	parts, remove, err := f.parts(ctx, logger)
	if err != nil {
		return nil, err
	}
	o := member.Options{Threads: f.threads, Memory: f.engineMemory(), Concurrency: f.concurrency, Dial: f.identity.Dial}
	var s *served
	if f.part == 0 {
		s, err = f.master(parts, o, logger)
	} else {
		s, err = f.worker(ctx, parts, o, logger)
	}
	if failed := remove(); failed != nil { // What is loaded stays so.
		logger.Warn().Err(failed).Msg("cannot remove the cut model")
	}
	return s, err
}

// master makes member 0. It runs nothing before it is ready: its workers are not known yet.
func (f *instanceFlags) master(parts *member.Parts, o member.Options, logger zerolog.Logger) (*served, error) {
	images, err := f.images()
	if err != nil {
		return nil, err
	}
	if os.Getenv("GOMAXPROCS") == "" {
		// While a part is computed, another thread talks to the workers.
		runtime.GOMAXPROCS(max(1, f.threads) + 1)
	}
	m, err := parts.Master(o)
	if err != nil {
		return nil, err
	}
	options := f.serverOptions(instance.Startup{Library: onnxruntime.LibraryTime(), Load: m.Load}, logger)
	options.Images, options.Concurrency, options.Collectors = images, f.concurrency, []prometheus.Collector{m.Engine, m.Workers}
	server, err := instance.NewServer(m, options)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &served{m.Handler(server), options.Startup, m}, nil
}

// worker makes another member. It runs its parts once if that is quick.
func (f *instanceFlags) worker(ctx context.Context, parts *member.Parts, o member.Options, logger zerolog.Logger) (_ *served, err error) {
	w, err := parts.Worker(f.part, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	options := f.serverOptions(instance.Startup{Library: onnxruntime.LibraryTime(), Load: w.Load()}, logger)
	if w.ExpectedRun() <= f.warmUp {
		if options.Startup.FirstRun, err = w.Warm(ctx); err != nil {
			return nil, fmt.Errorf("the first run of its parts: %w", err)
		}
	}
	handler, err := w.Handler(options)
	if err != nil {
		return nil, err
	}
	return &served{handler, options.Startup, w}, nil
}

// parts returns the member's parts, and removes what only this process needs of them.
func (f *instanceFlags) parts(ctx context.Context, logger zerolog.Logger) (p *member.Parts, remove func() error, err error) {
	remove = func() error { return nil }
	if f.prepared != "" && member.IsPrepared(f.prepared) {
		if p, err = member.Read(f.prepared); err == nil || f.plan == "" {
			return p, remove, err
		}
		logger.Warn().Err(err).Msg("the prepared parts do not fit this host; cutting --model")
	}
	c, err := f.cutting()
	if err != nil {
		return nil, remove, err
	}
	cache, err := profile.PreparedDir("")
	if err == nil {
		if p, err := member.Find(&c.Plan, f.part, cache); err == nil {
			return p, remove, nil
		}
	}
	temporary, err := os.MkdirTemp("", "faas-infer-parts-")
	if err != nil {
		return nil, remove, err
	}
	remove = func() error { return os.RemoveAll(temporary) }
	p, err = member.Cut(ctx, c, f.part, filepath.Join(temporary, "parts"))
	if err == nil && p.PrepareFirst(f.part, f.engineMemory()) {
		logger.Info().Msg("the memory is short for loading the parts as they are; preparing them one by one")
		p, err = member.Prepare(ctx, c, f.part, filepath.Join(temporary, "prepared"), prepareApart(f.library, sizeFlags{}))
	}
	if err != nil {
		return nil, remove, errors.Join(err, remove())
	}
	return p, remove, nil
}

// cutting returns the model and the plan of the flags.
func (f *instanceFlags) cutting() (*forkjoin.Cutting, error) {
	if f.plan == "" {
		return forkjoin.ReadCutting(f.model)
	}
	plan, err := cut.ReadPlan(strings.NewReader(f.plan))
	if err != nil {
		return nil, fmt.Errorf("--plan: %w", err)
	}
	return &forkjoin.Cutting{Plan: *plan, Source: f.model}, nil
}

// serverOptions are those of an instance's server that every kind of instance has.
func (f *instanceFlags) serverOptions(startup instance.Startup, logger zerolog.Logger) instance.Options {
	startup.Began = f.began
	dir := f.labels
	if dir == "" && f.model != "" {
		dir = filepath.Dir(f.model)
	}
	var labels []string
	if dir != "" {
		var err error
		if labels, err = bundle.ReadLabels(dir); err != nil {
			logger.Warn().Err(err).Msg("classes have no names in answers")
		}
	}
	return instance.Options{
		Name: f.name, MaxBatch: f.maxBatch, MaxRows: f.maxRows, MaxShapes: f.sizes.largest, BodyLimit: f.bodyLimit, Threads: f.threads, Startup: startup, Logger: logger,
		Labels: labels,
	}
}

// prepareApart prepares a model, or a part of one, in a process of its own, which gives its memory back.
func prepareApart(library string, sizes sizeFlags) member.Preparer {
	return func(ctx context.Context, file, cache string) (string, error) {
		var out, complaint bytes.Buffer
		c := exec.CommandContext(ctx, process.Self(), "instance", "prepare", "--model", file, "--cache", cache, "--lean", "--onnxruntime", library)
		c.Args = append(c.Args, sizes.arguments()...)
		c.Stdout, c.Stderr = &out, &complaint
		child, err := process.Start(c, syscall.SIGKILL)
		if err == nil {
			err = child.Wait()
		}
		if err != nil {
			sentence, _ := postmortem.Explain(err, complaint.String())
			return "", errors.Join(ctx.Err(), errors.New(sentence))
		}
		return strings.TrimSpace(out.String()), nil
	}
}

// prepareParts runs "instance prepare" for a cut model.
func prepareParts(ctx context.Context, out io.Writer, file string, part int, cache, library string, asJSON bool) error {
	c, err := forkjoin.ReadCutting(file)
	if err != nil {
		return err
	}
	if err := onnxruntime.Load(library); err != nil {
		return err
	}
	p, err := member.Prepare(ctx, c, part, cache, prepareApart(library, sizeFlags{}))
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(out).Encode(struct {
			Dir string `json:"dir"`
			*member.Parts
		}{p.Dir, p})
	}
	_, err = fmt.Fprintln(out, p.Dir)
	return err
}

// served is what an instance serves.
type served struct {
	http.Handler
	startup instance.Startup
	closer  io.Closer
}
