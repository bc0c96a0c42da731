// Command faas-infer serves machine-learning models as OpenFaaS functions
// within a latency objective. Its subcommands are in the package command.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/faas-infer/faas-infer/command"
)

func main() { os.Exit(run()) }

// run executes the command line. The first SIGINT or SIGTERM ends the
// command's context, so that it can leave in order; the second one kills it,
// unless the command has a use for that one too.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := command.NewRootCommand().ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil && onlyCanceled(err):
		return 130
	}
	// Some have said why themselves.
	if coded := interface{ ExitCode() int }(nil); errors.As(err, &coded) {
		return coded.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "faas-infer:", err)
	return 1
}

// onlyCanceled reports whether an error tells of nothing but that the command
// was cancelled; what was joined with it is to be told.
func onlyCanceled(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !onlyCanceled(err) })
	}
	if inner := errors.Unwrap(err); inner != nil {
		return onlyCanceled(inner)
	}
	return errors.Is(err, context.Canceled)
}
