package kubernetes

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/openfaas/faas-provider/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/model/bundle/image"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// imageDir is where the bundles of models' images are kept.
func (f *providerFlags) imageDir() string {
	if f.images != "" {
		return f.images
	}
	return filepath.Join(f.State(), "images")
}

const (
	// pullTimeout bounds how long a deployment waits for its image's bundle.
	pullTimeout = 2 * time.Minute
	// wantedFor is how long a bundle is kept in any case: until its model's times are
	// known, of which others may have their turn before.
	wantedFor = time.Hour
)

// images finds models in the images of functions.
type images struct {
	platform *platform
	models   *imageModels
}

var _ control.Bundles = (*images)(nil)

// Model implements [control.Bundles]: the bundle is the image by its digest, the
// file a copy on this machine.
func (i *images) Model(ctx context.Context, f *provider.Function) (reference, file string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	keychain, err := i.keychain(ctx, f.Deployment)
	if err != nil {
		return "", "", err
	}
	b, err := image.Pull(ctx, f.Deployment.Image, keychain, i.models.root, image.WithPlain(i.platform.flags.plain...))
	if err != nil {
		return "", "", err
	}
	if err := b.CheckModel(); err != nil {
		return "", "", fmt.Errorf("image %q: %w", f.Deployment.Image, err)
	}
	if file, err = b.ModelFile(f.Inference.Model); err != nil {
		return "", "", fmt.Errorf("image %q: %w", f.Deployment.Image, err)
	}
	inside, err := b.InImage(file)
	if err != nil {
		return "", "", err
	}
	i.models.keep(file, inside+"@"+b.Digest)
	i.makeRoom()
	return b.Reference, file, nil
}

// makeRoom removes the bundles that were wanted longest ago, where there are too many:
// they are pulled again should somebody want them.
func (i *images) makeRoom() {
	p := i.platform
	freed, err := image.Evict(i.models.root, p.flags.imagesSize.Value(), time.Now().Add(-wantedFor))
	if err != nil {
		p.base.Log.Warn().Err(err).Msg("make room among the bundles of models' images")
	}
	if freed > 0 {
		p.base.Log.Info().Int64("bytes", freed).Msg("removed the bundles of models' images that were wanted longest ago")
	}
}

// keychain is that of the deployment's secrets for registries.
func (i *images) keychain(ctx context.Context, d types.FunctionDeployment) (authn.Keychain, error) {
	namespace := d.Namespace
	names, err := i.platform.secrets.Registries(namespace, d.Secrets)
	if err != nil {
		return nil, err
	}
	var configs [][]byte
	for _, name := range names {
		secret, err := i.platform.core.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("secret %q: %w", name, err)
		}
		configs = append(configs, secret.Data[corev1.DockerConfigJsonKey])
	}
	return image.NewKeychain(configs...)
}

// instanceArguments are what a model's pod runs the image's program with.
func (f *providerFlags) instanceArguments(spec cluster.InstanceSpec) []string {
	file, _, _ := strings.Cut(spec.Model, "@")
	return append([]string{"instance", "--model", file, "--listen", image.Listen}, f.InstanceArguments(spec)...)
}

// imageModels looks at the copies of models on this machine, for instances that
// have them in their image.
type imageModels struct {
	// local are the copies. It is not embedded: what it says of where a model is prepared
	// must not get through.
	local latency.Models
	// root is below which the copies are.
	root string
	seen memo[string]
}

var _ latency.Models = (*imageModels)(nil)

// keep remembers what instances call a model: its path in the image, and by the
// digest which one it is.
func (m *imageModels) keep(file, inside string) { m.seen.put(file, inside) }

// inside is what instances call a model.
func (m *imageModels) inside(file string) (string, error) {
	if inside, ok := m.seen.get(file); ok {
		return inside, nil
	}
	return "", fmt.Errorf("%s is not from an image", file)
}

// Check implements [latency.Models].
func (m *imageModels) Check(ctx context.Context, file string, known func(string) bool) error {
	return m.local.Check(ctx, file, known)
}

// Hash implements [latency.Models].
func (m *imageModels) Hash(file string) (string, error) { return m.local.Hash(file) }

// Prepare implements [latency.Models]: instances load the model itself.
func (m *imageModels) Prepare(_ context.Context, file string) (string, error) { return m.inside(file) }

// Sketch implements [latency.Models].
func (m *imageModels) Sketch(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.renamed(file)(m.local.Sketch(ctx, file, maxBatch, until))
}

// Measure implements [latency.Models].
func (m *imageModels) Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.renamed(file)(m.local.Measure(ctx, file, maxBatch, until))
}

// Predict implements [latency.Models].
func (m *imageModels) Predict(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.renamed(file)(m.local.Predict(ctx, file, maxBatch, until))
}

// renamed puts what instances call the model in the place of what this machine has.
func (m *imageModels) renamed(file string) func(string, *profiler.Profile, error) (string, *profiler.Profile, error) {
	return func(_ string, p *profiler.Profile, err error) (string, *profiler.Profile, error) {
		if err != nil {
			return "", nil, err
		}
		inside, err := m.inside(file)
		return inside, p, err
	}
}
