// Command faas-infer-lab simulates, measures and tunes faas-infer. It is a program of its
// own so that the one that platform engineers run has nothing of it.
package main

import (
	"os"

	"github.com/faas-infer/faas-infer/command"
	lab "github.com/faas-infer/faas-infer/lab/command"
)

func main() { os.Exit(command.Run(lab.NewRootCommand())) }
