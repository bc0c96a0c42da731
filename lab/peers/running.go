package peers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/lab/rig"
)

const (
	// starting is how long a server may take until it answers.
	starting = 3 * time.Minute
	// stopping is how long a server may take to exit after SIGTERM.
	stopping = 15 * time.Second
	// idling is how long a server may take to become idle after its start. It is idle if
	// it uses less than 1/idlePart of a core during idleWindow.
	idling     = 15 * time.Second
	idleWindow = 500 * time.Millisecond
	idlePart   = 5
	// poll is the time between two checks of a starting server.
	poll = 50 * time.Millisecond
	// markEnv is an environment variable that marks all processes of a server.
	markEnv = "FAAS_INFER_PEER"
)

// Server is the command of a server in Python.
type Server struct {
	// Dir is its directory, where it also writes its log. Python is its interpreter.
	Dir, Python string
	// Options is the file that the server reads its options from. Its name is in FAAS_INFER_PEER.
	Options   string
	Argv, Env []string
	// URL is where it serves, Ready the path of its readiness check.
	URL, Ready string
	// CleanUp, if not nil, removes what a killed server leaves behind.
	CleanUp func()
}

// Running is a started server.
type Running struct {
	*process.Child
	Server
	output *os.File
}

// Anywhere is the core of processes that may use all of them.
const Anywhere = -1

// onCore runs f so that the processes that it starts are pinned to a core.
func onCore(core int, f func() error) error {
	if core == Anywhere {
		return f()
	}
	return rig.RunOnCore(core, f)
}

// Start starts the server on a core, or with [Anywhere] on all, and waits until it is ready.
func (s Server) Start(ctx context.Context, core int) (*Running, error) {
	r := &Running{Server: s}
	var err error
	if r.output, err = os.Create(filepath.Join(s.Dir, "log")); err != nil {
		return nil, err
	}
	c := exec.Command(s.Argv[0], s.Argv[1:]...)
	c.Dir, c.Stdout, c.Stderr = s.Dir, r.output, r.output
	bin := filepath.Dir(s.Python)
	c.Env = slices.Concat(os.Environ(), []string{
		markEnv + "=" + s.Options, "PATH=" + bin + ":" + os.Getenv("PATH"), "VIRTUAL_ENV=" + filepath.Dir(bin),
		"PYTHONPATH=" + s.Dir, "PYTHONNOUSERSITE=1", "PYTHONUNBUFFERED=1", "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1",
	}, s.Env)
	err = onCore(core, func() (err error) {
		r.Child, err = process.Start(c, syscall.SIGTERM)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, r.output.Close())
	}
	if err := r.await(ctx); err != nil {
		r.Stop()
		return nil, err
	}
	return r, nil
}

// await waits until the server's readiness check succeeds.
func (r *Running) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, starting)
	defer cancel()
	for {
		if status, _, err := rig.Get(ctx, http.DefaultClient, r.URL+r.Ready); err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-r.Exited():
			return fmt.Errorf("the server exited: %v: %s", r.ProcessState, r.Said())
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready after %v: %s", starting, r.Said())
		case <-time.After(poll):
		}
	}
}

// AwaitIdle waits until the server has finished the work of its start and is idle. It
// returns after idling even if the server is not.
func (r *Running) AwaitIdle(ctx context.Context) {
	used := func() (sum time.Duration) {
		for _, pid := range marked(r.Options) {
			t, _ := rig.ProcessorTime(pid) // The process may have exited.
			sum += t
		}
		return sum
	}
	for end := time.Now().Add(idling); time.Now().Before(end) && ctx.Err() == nil; {
		before := used()
		select {
		case <-ctx.Done():
		case <-time.After(idleWindow):
		}
		if used()-before < idleWindow/idlePart {
			return
		}
	}
}

// Said returns the end of the server's output.
func (r *Running) Said() string {
	const last = 600
	text, _ := os.ReadFile(r.output.Name())
	return strings.Join(strings.Fields(string(text[max(0, len(text)-last):])), " ")
}

// Stop stops a server and all processes that it started.
func (r *Running) Stop() {
	_ = r.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.Exited():
	case <-time.After(stopping):
	}
	for _, pid := range marked(r.Options) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // The process may have exited.
	}
	<-r.Exited()
	_ = r.output.Close()
	if r.CleanUp != nil {
		r.CleanUp()
	}
}

// marked returns the processes whose environment has the mark.
func marked(mark string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !slices.Contains(strings.Split(string(text), "\x00"), markEnv+"="+mark) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}
