package kubernetes

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/children"
	"github.com/faas-infer/faas-infer/provider/control"
)

// shadowPlatform is [command.ShadowPlatform] for instances in pods. A shadow opens its part of the copy of the model that
// the pods of its function on a node share, so only namespaces with such copies can have shadows. A pod is not kept
// for the next shadow.
func (f *providerFlags) shadowPlatform(b command.Base, local *children.Models, models *imageModels, backend *kubernetes.Backend) control.ShadowPlatform {
	p := command.ShadowPlatform(b, local, b.Identity.Dial, relayAt)
	layers := p.Layers
	p.Layers = func(ctx context.Context, file string) ([]byte, error) {
		if err := models.Here(ctx, file); err != nil {
			return nil, err
		}
		return layers(ctx, file)
	}
	p.Check = func(fn *provider.Function) error {
		if namespace := fn.Deployment.Namespace; !f.copied(namespace) {
			return fmt.Errorf("the pods of namespace %q share no prepared copies of models, of which shadows take their parts: install the option copies, and name the namespace in the provider's --copies", namespace)
		}
		return nil
	}
	p.Pair = func(ctx context.Context, shadow, body cluster.InstanceID) error {
		return kubernetes.Pair(ctx, backend, shadow, body)
	}
	return p
}

// relayAt is where bodies connect to a shadow whose pod listens at an address.
func relayAt(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address // Its body will not reach it, and says so.
	}
	return net.JoinHostPort(host, strconv.Itoa(podspec.RelayPort))
}
