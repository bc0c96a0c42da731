package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/instance/engine"
)

// Run executes the command line and returns the exit code: 0, 1 after an error, 2 after a wrong call, 130 after
// a signal, or the code of a program that the command ran. The first SIGINT, SIGTERM or SIGHUP
// ends the command's context, so the command can shut down in order. The second SIGINT or SIGTERM
// kills the process, unless the command handles it. Another SIGHUP changes nothing: a terminal that
// closes may send two, by the kernel and by the shell. Under nohup SIGHUP stays ignored.
func Run(root *cobra.Command) int {
	ctx := context.Background()
	if !signal.Ignored(syscall.SIGHUP) {
		hangup, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
		ctx = hangup
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := engine.DisableTelemetry(); err != nil { // For this process and all its children.
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		return 1
	}
	strict(root)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil && onlyCanceled(err):
		return 130
	}
	// An error with an exit code has been printed already.
	if coded := interface{ ExitCode() int }(nil); !errors.As(err, &coded) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
	}
	return exitCode(err)
}

// exitCode returns the exit code of the program after an error of a command.
func exitCode(err error) int {
	if coded := interface{ ExitCode() int }(nil); errors.As(err, &coded) {
		return coded.ExitCode()
	}
	if errors.As(err, &usageError{}) {
		return usageExit
	}
	return 1
}

// onlyCanceled reports whether an error consists only of the command's cancellation. An
// error that was joined with it must be printed.
func onlyCanceled(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !onlyCanceled(err) })
	}
	if inner := errors.Unwrap(err); inner != nil {
		return onlyCanceled(inner)
	}
	return errors.Is(err, context.Canceled)
}
