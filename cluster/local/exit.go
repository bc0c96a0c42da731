package local

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/logs"
	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/postmortem"
)

// killTimeout is how long killed processes may take to exit.
const killTimeout = 5 * time.Second

// logAge is the maximum age of logs of exited instances.
const logAge = 7 * 24 * time.Hour

// follow waits for an instance's exit and cleans up after it.
func (e *entry) follow() {
	if e.watch.Wait(e.backend.ctx) != nil {
		e.cancel()
		e.readiness.Wait()
		return
	}
	e.cancel()
	e.readiness.Wait()
	e.cleanUp()
}

// cleanUp removes all that is left of an instance whose process has exited, and
// reports why it exited.
func (e *entry) cleanUp() {
	b := e.backend
	id := e.record.Spec.ID
	b.pinning.Lock()
	e.removing = true
	b.pinning.Unlock()
	outOfMemory := e.outOfMemory()
	err := e.killRest()
	// Until it is reaped, no other process can get its pid.
	exit := e.watch.Reap()
	e.watch.Close()
	line := b.logs.Cause(e.record.Spec.Function, string(id), codeOf(exit))
	err = errors.Join(err, e.remove())
	if err != nil {
		b.leftovers.putOff(e.record, err)
	}
	b.pruneLogs(e.record.Spec.Function, id)

	e.emit(func(i *cluster.Instance) bool {
		i.Reason = reason(e, exit, outOfMemory, i.State == cluster.Stopping, line)
		i.State = cluster.Exited
		delete(b.entries, id)
		return true
	})
	close(e.gone)
}

// codeOf returns an exit's code as [postmortem.Code] does.
func codeOf(exit process.Exit) int {
	switch {
	case !exit.Known:
		return postmortem.Unknown
	case exit.Signal != 0:
		return 128 + int(exit.Signal)
	}
	return exit.Code
}

// reason says why an instance exited, for people. It is called with mu held.
func reason(e *entry, exit process.Exit, outOfMemory, stopping bool, line string) string {
	unclean := exit.Known && (exit.Signal != 0 || exit.Code != 0)
	switch {
	case outOfMemory && (!exit.Known || exit.Signal == unix.SIGKILL || exit.Code == 128+int(unix.SIGKILL)):
		if limit := memoryLimit(e.record.Spec); limit > 0 {
			return fmt.Sprintf("out of memory (limit %d MiB)", limit>>20)
		}
		return "out of memory"
	case e.failure != "":
		return withLine(e.failure, line)
	case stopping && (!unclean || exit.Signal == unix.SIGTERM):
		return "stopped"
	case exit.Signal != 0:
		return exit.String()
	}
	return withLine(exit.String(), line)
}

func memoryLimit(spec cluster.InstanceSpec) int64 {
	if spec.Kind == cluster.Process {
		return spec.Limits.Memory
	}
	return spec.Config.Memory
}

func withLine(text, line string) string {
	if line == "" {
		return text
	}
	return text + ": " + line
}

func (e *entry) outOfMemory() bool {
	if e.group == nil {
		return false
	}
	group := e.group
	if e.record.Spec.Kind == cluster.Process {
		group = group.Inner()
	}
	usage, err := group.Usage()
	return err == nil && usage.OutOfMemory > 0
}

// kill kills all processes of an instance at once.
func (e *entry) kill() {
	if e.group != nil {
		_ = e.group.Kill()
	}
	e.watch.KillGroup()
	_ = e.watch.Signal(syscall.SIGKILL)
}

// killRest kills the processes that an instance's main process has left behind.
func (e *entry) killRest() error {
	if e.group != nil {
		return e.group.Kill()
	}
	e.watch.KillGroup()
	return e.backend.killMarked(e.record.Spec.ID)
}

// killMarked kills the processes that carry an instance's mark.
func (b *Backend) killMarked(id cluster.InstanceID) error {
	mark := b.layout.mark(id)
	return process.KillAll(func() ([]int, error) { return process.Marked(mark) }, killTimeout)
}

// remove deletes an instance's cgroup, cores, socket and directory. The directory
// comes last, because it marks that something is left.
func (e *entry) remove() error {
	err := e.release()
	if e.group != nil {
		err = errors.Join(err, e.group.Delete())
	}
	if err != nil {
		return err
	}
	return e.backend.layout.remove(e.record.Spec.ID)
}

// discard undoes a start that failed halfway.
func (e *entry) discard() error {
	var err error
	if e.group != nil {
		err = e.group.Kill()
	}
	if e.pid != 0 {
		// It is our child and not reaped yet, so the pid is still its own.
		_ = unix.Kill(-e.pid, unix.SIGKILL)
		_ = unix.Kill(e.pid, unix.SIGKILL)
		_, _ = unix.Wait4(e.pid, nil, 0, nil)
	}
	if e.watch != nil {
		e.watch.Close()
	}
	return errors.Join(err, e.remove())
}

// The times between two looks for logs that have grown too large, and after one was found. An
// instance that has filled its log meanwhile waits.
const (
	logPause     = 500 * time.Millisecond
	logPauseBusy = 10 * time.Millisecond
)

// keepLogs rotates logs that have grown too large.
func (b *Backend) keepLogs() {
	for pause := logPause; ; {
		select {
		case <-b.ctx.Done():
			return
		case <-time.After(pause):
		}
		if pause = logPause; b.rotateLogs() {
			pause = logPauseBusy
		}
	}
}

// rotateLogs reports whether there was one to rotate.
func (b *Backend) rotateLogs() (found bool) {
	b.mu.Lock()
	functions := map[string]string{}
	for id, e := range b.entries {
		functions[string(id)] = e.record.Spec.Function
	}
	b.mu.Unlock()
	for id, function := range functions {
		if !b.logs.Due(function, id) {
			continue
		}
		found = true
		err := b.logs.Rotate(function, id)
		switch {
		case errors.Is(err, logs.ErrDropped):
			b.log.Error().Err(err).Str("instance", id).Msg("no space left for a copy of a log; emptied it")
		case err != nil:
			b.log.Error().Err(err).Str("instance", id).Msg("cannot rotate a log; what the instance prints beyond its limit is dropped")
		}
	}
	return found
}

// pruneLogs deletes old logs of a function's instances that have exited, counting
// the instance going as exited.
func (b *Backend) pruneLogs(function string, going cluster.InstanceID) {
	err := b.logs.Prune(function, func(id string) bool {
		return id != string(going) && b.exists(id)
	}, b.options.Now().Add(-logAge))
	if err != nil {
		b.log.Error().Err(err).Str("function", function).Msg("cannot delete old logs")
	}
}
