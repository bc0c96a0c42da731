package kubernetes

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/nodes"
)

// publishYardstick stores how fast the node of this replica is, for all nodes of its type. Other
// replicas convert models' times by it. It does nothing outside the cluster.
func (p *platform) publishYardstick(ctx context.Context) {
	kind, err := p.ownType(ctx)
	if err != nil || kind == "" {
		p.base.Log.Debug().Err(err).Msg("the type of this replica's node is not known")
		return
	}
	took := p.flags.Yardstick(ctx)
	if took == 0 || ctx.Err() != nil {
		return
	}
	if err := p.history.PutYardstick(kind, took); err != nil {
		p.base.Log.Warn().Err(err).Str("nodes", kind).Msg("could not store how fast this node is")
	}
}

// ownType returns the type of the node on which this replica runs.
func (p *platform) ownType(ctx context.Context) (kind string, err error) {
	pod, err := p.core.CoreV1().Pods(p.flags.namespace).Get(ctx, p.flags.pod, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read this replica's pod: %w", err)
	}
	node, err := p.core.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read this replica's node: %w", err)
	}
	return nodes.TypeOf(node), nil
}
