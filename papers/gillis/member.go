package gillis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/instances"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/papers/gillis/member"
)

// memberRole is the role of a member of a set, "instance member".
func memberRole() instances.Role {
	return instances.Role{
		Name:  "member",
		Short: "Serve a member's parts of a cut model",
		Long: `member serves a part of a cut model, together with the other members of a set. Member 0 is
the master: it answers requests, and PUT /v1/workers tells it where the others are. The
others serve their parts of each round at /v2/models/PLAN-ROUND. The parts come from the
directory that "faas-infer instance prepare" printed for a model's file *.plan.json. With
--plan, the member cuts its own parts out of --model.`,
		Example: `  faas-infer instance member --prepared "$(faas-infer instance prepare --model vgg.plan.json --cache .prepared)" \
    --part 0 --concurrency 2 --name vgg --listen unix:///tmp/vgg-0.sock`,
		New:   func() instances.Instance { return new(memberFlags) },
		Of:    memberArguments,
		Takes: func(f *instances.Flags) bool { return isPrepared(f) || bundle.IsCutting(f.Model) },
	}
}

// isPrepared reports whether --prepared has the parts of a cut model.
func isPrepared(f *instances.Flags) bool { return f.Prepared != "" && member.IsPrepared(f.Prepared) }

// memberArguments are the flags of a member of a set. A pod cuts its own part out of the model in its image,
// and so gets the plan; on one machine the parts are prepared.
func memberArguments(spec cluster.InstanceSpec, listen string) (arguments []string, is bool) {
	if spec.Set == "" {
		return nil, false
	}
	arguments = []string{"--part", strconv.Itoa(spec.Member)}
	if !instances.OnMachine(listen) {
		arguments = append(arguments, "--plan", spec.Plan)
	}
	return arguments, true
}

// memberFlags are a member's own flags: the member whose parts of a cut model are served, and the plan's
// JSON, "" if the parts are prepared.
type memberFlags struct {
	part int
	plan string
}

// Flags implements [instances.Instance].
func (m *memberFlags) Flags(flags *pflag.FlagSet) {
	flags.IntVar(&m.part, "part", missing, "the member whose parts to serve: 0 is the master (required)")
	flags.StringVar(&m.plan, "plan", "", "the plan of a cut model as JSON, for a member that cuts its own parts out of --model")
}

// missing is the value of --part without the flag.
const missing = -1

// Check implements [instances.Instance].
func (m *memberFlags) Check(f *instances.Flags) error {
	prepared, cutting := isPrepared(f), bundle.IsCutting(f.Model)
	switch {
	case m.part < 0:
		return errors.New("--part is missing: give the member whose parts to serve, 0 for the master")
	case !prepared && !cutting && m.plan == "":
		return fmt.Errorf("--part is %d, but there is no cut model: give --plan with --model, or the directory that \"faas-infer instance prepare\" printed for a plan with --prepared", m.part)
	case m.plan != "" && (f.Model == "" || cutting):
		return errors.New("--plan needs the model's ONNX file: give it with --model")
	case f.Device == instances.OnCUDA:
		return errors.New("--device is cuda: the parts of a cut model are computed on CPUs; leave it out")
	case m.part > 0 && f.Image != "":
		return errors.New("--image is for the master of a cut model (--part 0); workers get tensors")
	}
	return nil
}

// Open implements [instances.Instance].
func (m *memberFlags) Open(ctx context.Context, f *instances.Flags, logger zerolog.Logger) (*instances.Served, error) {
	logger = logger.With().Int("member", m.part).Logger()
	if os.Getenv("GOGC") == "" {
		// Tensors go through the heap, and there is little memory beside the parts.
		debug.SetGCPercent(50)
	}
	if err := onnxruntime.Load(f.Library); err != nil {
		return nil, err
	}
	parts, remove, err := m.parts(ctx, f, logger)
	if err != nil {
		return nil, err
	}
	o := member.Options{Threads: f.Threads, Memory: f.EngineMemory(), Concurrency: f.Concurrency, Dial: f.Identity.Dial}
	var s *instances.Served
	if m.part == 0 {
		s, err = m.master(f, parts, o, logger)
	} else {
		s, err = m.worker(ctx, f, parts, o, logger)
	}
	if failed := remove(); failed != nil { // What is loaded stays so.
		logger.Warn().Err(failed).Msg("cannot remove the cut model")
	}
	return s, err
}

// master makes member 0. It runs nothing before it is ready: its workers are not known yet.
func (m *memberFlags) master(f *instances.Flags, parts *member.Parts, o member.Options, logger zerolog.Logger) (*instances.Served, error) {
	images, err := f.Images()
	if err != nil {
		return nil, err
	}
	if os.Getenv("GOMAXPROCS") == "" {
		// While a part is computed, another thread talks to the workers.
		runtime.GOMAXPROCS(max(1, f.Threads) + 1)
	}
	opened, err := parts.Master(o)
	if err != nil {
		return nil, err
	}
	options := f.ServerOptions(instance.Startup{Library: onnxruntime.LibraryTime(), Load: opened.Load}, logger)
	options.Images, options.Concurrency, options.Collectors = images, f.Concurrency, []prometheus.Collector{opened.Engine, opened.Workers}
	if err := f.Files.ReadText(f.Model, &options); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	server, err := instance.NewServer(opened, options)
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return &instances.Served{Handler: opened.Handler(server), Startup: options.Startup, Closer: opened, Logger: &logger}, nil
}

// worker makes another member. It runs its parts once if that is quick.
func (m *memberFlags) worker(ctx context.Context, f *instances.Flags, parts *member.Parts, o member.Options, logger zerolog.Logger) (_ *instances.Served, err error) {
	w, err := parts.Worker(m.part, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	options := f.ServerOptions(instance.Startup{Library: onnxruntime.LibraryTime(), Load: w.Load()}, logger)
	if w.ExpectedRun() <= f.WarmUp {
		if options.Startup.FirstRun, err = w.Warm(ctx); err != nil {
			return nil, fmt.Errorf("the first run of its parts: %w", err)
		}
	}
	handler, err := w.Handler(options)
	if err != nil {
		return nil, err
	}
	return &instances.Served{Handler: handler, Startup: options.Startup, Closer: w, Callers: []string{mutual.InstanceName}, Logger: &logger}, nil
}

// parts returns the member's parts, and removes what only this process needs of them.
func (m *memberFlags) parts(ctx context.Context, f *instances.Flags, logger zerolog.Logger) (p *member.Parts, remove func() error, err error) {
	remove = func() error { return nil }
	if f.Prepared != "" && member.IsPrepared(f.Prepared) {
		if p, err = member.Read(f.Prepared); err == nil || m.plan == "" {
			return p, remove, err
		}
		logger.Warn().Err(err).Msg("the prepared parts do not fit this host; cutting --model")
	}
	c, err := m.cutting(f)
	if err != nil {
		return nil, remove, err
	}
	cache, err := profile.PreparedDir("")
	if err == nil {
		if p, err := member.Find(&c.Plan, m.part, cache); err == nil {
			return p, remove, nil
		}
	}
	temporary, err := os.MkdirTemp("", "faas-infer-parts-")
	if err != nil {
		return nil, remove, err
	}
	remove = func() error { return os.RemoveAll(temporary) }
	p, err = member.Cut(ctx, c, m.part, filepath.Join(temporary, "parts"))
	if err == nil && p.PrepareFirst(m.part, f.EngineMemory()) {
		logger.Info().Msg("the memory is short for loading the parts as they are; preparing them one by one")
		p, err = member.Prepare(ctx, c, m.part, filepath.Join(temporary, "prepared"), instances.PrepareApart(f.Library, profile.SizeFlags{}))
	}
	if err != nil {
		return nil, remove, errors.Join(err, remove())
	}
	return p, remove, nil
}

// cutting returns the model and the plan of the flags.
func (m *memberFlags) cutting(f *instances.Flags) (*bundle.Cutting, error) {
	if m.plan == "" {
		return bundle.ReadCutting(f.Model)
	}
	plan, err := cut.ReadPlan(strings.NewReader(m.plan))
	if err != nil {
		return nil, fmt.Errorf("--plan: %w", err)
	}
	return &bundle.Cutting{Plan: *plan, Source: f.Model}, nil
}

// partsPreparer prepares the parts of cut models for "instance prepare".
type partsPreparer struct{ part int }

// Flags implements [instances.Preparer].
func (p *partsPreparer) Flags(flags *pflag.FlagSet) {
	flags.IntVar(&p.part, "part", member.All, "prepare only the parts of this member of a cut model, *"+bundle.CuttingSuffix+" (-1: of all)")
}

// Takes implements [instances.Preparer]: the file of a cut model ends in .plan.json and has the keys "plan"
// and "source".
func (p *partsPreparer) Takes(model string) (bool, error) {
	cutting := bundle.IsCutting(model)
	if !cutting && p.part != member.All {
		return false, fmt.Errorf("--part is %d: only a cut model (*%s) has parts", p.part, bundle.CuttingSuffix)
	}
	return cutting, nil
}

// Prepare implements [instances.Preparer]. It cuts the source and prepares the parts one after the other,
// each in a process of its own.
func (p *partsPreparer) Prepare(ctx context.Context, out io.Writer, o instances.Preparation) error {
	c, err := bundle.ReadCutting(o.Model)
	if err != nil {
		return err
	}
	if err := onnxruntime.Load(o.Library); err != nil {
		return err
	}
	parts, err := member.Prepare(ctx, c, p.part, o.Cache, instances.PrepareApart(o.Library, profile.SizeFlags{}))
	if err != nil {
		return err
	}
	if o.JSON {
		return json.NewEncoder(out).Encode(struct {
			Dir string `json:"dir"`
			*member.Parts
		}{parts.Dir, parts})
	}
	_, err = fmt.Fprintln(out, parts.Dir)
	return err
}
