// Package kubernetes holds the subcommands of faas-infer-kubernetes, one per file. It
// parses flags and connects packages; it has no logic of its own. Begin reading at
// [NewRootCommand] and [NewProviderCommand].
package kubernetes

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command"
)

// replaced are the subcommands of faas-infer that this program replaces or that only work
// on a single machine.
var replaced = []string{"import", "provider", "up"}

// NewRootCommand returns the faas-infer-kubernetes command with all its subcommands.
// It hides those of faas-infer, because the provider runs some of them as child
// processes.
func NewRootCommand() *cobra.Command {
	root := command.NewRootCommand()
	root.Use = "faas-infer-kubernetes"
	root.Short = "Serve machine-learning models as OpenFaaS functions on a Kubernetes cluster"
	root.Long = `faas-infer-kubernetes is faas-infer's provider for Kubernetes. It takes the place of
faas-netes and of the gateway. Functions are custom resources (kind
Function, group faas-infer.dev). Instances of models are pods that the provider sizes
and places; ordinary functions are Deployments with Services.`
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
		NewCopiesCommand(),
		NewImageCommand(),
		NewImportCommand(),
		NewAnswersCommand(),
	)
	return root
}
