package instances

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/cluster/local/sandbox"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/cuda"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/standby"
)

// takeStandby lets a process that stands by for this one's share of a GPU, or an empty one, become the instance. It
// returns nil if there is none, or if the instance needs what only this process has.
func (f *Flags) takeStandby(empty bool) *standby.Taken {
	if f.standby == "" || !f.onGPU() && !empty || f.Library != "" {
		return nil
	}
	if _, beside := f.beside(); beside {
		return nil
	}
	if secrets, _ := os.ReadDir(sandbox.Dir()); len(secrets) > 0 {
		return nil // They are mounted for this process.
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil
	}
	ready, _ := strconv.Atoi(os.Getenv(instance.ReadyEnv)) // 0 for none.
	// The last flag counts: it does not look for a standby again.
	o := standby.Order{Arguments: append(os.Args[2:len(os.Args):len(os.Args)], "--standby="), Env: os.Environ(), Dir: dir}
	socket := standby.SocketOf(f.standby, o.Env, OfShare)
	if empty {
		socket = EmptySocket(f.standby)
	}
	taken, err := standby.Take(socket, o, os.Stderr, ready)
	if err != nil {
		return nil
	}
	if ready > 0 {
		_ = syscall.Close(ready) // Its reader waits until nobody has it.
	}
	return taken
}

// EmptySocket is where the empty instance of a node waits, in the directory of standbys: it has the
// library and no model, and becomes an instance of any role with [Role.FromEmpty].
func EmptySocket(dir string) string { return filepath.Join(dir, "empty.sock") }

// OfShare reports whether a variable says which GPU a process uses, and how: CUDA's libraries read it
// when they are loaded, so a standby must have the same.
func OfShare(name string) bool {
	return gpu.Ours(name) || strings.HasPrefix(name, "CUDA_") || strings.HasPrefix(name, "CUDNN_") || gpu.Tunes(name)
}

// exited is the exit code of a process that has printed its error, nil for 0.
func exited(code int) error {
	if code == 0 {
		return nil
	}
	return exitCode(code)
}

type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func (c exitCode) ExitCode() int { return int(c) }

// newStandByCommand returns "faas-infer instance stand-by".
func newStandByCommand() *cobra.Command {
	var socket string
	var empty bool
	c := &cobra.Command{
		Use:     "stand-by --socket PATH",
		Short:   "Initialise CUDA, or only load the library, wait at a socket, and become the instance that asks",
		Example: "  faas-infer instance stand-by --socket /run/standby/0123456789abcdef.sock",
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := standby.UntilEnd(c.Context(), c.InOrStdin())
			defer cancel()
			initialise, healthy := cuda.Warm, cuda.Healthy
			if empty {
				initialise, healthy = onnxruntime.Load, func() error { return nil }
			}
			if done, err := standby.Initialise(ctx, func() error { return initialise("") }); !done || err != nil {
				return err
			}
			b, err := standby.Await(ctx, socket, c.OutOrStdout(), healthy)
			if b == nil {
				return err
			}
			return become(c.Context(), b)
		},
	}
	c.Flags().StringVar(&socket, "socket", "", "where to wait")
	c.Flags().BoolVar(&empty, "empty", false, "load the ONNX Runtime library only, to become any instance that may")
	return c
}

// become runs an instance's command line in this process.
func become(ctx context.Context, b *standby.Became) error {
	os.Clearenv()
	for _, entry := range b.Env {
		name, value, _ := strings.Cut(entry, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	if b.Report > 0 {
		if err := os.Setenv(instance.ReadyEnv, strconv.Itoa(b.Report)); err != nil {
			return err
		}
	}
	if err := os.Chdir(b.Dir); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.Follow(cancel, func() { os.Exit(1) })
	c := NewCommand()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(b.Arguments)
	code := 0
	if err := c.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "faas-infer: %v\n", err)
		code = 1
	}
	return b.Exit(code)
}
