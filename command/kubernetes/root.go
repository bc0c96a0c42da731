// Package kubernetes holds the subcommands of faas-infer-kubernetes, one per file:
// flags and wiring, no logic of its own.
package kubernetes

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command"
)

// replaced are the subcommands of faas-infer in whose place stand this program's
// own, or that are for one machine.
var replaced = []string{"provider", "up"}

// NewRootCommand returns the faas-infer-kubernetes command with all its
// subcommands. Those of faas-infer are hidden: the provider runs some of them as
// processes of their own.
func NewRootCommand() *cobra.Command {
	root := command.NewRootCommand()
	root.Use = "faas-infer-kubernetes"
	root.Short = "Serve machine-learning models as OpenFaaS functions on a Kubernetes cluster"
	root.Long = `faas-infer-kubernetes is faas-infer's provider for Kubernetes: it takes faas-netes'
place behind the stock OpenFaaS gateway. Functions are custom resources (kind
Function, group faas-infer.dev), the instances of models pods that its scheduler
sizes and places, and ordinary functions Deployments with Services.`
	root.Example = `  faas-infer-kubernetes provider --kubeconfig ~/.kube/config
  faas-infer-kubernetes image function ./mnist --push registry.example.com/mnist:v1
  kubectl apply -k yaml/`
	for _, c := range root.Commands() {
		if slices.Contains(replaced, c.Name()) {
			root.RemoveCommand(c)
			continue
		}
		c.Hidden = true
	}
	root.AddCommand(
		NewProviderCommand(),
		NewNodeCommand(),
		NewImageCommand(),
	)
	return root
}
