package kubernetes

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/model/bundle/image"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/children"
	"github.com/faas-infer/faas-infer/provider/control"
)

// found is what a revision of a function has found in its image. The models' hashes are
// filled in later.
type found struct {
	revision uint64
	image    v1alpha1.ResolvedImage
	// files are the models' copies on this machine.
	files []string
}

// add adds a model whose file is below the directory of the revision's bundle, and returns its path there.
func (n *found) add(f *provider.Function, dir string, m control.Model) (below string, err error) {
	if below, err = filepath.Rel(dir, m.File); err != nil {
		return "", err
	}
	known := v1alpha1.ResolvedModel{Name: m.Name, Of: m.Of, File: below, Images: m.Images, Accuracy: m.Accuracy}
	if f.Inference.Partition != "" {
		known.Weights = children.Weights(m.File)
	}
	n.files, n.image.Models = append(n.files, m.File), append(n.image.Models, known)
	return below, nil
}

// restore returns the models of a status, whose files belong below a directory. from says where each file comes from.
func (n *found) restore(keep *imageModels, dir string, from func(m v1alpha1.ResolvedModel) origin) (models []control.Model) {
	for _, m := range n.image.Models {
		file := filepath.Join(dir, m.File)
		o := from(m)
		o.hash, o.weights = m.Hash, m.Weights
		keep.keep(file, o)
		n.files = append(n.files, file)
		models = append(models, control.Model{Name: m.Name, Of: m.Of, File: file, Images: m.Images, Accuracy: m.Accuracy})
	}
	return models
}

// resolved returns what a revision has found in its image, for the function's status. It
// returns nil for an ordinary function.
func (i *images) resolved(function string, revision uint64) *v1alpha1.ResolvedImage {
	f, ok := i.found.get(function)
	if !ok || f.revision != revision {
		return nil
	}
	out := f.image.DeepCopy()
	for at, file := range f.files {
		hash, err := i.models.Hash(file)
		if err != nil {
			return nil // A provider that starts asks the registry.
		}
		out.Models[at].Hash = hash
	}
	return out
}

// platforms lists the platforms on which a function's image runs, as far as its latest revision
// knows.
func (i *images) platforms(function string) []string {
	f, _ := i.found.get(function)
	return f.image.Platforms
}

// note remembers what a revision has found in its image.
func (i *images) note(f *provider.Function, b *image.Bundle, models []control.Model) error {
	n := found{revision: f.Revision, image: v1alpha1.ResolvedImage{Reference: b.Reference, Digest: b.Digest, Directory: b.Resolved.Bundle, Platforms: b.Platforms, MaxTokens: f.MaxTokens}}
	for _, m := range models {
		if _, err := n.add(f, b.Dir, m); err != nil {
			return fmt.Errorf("image %q: %w", f.Deployment.Image, err)
		}
	}
	i.found.put(f.Name, n)
	return nil
}

// recorded returns the models of a revision as its function's status has them, without the ways
// to cut them. No registry is asked, and the files need not be on this machine. ok is false if
// the status has none, or lacks the weights of a model that may be cut.
func (i *images) recorded(f *provider.Function) (reference string, models []control.Model, ok bool) {
	was, accepted := i.accepted(f)
	r := was.Resolved
	byURI := f.Inference.Source != ""
	if !accepted || r == nil || !byURI && !plausible(r, f.Deployment.Image) {
		return "", nil, false
	}
	f.MaxTokens = r.MaxTokens
	if f.Inference.Partition != "" && slices.ContainsFunc(r.Models, func(m v1alpha1.ResolvedModel) bool { return m.Weights <= 0 }) {
		return "", nil, false
	}
	if byURI {
		n, models, ok := i.uris.recorded(f, *r)
		if ok {
			i.found.put(f.Name, n)
		}
		return r.Reference, models, ok
	}
	n := found{revision: f.Revision, image: *r}
	models = n.restore(i.models, image.Folder(i.models.root, r.Digest), func(m v1alpha1.ResolvedModel) origin {
		fetch := func(ctx context.Context) error { return i.fetch(ctx, f.Deployment, r.Reference) }
		return origin{inside: path.Join(r.Directory, m.File) + "@" + r.Digest, fetch: fetch}
	})
	i.setCounters(f, image.Folder(i.models.root, r.Digest), models)
	i.found.put(f.Name, n)
	return r.Reference, models, true
}

// accepted returns the spec of a revision as its function's status has it, and false if it
// was not accepted before.
func (i *images) accepted(f *provider.Function) (spec v1alpha1.DeployedSpec, ok bool) {
	object, known := i.function(f.Name)
	if !known || object.Status.Deployed == nil || object.Status.Deployed.Revision != f.Revision {
		return v1alpha1.DeployedSpec{}, false
	}
	return object.Status.Deployed.Spec, true
}

// plausible reports whether a status names a version of the deployment's image and files in
// its bundle. The right to write the status is no right to choose another image.
func plausible(r *v1alpha1.ResolvedImage, of string) bool {
	deployed, err := name.ParseReference(of)
	if err != nil {
		return false
	}
	version, err := name.NewDigest(r.Reference)
	if err != nil || version.DigestStr() != r.Digest || version.Context().Name() != deployed.Context().Name() {
		return false
	}
	return areLocal(r.Models) && path.IsAbs(r.Directory) && !strings.Contains(r.Directory, "@")
}

// areLocal reports whether there are models, with hashes, whose files do not lead out of their directory.
func areLocal(models []v1alpha1.ResolvedModel) bool {
	lacking := slices.ContainsFunc(models, func(m v1alpha1.ResolvedModel) bool {
		return m.Hash == "" || !filepath.IsLocal(m.File)
	})
	return len(models) > 0 && !lacking
}

// fetch brings the bundle of a deployment's image to this machine.
func (i *images) fetch(ctx context.Context, d types.FunctionDeployment, reference string) error {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	keychain, err := i.keychain(ctx, d)
	if err != nil {
		return err
	}
	_, err = image.Pull(ctx, reference, keychain, i.models.root, image.WithPlain(i.platform.flags.plain...))
	if err == nil {
		i.makeRoom()
	}
	return err
}
