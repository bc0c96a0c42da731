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
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/shadow"
)

// podShadows are the shadows of instances in pods. A shadow opens its part of the copy of the model that
// the pods of its function on a node share, so only namespaces with such copies can have shadows.
type podShadows struct {
	command.Shadows
	flags   *providerFlags
	models  *imageModels
	backend *kubernetes.Backend
}

var _ control.Shadows = podShadows{}

// Check implements [control.Shadows].
func (s podShadows) Check(f *provider.Function, file string) error {
	if err := s.Shadows.Check(f, file); err != nil {
		return err
	}
	if namespace := f.Deployment.Namespace; !s.flags.copied(namespace) {
		return fmt.Errorf("the pods of namespace %q share no prepared copies of models, of which shadows take their parts: install the option copies, and name the namespace in the provider's --copies", namespace)
	}
	return nil
}

// Blocks implements [control.Shadows]. It brings the model here first.
func (s podShadows) Blocks(ctx context.Context, file string) (*shadow.Model, error) {
	if err := s.models.Here(ctx, file); err != nil {
		return nil, err
	}
	return s.Shadows.Blocks(ctx, file)
}

// Transfer implements [control.Shadows]. The time by TCP is assumed: kernels copy each byte several times, and
// through shared memory it is copied once.
func (podShadows) Transfer() shadow.Transfer { return shadow.Transfer{Fixed: 0.3, PerMiB: 0.5} }

// Unwanted implements [control.Shadows]: a pod is not kept for the next shadow.
func (podShadows) Unwanted() {}

// Pair implements [control.Shadows].
func (s podShadows) Pair(ctx context.Context, id, body cluster.InstanceID) error {
	return kubernetes.Pair(ctx, s.backend, id, body)
}

// relayAt is where bodies connect to a shadow whose pod listens at an address.
func relayAt(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address // Its body will not reach it, and says so.
	}
	return net.JoinHostPort(host, strconv.Itoa(podspec.RelayPort))
}

// shadowArguments are the further arguments of a shadow.
func shadowArguments(spec cluster.InstanceSpec) []string {
	return []string{"--shadow", spec.Part, "--relay", fmt.Sprintf("tcp://:%d", podspec.RelayPort)}
}
