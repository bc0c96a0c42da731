package kubernetes

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/scaling/nodes"
)

// placeholderFlags are the flags of pods that stand for missing nodes.
type placeholderFlags struct{ image, priorityClass string }

func (f *placeholderFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.image, "placeholder-image", "", "image of a program that does nothing, such as registry.k8s.io/pause:3.10: when more nodes are wanted (faas_infer_nodes_wanted), the provider creates a pod of the size of a node, for which a cluster autoscaler adds a node, and deletes the pod when the node is there; without it the provider asks for no nodes")
	flags.StringVar(&f.priorityClass, "placeholder-priority-class", "", "priority class of these pods, which should be lower than that of all others but not below the autoscaler's cutoff (-10); \"\" for the cluster's default")
}

// openPlaceholders makes the controller ask for nodes if the flags say so.
func (p *platform) openPlaceholders(o *control.Options) (err error) {
	f := p.flags
	if f.placeholders.image == "" {
		if f.placeholders.priorityClass != "" {
			return fmt.Errorf("--placeholder-priority-class %q has no effect without --placeholder-image; give both", f.placeholders.priorityClass)
		}
		return nil
	}
	p.placeholders, err = kubernetes.NewPlaceholders(kubernetes.PlaceholderOptions{
		Client: p.core, Namespace: provider.DefaultNamespace, Image: f.placeholders.image, PriorityClass: f.placeholders.priorityClass,
		NodeSelector: f.nodeSelector, Logger: p.base.Log,
	})
	if err != nil {
		return fmt.Errorf("--placeholder-image: %w", err)
	}
	o.NodesWanted = func(all []nodes.Wanted) { p.placeholders.Want(missingNodes(all)) }
	return nil
}

// missingNodes are the nodes that are wanted and not there, nil if nobody knows.
func missingNodes(all []nodes.Wanted) (missing []kubernetes.MissingNodes) {
	for _, w := range all {
		missing = append(missing, kubernetes.MissingNodes{Kind: string(w.Kind), GPU: w.Kind == nodes.GPU, Count: max(0, w.Count-w.Present), Size: w.Size})
	}
	return missing
}
