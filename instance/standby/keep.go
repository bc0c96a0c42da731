package standby

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/backoff"
)

// Keeper keeps one standby for each GPU, with the share that was used last, or one at a fixed socket. It
// is safe for concurrent use.
type Keeper struct {
	options Options
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup

	mu sync.Mutex
	// kept has the standby of each device.
	kept map[string]*process
}

// Options say how standbys are started.
type Options struct {
	// Dir has their sockets. The path must be short.
	Dir string
	// Command returns the command line of a standby that listens at a socket.
	Command func(socket string) []string
	// Ours reports whether a variable says what share a process has. With a Socket in Dir all standbys
	// listen there, and it does not count.
	Ours   func(name string) bool
	Socket string
	// Pause is the time from an instance's start to that of the next standby, which would slow it down.
	Pause time.Duration
	Log   zerolog.Logger
}

// process stands for the standbys at a socket, one after the other, until it is cancelled.
type process struct {
	socket string
	cancel context.CancelFunc
}

// NewKeeper returns a keeper. It makes the directory.
func NewKeeper(o Options) (*Keeper, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of standbys: %w", err)
	}
	k := &Keeper{options: o, kept: map[string]*process{}}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k, nil
}

// Used says that an instance is started with this environment on a device. After a pause a standby for
// another one like it is ready, and one of another share on that device has ended.
func (k *Keeper) Used(device string, env []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return
	}
	socket := k.options.Socket
	if socket == "" {
		socket = SocketOf(k.options.Dir, env, k.options.Ours)
	}
	if now := k.kept[device]; now != nil {
		if now.socket == socket {
			return // Its own follower starts the next one, if this was taken.
		}
		now.cancel()
	}
	p := &process{socket: socket}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(k.ctx)
	k.kept[device] = p
	k.work.Go(func() { k.keep(ctx, device, socket, slices.Clone(env)) })
}

// Keeps reports whether a process stands by for a device, or is being started.
func (k *Keeper) Keeps(device string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept[device] != nil
}

// Drop ends a device's standby, if it has one.
func (k *Keeper) Drop(device string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.kept[device]; now != nil {
		now.cancel()
		delete(k.kept, device)
	}
}

// keep starts one standby after the other, until ctx ends or one fails.
func (k *Keeper) keep(ctx context.Context, device, socket string, env []string) {
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if ctx.Err() == nil {
			delete(k.kept, device) // The next instance's start tries again.
		}
	}()
	for backoff.Wait(ctx, k.options.Pause) {
		if err := k.run(ctx, device, socket, env); err != nil {
			if ctx.Err() == nil {
				k.options.Log.Warn().Err(err).Str("device", device).Msg("no process stands by; instances start without it")
			}
			return
		}
	}
}

// run runs a standby until it is taken, and returns its error if it ends before.
func (k *Keeper) run(ctx context.Context, device, socket string, env []string) error {
	argv := k.options.Command(socket)
	c := exec.Command(argv[0], argv[1:]...)
	inherited := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return k.options.Ours != nil && k.options.Ours(name)
	})
	c.Env = append(inherited, env...)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// It ends when its input does, also if this process is killed.
	alive, err := c.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return errors.Join(err, alive.Close())
	}
	if err := c.Start(); err != nil {
		return errors.Join(fmt.Errorf("start a standby: %w", err), alive.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = alive.Close() })
	defer stop()
	lines := bufio.NewScanner(out)
	if lines.Scan() && lines.Text() == ready {
		k.options.Log.Info().Str("device", device).Int("pid", c.Process.Pid).Msg("a process stands by")
		if lines.Scan() && lines.Text() == taken {
			go func() { _ = c.Wait() }() // It is an instance now; only its entry in the process table is ours.
			return nil
		}
	}
	return fmt.Errorf("a standby ended: %w", cmp.Or(errors.Join(c.Wait(), ctx.Err()), io.EOF))
}

// Close ends the standbys that have not been taken.
func (k *Keeper) Close() error {
	k.mu.Lock()
	k.cancel()
	k.mu.Unlock()
	k.work.Wait()
	return nil
}
