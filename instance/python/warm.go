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

// SocketOf is where a warm process of a prepared bundle's environment listens, below
// a directory.
func SocketOf(dir string, p Prepared) string {
	return filepath.Join(dir, p.Environment+".sock")
}

// Warmth keeps a warm process for every environment that was asked for: one that has
// the libraries imported and no model loaded, and forks the processes of instances.
// They end with this process. It is safe for concurrent use.
type Warmth struct {
	dir string
	log zerolog.Logger
	// Started, which may be nil, is told of each warm process before it forks any other.
	// It is set before the first.
	Started func(pid int)

	mu      sync.Mutex
	closed  bool
	running map[string]*warmProcess
	waiting sync.WaitGroup
}

type warmProcess struct {
	command *exec.Cmd
	alive   io.Closer
	// ready is closed when it listens, or has failed.
	ready chan struct{}
	// most is the most memory that it was seen to hold, in bytes.
	most int64
}

// longestSocket is the longest path of a Unix socket in bytes.
const longestSocket = 107

// NewWarmth keeps the sockets in a directory, which it makes.
func NewWarmth(dir string, log zerolog.Logger) (*Warmth, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if longest := SocketOf(dir, Prepared{Environment: strings.Repeat("0", 16)}); len(longest) > longestSocket {
		return nil, fmt.Errorf("the directory of warm processes, %s, has too long a name for a socket in it", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of warm processes: %w", err)
	}
	return &Warmth{dir: dir, log: log, running: map[string]*warmProcess{}}, nil
}

// Dir is the directory of the sockets.
func (w *Warmth) Dir() string { return w.dir }

// Keep starts the warm process of a prepared bundle's environment, unless it runs.
// The channel is closed once it can be used, or cannot.
func (w *Warmth) Keep(p Prepared) (ready <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, errors.New("the warm processes were ended")
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
	// The first descriptors are those of a process of its own.
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

// Processes are the IDs of the warm processes.
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

// Memory is what the warm processes hold, in bytes: for each, the most that it was seen
// to. The modules that a process has imported stay its own, and a kernel short of memory that takes
// pages of it away for a while does not make room for instances. Pages that forked
// processes share with it are counted here, and not theirs, as by control groups.
func (w *Warmth) Memory() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var total int64
	for _, running := range w.running {
		running.most = max(running.most, resident(running.command.Process.Pid))
		total += running.most
	}
	return total
}

// Close ends the warm processes; those that they have forked go on.
func (w *Warmth) Close() error {
	w.mu.Lock()
	w.closed = true
	var errs []error
	for environment, running := range w.running {
		_ = running.command.Process.Kill() // It may have gone by itself.
		errs = append(errs, running.alive.Close())
		if err := os.Remove(SocketOf(w.dir, Prepared{Environment: environment})); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	w.mu.Unlock()
	w.waiting.Wait()
	return errors.Join(errs...)
}
