package gpus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/gpu/device"
)

const (
	// endTimeout is how long a daemon may take to exit before it is killed.
	endTimeout = 5 * time.Second
	// firstPause is the time until the second try to start a daemon that died. It doubles up to
	// longestPause.
	firstPause, longestPause = time.Second, 30 * time.Second
	// maxSilent is the number of checks in a row that a daemon may leave unanswered. On a busy machine
	// one can fail, and a restart ends all instances of the GPU.
	maxSilent = 3
)

// daemon is the MPS control daemon of one device. It may be a child of this process or of an earlier
// provider.
type daemon struct {
	device  string
	options device.MPSOptions
	// record is the file that names its process for the next provider.
	record string
	// watch follows its process; nil while none runs.
	watch *process.Watch
	// fresh: it was started and not adopted, so no instance of an earlier provider uses it.
	fresh bool
}

// ensure adopts the daemon that runs in the directory, or starts one. It is an error if another user's
// runs there: its processes and ours cannot share the GPU.
func (d *daemon) ensure(ctx context.Context) error {
	err := d.adopt(ctx)
	if err == nil || errors.Is(err, errForeign) {
		return err
	}
	d.fresh = true
	return d.start(ctx)
}

// adopt follows the daemon that an earlier provider left. One that does not answer is killed.
func (d *daemon) adopt(ctx context.Context) error {
	id, err := d.identity()
	if err != nil {
		return err
	}
	watch, err := process.Open(id)
	if err != nil {
		return err
	}
	d.watch = watch
	if err := foreign(id.PID); err != nil {
		d.release()
		return err
	}
	if err := d.options.Healthy(ctx); err != nil {
		return errors.Join(err, d.kill())
	}
	return d.write()
}

// errForeign means that a daemon belongs to another user.
var errForeign = errors.New("another user's MPS daemon runs in the state directory")

// foreign returns an error if a process belongs to another user than this one.
func foreign(pid int) error {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return nil // It is gone.
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return fmt.Errorf("%w: pid %d of user %d; end it, or run the provider as that user", errForeign, pid, owner)
	}
	return nil
}

// identity finds the daemon's process: by the record, or by the file that the daemon itself writes.
func (d *daemon) identity() (id process.Identity, err error) {
	text, err := os.ReadFile(d.record)
	if err == nil && json.Unmarshal(text, &id) == nil && id.Alive() {
		return id, nil
	}
	pid, err := d.options.PID()
	if err != nil {
		return id, err
	}
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err != nil || !isMPS(string(name), d.options.Program) {
		return id, process.ErrGone
	}
	// Another GPU's daemon may have the pid by now. The environment of another user's cannot be read.
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err == nil && !slices.Contains(strings.Split(string(env), "\x00"), pipesEnv+"="+d.options.Pipes()) {
		return id, process.ErrGone
	}
	return process.Identify(pid)
}

// pipesEnv names the directory in which a daemon listens, in its environment.
const pipesEnv = "CUDA_MPS_PIPE_DIRECTORY"

// isMPS reports whether a command line is that of the control program: the pid in an old file may be
// another process's by now.
func isMPS(command, program string) bool {
	if program == "" {
		program = device.MPSProgram
	}
	return strings.Contains(command, filepath.Base(program))
}

// start starts the daemon and returns once it answers.
func (d *daemon) start(ctx context.Context) error {
	c, err := d.options.Command(ctx)
	if err != nil {
		return err
	}
	// In a session of its own, it does not end with the provider.
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return fmt.Errorf("start the MPS daemon of %s: %w", d.device, err)
	}
	id, err := process.Identify(c.Process.Pid)
	if err == nil {
		d.watch, err = process.Open(id)
	}
	if err != nil {
		abandon(c)
		return fmt.Errorf("start the MPS daemon of %s: %w%s", d.device, err, d.options.LastLine())
	}
	// watch waits for it, as for one that was adopted.
	if err := c.Process.Release(); err != nil {
		return errors.Join(err, d.kill())
	}
	ctx, cancel := context.WithCancel(ctx)
	exited := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if d.watch.Wait(ctx) == nil {
			close(exited)
		}
	})
	err = d.options.Await(ctx, exited)
	cancel()
	waiting.Wait()
	if err != nil {
		return errors.Join(fmt.Errorf("start the MPS daemon of %s: %w%s", d.device, err, d.options.LastLine()), d.kill())
	}
	return d.write()
}

// abandon ends a daemon that was just started and cannot be followed. It is killed first: one that
// lives would never be waited for.
func abandon(c *exec.Cmd) {
	if syscall.Kill(-c.Process.Pid, syscall.SIGKILL) != nil { // It leads its session, or has ended.
		_ = c.Process.Kill()
	}
	_, _ = c.Process.Wait()
}

// write writes the record.
func (d *daemon) write() error {
	text, err := json.Marshal(d.watch.Identity())
	if err == nil {
		err = os.WriteFile(d.record, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("record of the MPS daemon of %s: %w", d.device, err)
	}
	return nil
}

// kill kills the daemon and its servers, which are in its process group.
func (d *daemon) kill() error {
	if d.watch == nil {
		return nil
	}
	d.watch.KillGroup()
	_ = d.watch.Signal(syscall.SIGKILL)
	// Servers outlive a daemon that died, and would share the device with those of the next.
	if err := process.KillAll(d.servers, endTimeout); err != nil {
		return fmt.Errorf("the MPS servers of %s: %w", d.device, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	err := d.watch.Wait(ctx)
	d.forget()
	if err != nil {
		return fmt.Errorf("the MPS daemon of %s was killed and is still there: %w", d.device, err)
	}
	return nil
}

// servers lists the processes of MPS that belong to the daemon's directory.
func (d *daemon) servers() ([]int, error) {
	const server = "nvidia-cuda-mps" // The kernel keeps 15 bytes of a name.
	pids, err := process.Marked(pipesEnv + "=" + d.options.Pipes())
	return slices.DeleteFunc(pids, func(pid int) bool {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return err != nil || strings.TrimSpace(string(name)) != server
	}), err
}

// forget stops following a daemon that has exited, and removes what names it.
func (d *daemon) forget() {
	d.watch.Reap()
	d.watch.Close()
	d.watch = nil
	_ = os.Remove(d.record)
}

// end asks the daemon to exit, and kills it otherwise. It returns once it is gone.
func (d *daemon) end() error {
	if d.watch == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if d.options.Quit(ctx) == nil && d.watch.Wait(ctx) == nil {
		d.watch.KillGroup() // Its servers end with it; this is for one that does not.
		d.forget()
		return os.RemoveAll(d.options.Directory)
	}
	return errors.Join(d.kill(), os.RemoveAll(d.options.Directory))
}

// release stops following the daemon, which runs on.
func (d *daemon) release() {
	if d.watch != nil {
		d.watch.Close()
		d.watch = nil
	}
}

// failed waits until the daemon exits or does not answer any more, and returns the reason. It returns
// nil once ctx ends.
func (d *daemon) failed(ctx context.Context, every time.Duration) error {
	exited := make(chan struct{})
	waitCtx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	waiting.Go(func() {
		if d.watch.Wait(waitCtx) == nil {
			close(exited)
		}
	})
	tick := time.Tick(every)
	for silent := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-exited:
			return fmt.Errorf("its MPS daemon ended%s", d.options.LastLine())
		case <-tick:
			err := d.options.Healthy(ctx)
			if err == nil {
				silent = 0
			} else if silent++; silent >= maxSilent && ctx.Err() == nil {
				return err
			}
		}
	}
}

// keep restarts a device's daemon whenever it fails, until ctx ends. Instances cannot go on without
// it, and nothing new starts on the device meanwhile.
func (g *GPUs) keep(ctx context.Context, d *daemon) {
	for {
		err := d.failed(ctx, g.options.Every)
		if err == nil {
			return
		}
		g.log.Error().Err(err).Str("device", d.device).Msg("the MPS daemon of a GPU failed; it is started again")
		g.pause(d.device, "its MPS daemon is started again")
		g.fail(d.device, "the MPS daemon of its GPU failed: "+err.Error())
		if err := d.kill(); err != nil {
			g.log.Error().Err(err).Msg("a failed MPS daemon is left")
		}
		for n := 1; ; n++ {
			if err = d.start(ctx); err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			g.log.Error().Err(err).Str("device", d.device).Msg("the MPS daemon of a GPU does not start")
			g.pause(d.device, err.Error())
			if !backoff.Wait(ctx, backoff.Pause(n, firstPause, longestPause)) {
				return
			}
		}
		g.pause(d.device, "")
		g.log.Info().Str("device", d.device).Msg("the MPS daemon of a GPU serves again")
	}
}

// pause says why nothing may start on a device for the moment, or that something may.
func (g *GPUs) pause(uuid, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if why == "" {
		delete(g.paused, uuid)
		return
	}
	g.paused[uuid] = why
}
