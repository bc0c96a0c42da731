package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/bundle/image"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// imageDir returns the directory that keeps the bundles of models' images.
func (f *providerFlags) imageDir() string {
	if f.images != "" {
		return f.images
	}
	return filepath.Join(f.State(), "images")
}

const (
	// pullTimeout bounds how long a deployment waits for its image's bundle.
	pullTimeout = 2 * time.Minute
	// wantedFor is how long a bundle is kept after its last use in any case. Its model's
	// times must be known by then, and other models may be measured first.
	wantedFor = time.Hour
)

// images finds models in the images of functions.
type images struct {
	platform *platform
	models   *imageModels
	// alike returns an error unless all models of a bundle answer the same requests.
	alike func(ctx context.Context, b *bundle.Bundle) error
	// texts checks models that take texts.
	texts bundles.TextChecker
	// tokenizers count the tokens of requests' texts.
	tokenizers *bundles.Tokenizers
	// cutter plans how models are cut over several pods.
	cutter bundles.Cutter
	// function returns the object of a function by its full name.
	function func(full string) (*v1alpha1.Function, bool)
	// own are the provider's credentials for registries, nil for none.
	own authn.Keychain
	// uris serves models that functions name by URIs.
	uris *uris
	// found has what the latest revisions have found in their images, by full name.
	found memo[found]
}

var (
	_ control.Bundles  = (*images)(nil)
	_ control.Improver = (*images)(nil)
)

// Models implements [control.Bundles]. The bundle is the image with its digest; the files
// are copies on this machine. For a revision whose function's status has them already, it
// asks no registry: a provider that starts must not depend on one. The exception is a model that
// has to be read to know whether it can be cut.
func (i *images) Models(ctx context.Context, f *provider.Function) (reference string, models []control.Model, err error) {
	if reference, models, ok := i.recorded(f); ok {
		if f.Inference.Partition != "" {
			models, err = i.withPlans(ctx, f, models)
		}
		if err != nil {
			return "", nil, fmt.Errorf("image %q: %w", f.Deployment.Image, err)
		}
		return reference, models, nil
	}
	if f.Inference.Source != "" {
		n, models, err := i.uris.listModels(ctx, f)
		if err == nil {
			models, err = i.withPlans(ctx, f, models)
		}
		if err != nil {
			return "", nil, err
		}
		i.found.put(f.Name, n)
		return n.image.Reference, models, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	b, models, err := i.uncut(ctx, f)
	if err != nil {
		return "", nil, err
	}
	for _, m := range models {
		inside, err := b.InImage(m.File)
		if err != nil {
			return "", nil, err
		}
		i.models.keep(m.File, origin{inside: inside + "@" + b.Digest})
	}
	all, err := i.withPlans(ctx, f, models)
	if err != nil {
		return "", nil, fmt.Errorf("image %q: %w", f.Deployment.Image, err)
	}
	if err := i.note(f, b, models); err != nil {
		return "", nil, err
	}
	i.makeRoom()
	return b.Reference, all, nil
}

// withPlans adds the known plans of a function's models. Pods of a plan have the model itself.
func (i *images) withPlans(ctx context.Context, f *provider.Function, models []control.Model) ([]control.Model, error) {
	all, err := i.cutter.WithPlans(ctx, f, models)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if m.Plan == nil {
			continue
		}
		for _, of := range models {
			if of.Name != m.From {
				continue
			}
			inside, err := i.models.inside(of.File)
			if err != nil {
				return nil, err
			}
			i.models.keep(m.File, origin{inside: inside})
		}
	}
	return all, nil
}

// Wanted implements [control.Improver]: variants come in the image, so only plans are made.
func (i *images) Wanted(f *provider.Function, bundle string) string {
	if f.Inference.Partition == "" {
		return ""
	}
	return bundles.CutFor(f, bundle+" "+f.Inference.Source)
}

// Improve implements [control.Improver]: it makes the plans of a function's models. It asks a registry only
// if it has to read a model for that.
func (i *images) Improve(ctx context.Context, f *provider.Function) error {
	_, models, ok := i.recorded(f)
	if !ok {
		var err error
		if _, models, err = i.uncut(ctx, f); err != nil {
			return err
		}
	}
	return i.cutter.Make(ctx, f, models)
}

// cuttable implements Cuttable of [control.Options].
func (i *images) cuttable(ctx context.Context, f *provider.Function) []control.Model {
	_, models, err := i.uncut(ctx, f)
	if err != nil {
		return nil
	}
	return i.cutter.Suggestions(ctx, f, models)
}

// uncut returns a function's image and its models without the ways to cut them. The image is nil for a model by its URI.
func (i *images) uncut(ctx context.Context, f *provider.Function) (b *image.Bundle, models []control.Model, err error) {
	if f.Inference.Source != "" {
		_, models, err = i.uris.listModels(ctx, f)
		return nil, models, err
	}
	keychain, err := i.keychain(ctx, f.Deployment)
	if err != nil {
		return nil, nil, err
	}
	b, err = image.Pull(ctx, f.Deployment.Image, keychain, i.models.root, image.WithPlain(i.platform.flags.plain...))
	if err != nil {
		return nil, nil, err
	}
	if err := b.CheckModel(); err != nil {
		return nil, nil, fmt.Errorf("image %q: %w", f.Deployment.Image, err)
	}
	if models, err = bundles.VariantsIn(bundles.Place{Hash: i.models.Hash}).Models(b.Bundle, f); err != nil {
		return nil, nil, fmt.Errorf("image %q: %w", f.Deployment.Image, err)
	}
	if len(models) > 1 {
		if err := i.alike(ctx, b.Bundle); err != nil {
			return nil, nil, fmt.Errorf("image %q: %w", f.Deployment.Image, err)
		}
	}
	if err := i.setTexts(ctx, b.Bundle, f, models); err != nil {
		return nil, nil, fmt.Errorf("image %q: %w", f.Deployment.Image, err)
	}
	return b, models, nil
}

// setTexts checks models that take texts. It leaves out what identifies the texts: a bundle's image, or its content,
// says it, also where a provider that starts does not open the bundle.
func (i *images) setTexts(ctx context.Context, b *bundle.Bundle, f *provider.Function, models []control.Model) error {
	err := bundles.SetTexts(ctx, i.texts, b, f, models)
	for at := range models {
		models[at].Text = ""
	}
	if b.Text != nil {
		i.setCounters(f, b.Dir, models)
	}
	return err
}

// setCounters makes the tokens of texts be counted for the models of a bundle. It brings the bundle if it is not on this
// machine.
func (i *images) setCounters(f *provider.Function, dir string, models []control.Model) {
	for at := range models {
		file := models[at].File
		models[at].Counter = i.tokenizers.Counter(f, func(ctx context.Context) (*bundle.Bundle, error) {
			if err := i.models.Here(ctx, file); err != nil {
				return nil, err
			}
			return bundle.OpenDir(dir)
		})
	}
}

// makeRoom evicts the least recently used bundles if they exceed --images-size. An evicted
// bundle is pulled again when it is needed.
func (i *images) makeRoom() {
	p := i.platform
	freed, err := image.Evict(i.models.root, p.flags.imagesSize.Value(), time.Now().Add(-wantedFor))
	if err != nil {
		p.base.Log.Warn().Err(err).Msg("cannot evict bundles of models' images")
	}
	if freed > 0 {
		p.base.Log.Info().Int64("bytes", freed).Msg("evicted the least recently used bundles of models' images")
	}
}

// keychain returns the credentials with which the kubelet pulls the deployment's image, then the
// provider's own: like the kubelet, it may have an identity at a cloud.
func (i *images) keychain(ctx context.Context, d types.FunctionDeployment) (authn.Keychain, error) {
	account := ""
	if d.Annotations != nil {
		account = (*d.Annotations)[podspec.ServiceAccountAnnotation]
	}
	configs, err := i.platform.secrets.PullConfigs(ctx, d.Namespace, d.Secrets, account)
	if err != nil {
		return nil, err
	}
	named, err := image.NewKeychain(configs...)
	if err != nil || i.own == nil {
		return named, err
	}
	return authn.NewMultiKeychain(named, i.own), nil
}

// fileOf returns the file of an instance's model. The part after the last '@' says which content it is; the
// file's name may have an '@', too.
func fileOf(spec cluster.InstanceSpec) string {
	if at := strings.LastIndex(spec.Model, "@"); at >= 0 {
		return spec.Model[:at]
	}
	return spec.Model
}

// instanceArguments returns the arguments of the image's program in a model's pod.
func (f *providerFlags) instanceArguments(spec cluster.InstanceSpec) []string {
	file := fileOf(spec)
	args := append(f.InstanceArguments(spec, image.Listen), "--model", file, "--listen", image.Listen)
	if f.instances.tls != "" {
		args = append(args, "--tls", podspec.CertificatePath)
	}
	return args
}

// instanceGrace returns the grace period of an instance of a model that is evicted: that of an
// ordinary function, and its objective, which a batch may take.
func instanceGrace(f *v1alpha1.Function) time.Duration {
	grace := podspec.Grace(f.Spec.Environment)
	if in, err := annotation.Parse(f.Spec.Deployment(f.Name, f.Namespace)); err == nil {
		grace += in.SLO
	}
	return grace
}

// imageModels reads and measures the copies of models on this machine, for instances that
// have the models in their images.
type imageModels struct {
	// local reads the copies. It is not embedded, because its paths of prepared models
	// must not reach the instances.
	local latency.Models
	// root is the directory with the copies.
	root string
	seen memo[origin]
	// hashes are those of the copies that were read before, by path. A path stands for one content,
	// since it has the image's digest, and the copy may have been evicted since.
	hashes memo[string]
}

// origin is where a model comes from.
type origin struct {
	// inside is the model's name in instances: its path in the image, and the image's digest.
	inside string
	// hash identifies the content of a model that was accepted before, whose file need not
	// be here; fetch brings the file. Otherwise they are "" and nil.
	hash  string
	fetch func(ctx context.Context) error
	// weights is the size of the model's weights in bytes, if it may be cut.
	weights int64
}

var (
	_ latency.Models    = (*imageModels)(nil)
	_ latency.Teachable = (*imageModels)(nil)
	_ bundles.Files     = (*imageModels)(nil)
)

// keep remembers where a model comes from.
func (m *imageModels) keep(file string, from origin) { m.seen.put(file, from) }

// inside returns a model's name in instances.
func (m *imageModels) inside(file string) (string, error) {
	if from, ok := m.seen.get(file); ok {
		return from.inside, nil
	}
	return "", fmt.Errorf("%s is not from an image", file)
}

// Known implements [bundles.Files].
func (m *imageModels) Known(file string) (hash string, weights int64) {
	from, _ := m.seen.get(file)
	return from.hash, from.weights
}

// Here implements [bundles.Files].
func (m *imageModels) Here(ctx context.Context, file string) error {
	from, _ := m.seen.get(file)
	if _, err := os.Stat(file); err == nil || from.fetch == nil {
		return nil
	}
	return from.fetch(ctx)
}

// Check implements [latency.Models].
func (m *imageModels) Check(ctx context.Context, file string, known func(string) bool) error {
	return m.check(ctx, m.local, file, known)
}

func (m *imageModels) check(ctx context.Context, local latency.Models, file string, known func(string) bool) error {
	if from, _ := m.seen.get(file); from.hash != "" { // It was accepted before.
		known(from.hash)
		return nil
	}
	return local.Check(ctx, file, known)
}

// Hash implements [latency.Models].
func (m *imageModels) Hash(file string) (string, error) {
	if from, _ := m.seen.get(file); from.hash != "" {
		return from.hash, nil
	}
	hash, err := m.local.Hash(file)
	if err != nil {
		if known, ok := m.hashes.get(file); ok {
			return known, nil
		}
		return "", err
	}
	m.hashes.put(file, hash)
	return hash, nil
}

// Bytes implements [latency.Models].
func (m *imageModels) Bytes(file string) int64 {
	if _, bytes := m.Known(file); bytes > 0 {
		return bytes
	}
	return m.local.Bytes(file)
}

// Sized implements [latency.Sized].
func (m *imageModels) Sized(sizes latency.Sizes) latency.Models {
	local, ok := m.local.(latency.Sized)
	if !ok {
		return m
	}
	return sizedImages{m, local.Sized(sizes)}
}

// Learn implements [latency.Teachable].
func (m *imageModels) Learn(ctx context.Context, file, name, largest string, r *frame.Request) (string, error) {
	local, ok := m.local.(latency.Teachable)
	if !ok {
		return "", errors.New("the sizes of requests cannot be tried here")
	}
	if err := m.Here(ctx, file); err != nil {
		return "", err
	}
	return local.Learn(ctx, file, name, largest, r)
}

// sizedImages are imageModels whose copies are read and measured with given sizes.
type sizedImages struct {
	*imageModels
	sized latency.Models
}

// Check implements [latency.Models].
func (m sizedImages) Check(ctx context.Context, file string, known func(string) bool) error {
	return m.check(ctx, m.sized, file, known)
}

// Sketch implements [latency.Models].
func (m sizedImages) Sketch(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.find(ctx, m.sized.Sketch, file, maxBatch, until)
}

// Measure implements [latency.Models].
func (m sizedImages) Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.find(ctx, m.sized.Measure, file, maxBatch, until)
}

// Predict implements [latency.Models].
func (m sizedImages) Predict(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.find(ctx, m.sized.Predict, file, maxBatch, until)
}

// Prepare implements [latency.Models]: instances load the model itself.
func (m *imageModels) Prepare(_ context.Context, file string) (string, error) { return m.inside(file) }

// Sketch implements [latency.Models].
func (m *imageModels) Sketch(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.find(ctx, m.local.Sketch, file, maxBatch, until)
}

// Measure implements [latency.Models].
func (m *imageModels) Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.find(ctx, m.local.Measure, file, maxBatch, until)
}

// Predict implements [latency.Models].
func (m *imageModels) Predict(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.find(ctx, m.local.Predict, file, maxBatch, until)
}

// finding is one of [latency.Models]' ways to find a model's times.
type finding func(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error)

// find finds the times of a model, whose file it brings here first. It replaces the file's
// path with the model's name in instances.
func (m *imageModels) find(ctx context.Context, times finding, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	if err := m.Here(ctx, file); err != nil {
		return "", nil, err
	}
	_, p, err := times(ctx, file, maxBatch, until)
	if err != nil {
		return "", nil, err
	}
	inside, err := m.inside(file)
	return inside, p, err
}
