// Command faas-infer-lab simulates, measures and tunes faas-infer. It is a separate
// program, to keep its code out of the one that platform engineers run.
package main

import (
	"os"

	"github.com/faas-infer/faas-infer/command"
	lab "github.com/faas-infer/faas-infer/lab/command"
)

func main() { os.Exit(command.Run(lab.NewRootCommand())) }
