// Command faas-infer serves machine-learning models as OpenFaaS functions
// within a latency objective. Its subcommands are in the package command.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/faas-infer/faas-infer/command"
)

func main() { os.Exit(run()) }

// run executes the command line. The first SIGINT or SIGTERM ends the
// command's context, so that it can leave in order; the second one kills it.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := command.NewRootCommand().ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return 130
	}
	fmt.Fprintln(os.Stderr, "faas-infer:", err)
	return 1
}
