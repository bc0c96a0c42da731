package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/forkjoin"
	"github.com/faas-infer/faas-infer/instance/member"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/postmortem"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// childModels reads and measures models in child processes of this program. A file that
// crashes the engine then does not crash the provider, and the memory is given back.
type childModels struct {
	// prepared is the directory of prepared models, database the file of
	// operators' profiles; "" for the user's own.
	prepared, database string
	// longest and longestOn: predictions are of the longest path, on the CPU and on a GPU.
	longest, longestOn bool
	// warm keeps warm Python processes, nil for none.
	warm *python.Warmth
	// place sets a child's CPU weight; background is for work that nobody waits for.
	// nil leaves the child beside this process.
	place func(pid int, background bool) error
	// alike has, by directory, what is known of the bundles whose models answer the same requests.
	alike sync.Map

	modelCache
}

// ModelsIn returns models that are read and measured in child processes of this program,
// and prepared in a directory.
func ModelsIn(prepared string) latency.Models { return &childModels{prepared: prepared} }

// contentHash returns the hash of an ONNX file, of a plan, or of the bundle of a manifest.
func contentHash(file string) (string, error) {
	if forkjoin.IsCutting(file) {
		c, err := forkjoin.ReadCutting(file)
		if err != nil {
			return "", err
		}
		return c.Plan.Hash(), nil
	}
	if engines.IsManifest(file) {
		return engines.Of(file).Hash(file)
	}
	return model.ContentHash(file)
}

// largeModel is the size in bytes from which a file is hashed and checked at the same
// time. The deployment waits for both, and each takes half a second for 400 MB.
const largeModel = 64 << 20

// Check implements [latency.Models].
func (m *childModels) Check(ctx context.Context, file string, known func(hash string) bool) error {
	return m.checkWith(ctx, file, known, func(ctx context.Context) error { return m.check(ctx, file) })
}

// checkWith is Check by a check of the file.
func (m *childModels) checkWith(ctx context.Context, file string, known func(hash string) bool, check func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	checked := sync.OnceValue(func() error { return check(ctx) })
	var early sync.WaitGroup
	defer early.Wait()
	defer cancel()
	if info, err := os.Stat(file); err == nil && info.Size() >= largeModel && !m.looked(file) {
		early.Go(func() { _ = checked() })
	}
	hash, err := m.Hash(file)
	if err != nil || known(hash) {
		return err
	}
	return checked()
}

// check reads an ONNX file and infers its graph. It checks a manifest without running the
// bundle.
func (m *childModels) check(ctx context.Context, file string, more ...string) error {
	if engines.IsManifest(file) {
		return engines.Of(file).Check(ctx, file)
	}
	if _, err := m.run(ctx, foreground, nil, append([]string{"model", "show", file, "--json"}, more...)...); err != nil {
		return err
	}
	return m.try(ctx, file, more...)
}

// Hash implements [latency.Models].
func (m *childModels) Hash(file string) (string, error) {
	seen, err := m.look(file)
	return seen.hash, err
}

// Prepare implements [latency.Models].
func (m *childModels) Prepare(ctx context.Context, file string) (string, error) {
	return m.prepare(ctx, file)
}

func (m *childModels) prepare(ctx context.Context, file string, more ...string) (string, error) {
	seen, err := m.look(file)
	if err != nil {
		return "", err
	}
	if seen.ready != "" && isReady(file, seen.ready) {
		return seen.ready, m.keepWarm(seen.ready)
	}
	out, err := m.run(ctx, foreground, nil, append([]string{"instance", "prepare", "--model", file, "--cache", m.prepared}, more...)...)
	if errors.Is(err, errDied) {
		const way = "export it with other operators, or give the machine more memory"
		return "", fmt.Errorf("the model ends the process that prepares it (%w); %s", err, way)
	}
	if err != nil {
		return "", err
	}
	prepared := strings.TrimSpace(string(out))
	m.keep(file, seen, prepared)
	return prepared, m.keepWarm(prepared)
}

// isReady reports whether a model is still prepared in a directory.
func isReady(file, dir string) bool {
	if forkjoin.IsCutting(file) {
		return member.Use(dir, time.Now()) == nil
	}
	_, err := os.Stat(dir)
	return err == nil
}

// Measure implements [latency.Models].
func (m *childModels) Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.measure(ctx, file, maxBatch, until)
}

func (m *childModels) measure(ctx context.Context, file string, maxBatch int, until time.Duration, more ...string) (string, *profiler.Profile, error) {
	if err := m.forkable(ctx, file); err != nil {
		return "", nil, err
	}
	return m.profile(ctx, background, "model", file, maxBatch, until, more...)
}

// forkable waits until a model in Python can be forked from a warm process.
func (m *childModels) forkable(ctx context.Context, file string) error {
	if !engines.IsManifest(file) {
		return nil
	}
	prepared, err := m.Prepare(ctx, file)
	if err != nil {
		return err
	}
	return m.awaitWarm(ctx, prepared)
}

// Sketch implements [latency.Models].
func (m *childModels) Sketch(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.sketch(ctx, file, maxBatch, until)
}

func (m *childModels) sketch(ctx context.Context, file string, maxBatch int, until time.Duration, more ...string) (string, *profiler.Profile, error) {
	if err := m.forkable(ctx, file); err != nil {
		return "", nil, err
	}
	if engines.IsManifest(file) {
		return m.profile(ctx, foreground, "model", file, maxBatch, until, append(more, "--sketch")...)
	}
	hash, err := m.Hash(file)
	if err != nil {
		return "", nil, err
	}
	return m.profile(ctx, foreground, "predict", file, maxBatch, until, append(more, "--sketch", "--content", hash)...)
}

// Predict implements [latency.Models].
func (m *childModels) Predict(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.predict(ctx, file, maxBatch, until)
}

func (m *childModels) predict(ctx context.Context, file string, maxBatch int, until time.Duration, more ...string) (string, *profiler.Profile, error) {
	if engines.IsManifest(file) {
		return "", nil, fmt.Errorf("%w: the operators of a model in Python, a model server or a handler are not known", latency.ErrUnpredictable)
	}
	prepared, p, err := m.profile(ctx, background, "predict", file, maxBatch, until, more...)
	switch {
	case err != nil:
		return "", nil, asUnpredictable(err)
	case p.Memory <= 0:
		return "", nil, errors.New("the predicted profile does not say how much memory the model needs")
	}
	return prepared, p, nil
}

// asUnpredictable makes a child's error wrap [latency.ErrUnpredictable] if its text
// begins with that error's.
func asUnpredictable(err error) error {
	if why, ok := strings.CutPrefix(err.Error(), latency.ErrUnpredictable.Error()+":"); ok {
		return fmt.Errorf("%w: %s", latency.ErrUnpredictable, strings.TrimSpace(why))
	}
	return err
}

// profile runs one of the profile commands on a model file.
func (m *childModels) profile(ctx context.Context, weight weight, command, file string, maxBatch int, until time.Duration, more ...string) (string, *profiler.Profile, error) {
	// The file disappears with the last process that has it open.
	fd, err := unix.MemfdCreate("profile", unix.MFD_CLOEXEC)
	if err != nil {
		return "", nil, fmt.Errorf("file for the profile: %w", err)
	}
	out := os.NewFile(uintptr(fd), "profile")
	defer out.Close()
	arguments := []string{"profile", command, file, "--json", "--out", inherited, "--prepared", m.prepared,
		"--max-batch", strconv.Itoa(maxBatch), "--until", until.String()}
	arguments = append(arguments, more...)
	if m.warm != nil && engines.IsManifest(file) {
		arguments = append(arguments, "--warm", m.warm.Dir())
	}
	if command == "predict" {
		arguments = append(arguments, "--database", m.database)
		longest := m.longest
		if slices.Contains(more, gpuName) {
			longest = m.longestOn
		}
		if longest {
			arguments = append(arguments, "--longest-path")
		}
	}
	if _, err := m.run(ctx, weight, out, arguments...); err != nil {
		return "", nil, err
	}
	text, err := io.ReadAll(out)
	if err != nil {
		return "", nil, fmt.Errorf("read the profile: %w", err)
	}
	var measured profile.Measured
	if err := json.Unmarshal(text, &measured); err != nil {
		return "", nil, fmt.Errorf("read the profile: %w", err)
	}
	if measured.Profile == nil {
		return "", nil, errors.New("the profile is empty")
	}
	if measured.Profile.Machine == report.Machine() {
		measured.Profile.Yardstick = m.yardstick(ctx)
	}
	return measured.Prepared, measured.Profile, measured.Profile.Validate()
}

// gpuName is the flag of "profile predict" for the times on a GPU.
const gpuName = "--gpu-name"

// inherited is the path by which a child opens the file that it got from run.
const inherited = "/proc/self/fd/3"

// weight is a child's CPU priority when cores are short.
type weight bool

const (
	// foreground is for work that somebody waits for, background for other work.
	foreground weight = false
	background weight = true
)

// startIdle starts work that nobody waits for. Tests, which do wait, replace it: beside another
// package's tests that use the cores it would hardly run.
var startIdle = process.StartIdle

// errDied is wrapped by run's error if the child did not end by itself.
var errDied = errors.New("the process of")

// childDir is the beginning of the names of children's directories of temporary files.
const childDir = "faas-infer-child-"

// run executes this program with other arguments and returns its standard output. The
// program inherits file, unless file is nil. If it fails, the error says what the program
// said, or how it died.
func (m *childModels) run(ctx context.Context, weight weight, file *os.File, arguments ...string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// A killed child's temporary files are removed with its directory.
	workdir.Sweep("", childDir+"*")
	temporary, err := workdir.Make("", childDir)
	if err != nil {
		return nil, err
	}
	defer temporary.Remove()
	var out, complaint bytes.Buffer
	c := exec.CommandContext(ctx, self, arguments...)
	c.Env = append(os.Environ(), "TMPDIR="+temporary.Path)
	c.Stdout, c.Stderr = &out, &complaint
	if file != nil {
		c.ExtraFiles = []*os.File{file}
	}
	if err := m.runChild(c, weight); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		text, clean := postmortem.Explain(err, complaint.String())
		if !clean {
			return nil, fmt.Errorf("%w `%s %s` %s", errDied, arguments[0], arguments[1], text)
		}
		return nil, asNoSizes(errors.New(strings.TrimPrefix(text, filepath.Base(self)+": ")))
	}
	return out.Bytes(), nil
}

// asNoSizes makes a child's error wrap [latency.ErrNoSizes] if its text has that error's.
func asNoSizes(err error) error {
	if _, why, ok := strings.Cut(err.Error(), latency.ErrNoSizes.Error()+":"); ok {
		return fmt.Errorf("%w: %s", latency.ErrNoSizes, strings.TrimSpace(why))
	}
	return err
}

// runChild runs a command to its end.
func (m *childModels) runChild(c *exec.Cmd, weight weight) error {
	start := process.Start
	if weight == background {
		start = startIdle
	}
	p, err := start(c, syscall.SIGKILL)
	if err != nil {
		return err
	}
	if m.place != nil {
		_ = m.place(c.Process.Pid, bool(weight)) // An error means that it has ended, or has more weight than it should.
	}
	return p.Wait()
}
