// Command faas-infer-kubernetes is faas-infer on a Kubernetes cluster: the
// provider, the agent of nodes with GPUs, and images. It is a program of its own
// because a client of Kubernetes costs every process 20 MB, and every instance of
// a function is a process of the other one.
package main

import (
	"os"

	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/command/kubernetes"
)

func main() { os.Exit(command.Run(kubernetes.NewRootCommand())) }
