package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// begin starts or reaches a server and checks the model's signature. The caller holds the
// turn.
func (e *Engine) begin(ctx context.Context) (*server, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	stop := context.AfterFunc(e.servers.Life(), cancel)
	defer stop()
	s, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	inputs, outputs, err := s.Signature(ctx)
	if err == nil && e.inputs != nil && !same(e.inputs, inputs, e.outputs, outputs) {
		err = errors.New("the reloaded model has other inputs or outputs than before")
	}
	if err != nil {
		return nil, errors.Join(err, e.end(s, stopTimeout))
	}
	e.inputs, e.outputs, e.started = inputs, outputs, time.Since(began)
	e.limit.Fresh()
	if s.child != nil {
		e.guard(s)
	}
	e.options.Logger.Info().Str("server", e.options.Prepared.Engine).Dur("start_ms", e.started).Msg("the model server is ready")
	return s, nil
}

func same(inputs, newInputs, outputs, newOutputs []tensor.Info) bool {
	text := func(in, out []tensor.Info) string { return fmt.Sprint(in, out) }
	return text(inputs, outputs) == text(newInputs, newOutputs)
}

// open returns a server whose model is ready.
func (e *Engine) open(ctx context.Context) (*server, error) {
	p := e.options.Prepared
	if p.ServerURL != "" {
		wait := reachTimeout
		if e.inputs != nil { // A batch waits for the server.
			wait = min(wait, cmp.Or(e.options.Timeout, engine.DefaultTimeout))
		}
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		s := &server{Server: e.kind.connect(p.ServerURL, p.Name)}
		if err := e.await(ctx, s); err != nil {
			s.Close()
			return nil, fmt.Errorf("the model server at %s: %w", p.ServerURL, err)
		}
		return s, nil
	}
	s, err := e.start()
	if err != nil {
		return nil, err
	}
	e.watch(s)
	err = e.await(ctx, s)
	if err == nil {
		return s, nil
	}
	failed := e.end(s, 0) // Afterwards the server's output is complete.
	if errors.Is(err, errEnded) {
		err = e.ended(s)
	}
	return nil, errors.Join(err, failed)
}

// start starts the server's process.
func (e *Engine) start() (*server, error) {
	p := e.options.Prepared
	found, err := p.command()
	if err != nil {
		return nil, err
	}
	how := serving{Model: filepath.Join(p.Dir, p.Model), Name: p.Name, Batch: e.options.MaxBatch, Threads: e.options.Threads, Wheel: found.wheel}
	dir, err := e.layOut(how)
	if err != nil {
		return nil, err
	}
	at, err := freePorts()
	if err != nil {
		return nil, err
	}
	s := &server{at: at, overLimit: make(chan struct{}), closed: make(chan struct{})}
	flags, env := e.kind.flags(dir, how, at)
	s.child, err = engine.StartChild(engine.ChildOptions{
		Argv: append(found.argv, arguments(found.argv, flags)...), Dir: p.Dir, Log: e.options.Log,
		Env: slices.Concat(e.environment(), found.env, env),
	})
	if err != nil {
		return nil, err
	}
	s.Server = e.kind.connect("http://127.0.0.1:"+strconv.Itoa(at.http), p.Name)
	return s, nil
}

// layOut makes the directory that the server reads and returns it. It does so once for
// each batch size and number of threads, beside the prepared bundle. If it cannot write
// there, it makes a temporary directory for this instance.
func (e *Engine) layOut(how serving) (string, error) {
	root := filepath.Join(filepath.Dir(e.options.Prepared.Dir), "served")
	dir := filepath.Join(root, fmt.Sprintf("b%d-t%d", how.Batch, how.Threads))
	err := workdir.Store{Dir: root}.Make(context.Background(), filepath.Base(dir), workdir.Exists, func(work string) error {
		return e.kind.layOut(work, how)
	})
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		if dir, err = os.MkdirTemp("", "faas-infer-served-"); err != nil {
			return "", err
		}
		return dir, e.kind.layOut(dir, how)
	}
	if err != nil {
		return "", fmt.Errorf("write the files for %s: %w", e.options.Prepared.Engine, err)
	}
	return dir, nil
}

// arguments returns the flags that the command does not have yet.
func arguments(argv []string, flags []flag) []string {
	var out []string
	for _, f := range flags {
		has := func(word string) bool { return word == f.name || strings.HasPrefix(word, f.name+"=") }
		switch {
		case slices.ContainsFunc(argv, has):
		case f.value == "":
			out = append(out, f.name)
		default:
			out = append(out, f.name+"="+f.value)
		}
	}
	return out
}

// environment returns the server's environment: this process's, with the number of threads
// of its libraries. If the server has a Python environment, its programs come first in
// PATH.
func (e *Engine) environment() []string {
	env := engine.Environment()
	for _, name := range []string{"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"} {
		env = append(env, fmt.Sprintf("%s=%d", name, e.options.Threads))
	}
	// Without a GPU of its own, the server must not take one that instances share.
	env = append(env, "CUDA_VISIBLE_DEVICES="+os.Getenv("CUDA_VISIBLE_DEVICES"))
	python := e.options.Prepared.Python
	if python == "" {
		return env
	}
	return append(env, "PATH="+strings.Join(searchPath(python), ":"), "VIRTUAL_ENV="+filepath.Dir(filepath.Dir(python)),
		"PYTHONNOUSERSITE=1", "PYTHONUNBUFFERED=1")
}

// freePorts finds free ports of the loopback interface.
func freePorts() (p ports, err error) {
	for p.http == p.other {
		if p.http, err = engine.FreePort(); err != nil {
			return ports{}, err
		}
		if p.other, err = engine.FreePort(); err != nil {
			return ports{}, err
		}
	}
	return p, nil
}

// poll is the time between two checks whether a starting server is ready.
const poll = 10 * time.Millisecond

// errEnded says that a server's process has exited.
var errEnded = errors.New("the model server has exited")

// await waits until the model can take requests. It returns errEnded if the server exits,
// and another error when ctx ends.
func (e *Engine) await(ctx context.Context, s *server) error {
	var exited <-chan struct{}
	if s.child != nil {
		exited = s.child.Exited()
	}
	ticks := time.Tick(poll)
	for {
		err := s.Ready(ctx)
		if err == nil && (s.child == nil || s.child.Listens(s.at.http)) {
			return nil
		}
		select {
		case <-exited:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("the model is not ready: %w", errors.Join(err, ctx.Err()))
		case <-ticks:
		}
	}
}

// ended says how a server ended, with the reason from its output. Call it only after the
// end.
func (e *Engine) ended(s *server) error {
	select {
	case <-s.overLimit:
		return fmt.Errorf("the model server %w (limit %d MiB)", errMemory, e.options.MemoryLimit>>20)
	default:
	}
	text := fmt.Sprintf("the model server %s", s.child.How())
	if said := reason(s.child.Last()); said != "" {
		text += ": " + said
	}
	return errors.New(text)
}

// reason returns the last three lines of a log that look like errors, otherwise the last
// line.
func reason(lines []string) string {
	const few = 3
	var wrong []string
	for _, line := range lines {
		if lower := strings.ToLower(line); strings.Contains(lower, "error") || strings.Contains(lower, "invalid") || strings.Contains(lower, "fail") {
			wrong = append(wrong, line)
		}
	}
	if len(wrong) == 0 && len(lines) > 0 {
		wrong = lines[len(lines)-1:]
	}
	return strings.Join(wrong[max(0, len(wrong)-few):], "; ")
}
