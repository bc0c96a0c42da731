// Command faas-infer serves machine-learning models as OpenFaaS functions
// within a latency objective. Its subcommands are in the package command.
package main

import (
	"os"

	"github.com/faas-infer/faas-infer/command"
)

func main() { os.Exit(command.Run(command.NewRootCommand())) }
