package fidelity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/process"
)

// patience is how long a process may take to become ready, including the measurement of a
// model. pause is the time between two tries.
const (
	patience = 5 * time.Minute
	pause    = 20 * time.Millisecond
)

// Measure starts an instance of a prepared model on a core to itself, and measures its
// times. Its socket is in dir.
func Measure(ctx context.Context, o RigOptions, f *Subject, prepared, dir string) (measured *Curve, err error) {
	socket := filepath.Join(dir, "alone.sock")
	var log strings.Builder
	command := exec.Command(o.Self, "instance", "--prepared", prepared, "--name", f.Name, "--threads", "1",
		"--max-batch", fmt.Sprint(f.MaxBatch), "--listen", "unix://"+socket)
	command.Stdout, command.Stderr = &log, &log
	child, err := startOn(o.Core, command)
	if err != nil {
		return nil, fmt.Errorf("start an instance: %w", err)
	}
	defer func() {
		_ = child.Process.Kill()
		<-child.Exited()
		_ = os.Remove(socket)
	}()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if measured, err = measureInstance(ctx, child.Process.Pid, socket, f); err == nil {
			return measured, nil
		}
		select {
		case <-child.Exited():
			return nil, fmt.Errorf("an instance exited (%v): %s", child.ProcessState, &log)
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause): // It is not ready yet.
		}
	}
}

// startOn starts a process that is pinned to a core.
func startOn(core int, c *exec.Cmd) (*process.Child, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("cores of this thread: %w", err)
	}
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return nil, fmt.Errorf("pin to core %d: %w", core, err)
	}
	child, err := process.Start(c, syscall.SIGKILL)
	return child, errors.Join(err, unix.SchedSetaffinity(0, &before))
}
