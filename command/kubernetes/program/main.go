// Command faas-infer-kubernetes runs faas-infer on a Kubernetes cluster: the provider, the
// agent of nodes with GPUs, and the building of images. It is separate from faas-infer
// because the Kubernetes client costs every process 20 MB, and every instance of a
// function is a process of faas-infer. Begin reading at package command/kubernetes.
package main

import (
	"os"

	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/command/kubernetes"
)

func main() { os.Exit(command.Run(kubernetes.NewRootCommand())) }
