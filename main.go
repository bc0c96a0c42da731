// Command faas-infer serves machine-learning models as OpenFaaS functions
// within a latency objective. Its subcommands are in package command: begin there with
// NewRootCommand.
package main

import (
	"os"

	"github.com/faas-infer/faas-infer/command"
)

func main() { os.Exit(command.Run(command.NewRootCommand())) }
