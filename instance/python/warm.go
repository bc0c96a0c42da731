package python

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/rs/zerolog"
)

// SocketOf returns the path in dir of the socket at which the warm process of a prepared
// bundle's environment listens.
func SocketOf(dir string, p Prepared) string {
	return filepath.Join(dir, p.Environment+".sock")
}

// Warmth keeps a warm process for every environment passed to Keep. A warm process has
// imported the libraries but loaded no model. It forks the processes of instances. Warm
// processes end with this process. Warmth is safe for concurrent use.
type Warmth struct {
	dir string
	log zerolog.Logger
	// Started, if not nil, is called with each warm process's ID before that process
	// forks any other. Set it before the first call of Keep.
	Started func(pid int)

	mu      sync.Mutex
	closed  bool
	running map[string]*warmProcess
	waiting sync.WaitGroup
}

type warmProcess struct {
	command *exec.Cmd
	alive   io.Closer
	// ready is closed when the process listens or has failed.
	ready chan struct{}
	// peak is the largest memory measured so far, in bytes.
	peak int64
}

// maxSocketPath is the maximum length of a Unix socket's path in bytes.
const maxSocketPath = 107

// NewWarmth returns a Warmth with its sockets in dir. It makes the directory.
func NewWarmth(dir string, log zerolog.Logger) (*Warmth, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if longest := SocketOf(dir, Prepared{Environment: strings.Repeat("0", 16)}); len(longest) > maxSocketPath {
		return nil, fmt.Errorf("the directory of warm processes is %s; a socket's path in it has %d bytes, and the maximum is %d, so choose a shorter one", dir, len(longest), maxSocketPath)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of warm processes: %w", err)
	}
	return &Warmth{dir: dir, log: log, running: map[string]*warmProcess{}}, nil
}

// Dir returns the directory of the sockets.
func (w *Warmth) Dir() string { return w.dir }

// Keep starts the warm process of a prepared bundle's environment, unless it already runs.
// ready is closed when the process is usable or has failed.
func (w *Warmth) Keep(p Prepared) (ready <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, errors.New("the warm processes have been stopped")
	}
	if running, ok := w.running[p.Environment]; ok {
		return running.ready, nil
	}
	arguments := append([]string{"warm", SocketOf(w.dir, p)}, p.Warm...)
	c, script, err := command(p.Python, arguments...)
	if err != nil {
		return nil, err
	}
	defer script.Close()
	alive, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, alive.Close())
	}
	c.Env = append(os.Environ(), libraries(1)...)
	c.Stderr = os.Stderr
	// The descriptors before scriptFD are for a process that serves a handler.
	c.ExtraFiles = []*os.File{nil, nil, nil, nil, script}
	if err := c.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start a warm process: %w", err), alive.Close())
	}
	if w.Started != nil {
		w.Started(c.Process.Pid)
	}
	started := &warmProcess{command: c, alive: alive, ready: make(chan struct{})}
	w.running[p.Environment] = started
	w.waiting.Go(func() { w.follow(p, started, out) })
	return started.ready, nil
}

// follow waits until a warm process is ready, and then for its end.
func (w *Warmth) follow(p Prepared, started *warmProcess, out io.Reader) {
	line, _ := bufio.NewReader(out).ReadString('\n')
	if strings.TrimSpace(line) == "ready" {
		w.log.Info().Str("environment", p.Environment).Strs("modules", p.Warm).Int("pid", started.command.Process.Pid).Msg("a warm Python process is ready")
	}
	close(started.ready)
	err := started.command.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, p.Environment)
	if !w.closed {
		w.log.Warn().AnErr("why", err).Str("environment", p.Environment).Msg("a warm Python process ended; handlers start without it")
	}
}

// Processes returns the IDs of the warm processes.
func (w *Warmth) Processes() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	var pids []int
	for _, running := range w.running {
		pids = append(pids, running.command.Process.Pid)
	}
	slices.Sort(pids)
	return pids
}

// Memory returns the memory of the warm processes in bytes: the sum of each one's peak so
// far. The peak counts because a process keeps its imported modules: if a kernel short of
// memory takes pages away for a while, that makes no room for instances. Pages shared
// with forked processes count here and not there, as in control groups.
func (w *Warmth) Memory() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var total int64
	for _, running := range w.running {
		running.peak = max(running.peak, resident(running.command.Process.Pid))
		total += running.peak
	}
	return total
}

// Close stops the warm processes. The processes that they have forked run on.
func (w *Warmth) Close() error {
	w.mu.Lock()
	w.closed = true
	var errs []error
	for environment, running := range w.running {
		// follow closes the pipe, too, once the process has ended.
		if err := running.alive.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
		_ = running.command.Process.Kill() // It may have exited already.
		if err := os.Remove(SocketOf(w.dir, Prepared{Environment: environment})); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	w.mu.Unlock()
	w.waiting.Wait()
	return errors.Join(errs...)
}
