package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/nodes"
)

// The yardstick of this replica's node is read a few times: a busy node looks slower than it is.
const (
	yardstickReadings = 10
	yardstickPause    = 30 * time.Second
)

// publishYardstick stores how fast the node of this replica is, for all nodes of its type. Other
// replicas convert models' times by it. It does nothing outside the cluster.
func (p *platform) publishYardstick(ctx context.Context) {
	everyReading(ctx, func() {
		p.learnType(ctx)
		kind := p.ownKind()
		if kind == "" {
			return
		}
		took := p.flags.Models().Yardstick(ctx)
		if took == 0 || ctx.Err() != nil {
			return
		}
		if err := p.history.PutYardstick(kind, took); err != nil {
			p.base.Log.Warn().Err(err).Str("nodes", kind).Msg("could not store how fast this node is")
		}
	})
}

// everyReading calls read for each reading of the yardstick, with pauses, until ctx ends.
func everyReading(ctx context.Context, read func()) {
	ticker := time.Tick(yardstickPause)
	for n := 1; ; n++ {
		read()
		if n == yardstickReadings {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker:
		}
	}
}

// yardstick returns the yardstick of a type of nodes, or of this replica's node for "".
func (p *platform) yardstick(kind string) float64 {
	if kind = cmp.Or(kind, p.ownKind()); kind == "" {
		return 0
	}
	return p.history.Yardstick(kind)
}

// ownKind is the type of this replica's node, "" if it is not known.
func (p *platform) ownKind() string {
	kind, _ := p.kind.Load().(string)
	return kind
}

// learnType reads the type of this replica's node.
func (p *platform) learnType(ctx context.Context) {
	kind, err := p.ownType(ctx)
	if err != nil || kind == "" {
		p.base.Log.Debug().Err(err).Msg("the type of this replica's node is not known")
		return
	}
	p.kind.Store(kind)
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
