package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/cluster/local/sandbox"
	"github.com/faas-infer/faas-infer/gpu"
)

// readyFD is the descriptor on which a process reports that it is ready.
const readyFD = 3

// Start creates an instance. Its error wraps [ErrNoCapacity] if the instance asks for
// more than is free.
func (b *Backend) Start(ctx context.Context, spec cluster.InstanceSpec) (cluster.Instance, error) {
	if err := errors.Join(ctx.Err(), b.check(spec)); err != nil {
		return cluster.Instance{}, fmt.Errorf("start instance %s: %w", spec.ID, err)
	}
	e, err := b.reserve(spec)
	if err != nil {
		return cluster.Instance{}, fmt.Errorf("start instance %s: %w", spec.ID, err)
	}
	defer b.work.Done()
	ready, err := e.launch()
	if err != nil {
		err = errors.Join(err, e.discard())
		e.forget()
		close(e.gone)
		close(e.launched)
		return cluster.Instance{}, fmt.Errorf("start instance %s: %w", spec.ID, err)
	}
	b.mu.Lock()
	instance := e.instance
	close(e.launched)
	b.mu.Unlock()
	e.readiness.Go(func() { e.awaitReady(ready) })
	b.work.Go(func() { e.follow() })
	if why := b.gpus.Why(&instance.InstanceSpec); why != "" { // It has failed since.
		e.abandon(why)
	}
	return instance, nil
}

// check refuses specs that cannot run here, and names that lead out of their
// directories.
func (b *Backend) check(spec cluster.InstanceSpec) error {
	switch {
	case !isLabel(string(spec.ID)):
		return fmt.Errorf("id is %q: it must be a DNS label", spec.ID)
	case spec.Function == "" || spec.Function[0] == '.' || strings.ContainsAny(spec.Function, "/\x00"):
		return fmt.Errorf("function is %q: it must be a plain file name that does not begin with a dot", spec.Function)
	case spec.Node != "" && spec.Node != b.options.NodeName:
		return fmt.Errorf("node is %q: it must be this one, %q", spec.Node, b.options.NodeName)
	case spec.Kind != cluster.Model && spec.Kind != cluster.Process:
		return fmt.Errorf("kind is %q: it must be %q or %q", spec.Kind, cluster.Model, cluster.Process)
	case spec.Config.CPU < 0 || spec.Config.CPU == 0 && spec.Kind == cluster.Model || spec.Config.GPU < 0 || spec.Config.Memory < 0:
		return fmt.Errorf("config is %v with %d bytes of memory: no amount may be below 0, and a model needs CPU above 0", spec.Config, spec.Config.Memory)
	case spec.Limits.CPU < 0 || spec.Limits.GPU < 0 || spec.Limits.Memory < 0:
		return fmt.Errorf("limits are %+v: no amount may be below 0", spec.Limits)
	}
	return nil
}

// isLabel reports whether s is a DNS label (RFC 1123).
func isLabel(s string) bool {
	for i, c := range []byte(s) {
		alphanumeric := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alphanumeric && (c != '-' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return s != "" && len(s) <= 63
}

// reserve claims the instance's ID and resources.
func (b *Backend) reserve(spec cluster.InstanceSpec) (*entry, error) {
	socket := b.layout.socket(spec.ID)
	e := b.newEntry(record{Spec: spec, Socket: socket, Cgroup: b.tree != nil, StartedAt: b.options.Now()})
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	if _, exists := b.entries[spec.ID]; exists {
		return nil, errors.New("an instance with this ID exists already")
	}
	if err := e.allot(); err != nil {
		return nil, err
	}
	if spec.Kind == cluster.Process && b.users {
		e.record.User = b.freeUser(string(spec.ID))
	}
	b.entries[spec.ID] = e
	b.work.Add(1)
	return e, nil
}

// freeUser chooses a user that no other instance's processes run as. It is
// called with mu held.
func (b *Backend) freeUser(id string) int {
	taken := map[int]bool{}
	for _, e := range b.entries {
		taken[e.record.User] = true
	}
	for _, user := range b.leftovers.users() {
		taken[user] = true
	}
	for try := int(fnvHash(id) % sandbox.UserCount); ; try++ {
		if user := sandbox.FirstUser + try%sandbox.UserCount; !taken[user] {
			return user
		}
	}
}

func (b *Backend) newEntry(r record) *entry {
	state := cluster.Starting
	if !r.ReadyAt.IsZero() {
		state = cluster.Ready
	}
	e := &entry{
		backend: b,
		record:  r,
		instance: cluster.Instance{
			InstanceSpec: r.Spec, State: state,
			Network: "unix", Address: r.Socket,
			StartedAt: r.StartedAt, ReadyAt: r.ReadyAt,
		},
		launched: make(chan struct{}),
		gone:     make(chan struct{}),
	}
	e.ctx, e.cancel = context.WithCancel(b.ctx)
	return e
}

func (e *entry) forget() {
	b := e.backend
	e.cancel()
	b.mu.Lock()
	delete(b.entries, e.record.Spec.ID)
	b.mu.Unlock()
}

// launch makes all parts of an instance. It makes the directory first, by which the next
// provider finds the rest. It returns the pipe on which the process reports that it is
// ready. After an error, call discard.
func (e *entry) launch() (ready *os.File, err error) {
	spec := e.record.Spec
	if err := os.Mkdir(e.backend.layout.instance(spec.ID), 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	cores, err := e.makeGroup()
	if err != nil {
		return nil, err
	}
	if ready, err = e.run(cores); err != nil {
		return nil, err
	}
	if err := e.recordProcess(); err != nil {
		_ = ready.Close()
		return nil, err
	}
	return ready, nil
}

// run starts the process.
func (e *entry) run(cores []int) (ready *os.File, err error) {
	b := e.backend
	spec := e.record.Spec
	argv, env := b.options.Command(spec, e.record.Socket)
	if len(argv) == 0 {
		return nil, errors.New("no command")
	}
	program, err := lookUp(argv[0])
	if err != nil {
		return nil, err
	}
	// With a session of its own, the instance gets no signals from the provider's
	// terminal and does not die with the provider.
	attr := &syscall.SysProcAttr{Setsid: true}
	surroundings, err := e.surround(attr)
	if err != nil {
		return nil, err
	}
	defer surroundings.groups.Close()
	log, err := b.logs.Open(spec.Function, string(spec.ID))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	ready, readyWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer readyWriter.Close()
	start := func() (int, error) {
		child, err := os.StartProcess(program, argv, &os.ProcAttr{
			Dir:   b.layout.instance(spec.ID),
			Env:   b.environment(spec, env, surroundings.env),
			Files: append([]*os.File{null, log, log, readyWriter}, surroundings.groups.Dirs...),
			Sys:   attr,
		})
		if err != nil {
			return 0, err
		}
		e.pid = child.Pid
		// e.watch waits for it, as for processes that were taken over.
		return e.pid, child.Release()
	}
	if err := spawn(e.group, cores, attr, start); err != nil {
		_ = ready.Close()
		return nil, err
	}
	return ready, nil
}

// lookUp returns the absolute path of a program, because the process starts in another
// directory.
func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// spawn starts a process in its cgroup or, without one, on its cores.
func spawn(group cgroup.Group, cores []int, attr *syscall.SysProcAttr, start func() (int, error)) (err error) {
	if group != nil {
		return group.Spawn(attr, start)
	}
	if len(cores) == 0 {
		_, err = start()
		return err
	}
	// A fork inherits its thread's affinity.
	process.Apart(func() (clean bool) {
		var set unix.CPUSet
		for _, core := range cores {
			set.Set(core)
		}
		if err = unix.SchedSetaffinity(0, &set); err == nil {
			_, err = start()
		}
		return false
	})
	return err
}

// environment assembles a process's environment. Of two entries with the same name, the
// later counts.
func (b *Backend) environment(spec cluster.InstanceSpec, command, surroundings []string) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	own := spec.Env
	if b.gpus.Present() {
		own = withoutDevices(own)
	}
	if spec.Kind == cluster.Model { // Its engine is in the main process.
		for name, value := range own {
			if gpu.Tunes(name) {
				env = append(env, name+"="+value)
			}
		}
	}
	env = append(env, sandbox.Wrap(own)...)
	env = append(env, command...)
	env = append(env, surroundings...)
	env = append(env, b.gpus.Env(&spec)...)
	env = append(env, b.layout.mark(spec.ID), fmt.Sprintf("FAAS_INFER_READY_FD=%d", readyFD), fmt.Sprintf("FAAS_INFER_LOG_BYTES=%d", b.options.LogBytes))
	return lastOfEach(env)
}

func lastOfEach(env []string) []string {
	position := map[string]int{}
	var kept []string
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		if at, ok := position[name]; ok {
			kept[at] = entry
			continue
		}
		position[name] = len(kept)
		kept = append(kept, entry)
	}
	return kept
}

// recordProcess follows the process and records its identity, so the next provider finds
// it.
func (e *entry) recordProcess() error {
	identity, err := process.Identify(e.pid)
	if err != nil {
		return err
	}
	if e.watch, err = process.Open(identity); err != nil {
		return err
	}
	e.record.Process = &identity
	return e.backend.layout.create(e.record)
}
