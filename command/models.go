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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// childModels looks at models in child processes of this program: a file that
// makes the engine crash takes no provider with it, and the memory that a look
// needs is given back.
type childModels struct {
	// prepared is the directory of prepared models, database the file of
	// operators' profiles, "" for the user's.
	prepared, database string
	// warm keeps warm Python processes, nil for none.
	warm *python.Warmth
	// place moves a child to where it gets what it is to of the cores: background is what
	// nobody waits for. nil leaves it beside this process.
	place func(pid int, background bool) error

	modelCache
}

// ModelsIn looks at models in child processes of this program and keeps them prepared in a
// directory.
func ModelsIn(prepared string) latency.Models { return &childModels{prepared: prepared} }

// contentHash is that of a model's file, or of a bundle that more than a file runs.
func contentHash(file string) (string, error) {
	if engines.IsManifest(file) {
		return engines.Of(file).Hash(file)
	}
	return model.ContentHash(file)
}

// largeModel is the size in bytes of a file that is hashed and checked at the same time:
// somebody waits for both, and for 400 MB each takes half a second.
const largeModel = 64 << 20

// Check is times.Models'.
func (m *childModels) Check(ctx context.Context, file string, known func(hash string) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	checked := sync.OnceValue(func() error { return m.check(ctx, file) })
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

// check reads the file and infers its graph. What a process beside the instance runs is
// looked at and not run.
func (m *childModels) check(ctx context.Context, file string) error {
	if engines.IsManifest(file) {
		return engines.Of(file).Check(ctx, file)
	}
	_, err := m.run(ctx, foreground, nil, "model", "show", file, "--json")
	return err
}

// Hash is times.Models'.
func (m *childModels) Hash(file string) (string, error) {
	seen, err := m.look(file)
	return seen.hash, err
}

// Prepare is times.Models'.
func (m *childModels) Prepare(ctx context.Context, file string) (string, error) {
	seen, err := m.look(file)
	if err != nil {
		return "", err
	}
	if seen.ready != "" {
		if _, err := os.Stat(seen.ready); err == nil {
			return seen.ready, m.keepWarm(seen.ready)
		}
	}
	out, err := m.run(ctx, foreground, nil, "instance", "prepare", "--model", file, "--cache", m.prepared)
	if err != nil {
		return "", err
	}
	prepared := strings.TrimSpace(string(out))
	m.keep(file, seen, prepared)
	return prepared, m.keepWarm(prepared)
}

// Measure is times.Models'.
func (m *childModels) Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	if err := m.forkable(ctx, file); err != nil {
		return "", nil, err
	}
	return m.profile(ctx, background, "model", file, maxBatch, until)
}

// forkable waits until what is measured can be forked from a warm process, if Python runs it.
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

// Sketch is times.Models'.
func (m *childModels) Sketch(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	if err := m.forkable(ctx, file); err != nil {
		return "", nil, err
	}
	if engines.IsManifest(file) {
		return m.profile(ctx, foreground, "model", file, maxBatch, until, "--sketch")
	}
	hash, err := m.Hash(file)
	if err != nil {
		return "", nil, err
	}
	return m.profile(ctx, foreground, "predict", file, maxBatch, until, "--sketch", "--content", hash)
}

// Predict is times.Models'.
func (m *childModels) Predict(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	if engines.IsManifest(file) {
		return "", nil, fmt.Errorf("%w: what Python, a model server or a handler runs has no operators to be looked at", latency.ErrUnpredictable)
	}
	prepared, p, err := m.profile(ctx, background, "predict", file, maxBatch, until)
	switch {
	case err != nil:
		return "", nil, asUnpredictable(err)
	case p.Memory <= 0:
		return "", nil, errors.New("the predicted profile does not say how much memory the model needs")
	}
	return prepared, p, nil
}

// asUnpredictable makes an error by whose text a model's times do not follow from
// its operators one that wraps times.ErrUnpredictable.
func asUnpredictable(err error) error {
	if why, ok := strings.CutPrefix(err.Error(), latency.ErrUnpredictable.Error()+":"); ok {
		return fmt.Errorf("%w: %s", latency.ErrUnpredictable, strings.TrimSpace(why))
	}
	return err
}

// profile runs one of the profile commands on a model file.
func (m *childModels) profile(ctx context.Context, weight weight, command, file string, maxBatch int, until time.Duration, more ...string) (string, *profiler.Profile, error) {
	// A file that goes with the last process that has it open.
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
	return measured.Prepared, measured.Profile, measured.Profile.Validate()
}

// inherited is what a child calls the file that it was given.
const inherited = "/proc/self/fd/3"

// weight is what a child gets of the cores when they are short.
type weight bool

const (
	// foreground is for what somebody waits for, background for what nobody does.
	foreground weight = false
	background weight = true
)

// run executes this program with other arguments, and gives it a file unless
// that is nil. Its standard error is the error's text if it fails.
func (m *childModels) run(ctx context.Context, weight weight, file *os.File, arguments ...string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// The temporary files of a child that is ended go with its directory.
	temporary, err := os.MkdirTemp("", "faas-infer-child-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temporary)
	var out, complaint bytes.Buffer
	c := exec.CommandContext(ctx, self, arguments...)
	c.Env = append(os.Environ(), "TMPDIR="+temporary)
	c.Stdout, c.Stderr = &out, &complaint
	if file != nil {
		c.ExtraFiles = []*os.File{file}
	}
	if err := m.child(c, weight); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		text := strings.TrimPrefix(profile.LastLine(complaint.String()), filepath.Base(self)+": ")
		var exit *exec.ExitError
		if text == "" || errors.As(err, &exit) && !exit.Exited() {
			text = fmt.Sprintf("%s %s failed: %v %s", arguments[0], arguments[1], err, text)
		}
		return nil, errors.New(strings.TrimSpace(text))
	}
	return out.Bytes(), nil
}

// child runs a command to its end.
func (m *childModels) child(c *exec.Cmd, weight weight) error {
	start := process.Start
	if weight == background {
		start = process.StartIdle
	}
	p, err := start(c, syscall.SIGKILL)
	if err != nil {
		return err
	}
	if m.place != nil {
		_ = m.place(c.Process.Pid, bool(weight)) // It may have ended; else it disturbs more than it should.
	}
	return p.Wait()
}
