package bundles

import (
	"context"
	"fmt"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/source"
	"github.com/faas-infer/faas-infer/model/source/fetch"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// On a cluster several machines run one function, and each has a cache of its own. The methods here are for a provider
// that knows from elsewhere which content a revision has, or learns of the revision from another provider. Equal
// earlier deployments say nothing of a revision's content there: another provider may have deployed it again because
// the content has changed.

// Has reports whether a revision's content is on this machine.
func (d *Downloads) Has(f *provider.Function) bool {
	_, err := d.entryOf(f, d.ofCandidate)
	return err == nil
}

// Open returns the bundle of a revision whose content is on this machine, and the name of the content. It asks no
// server.
func (d *Downloads) Open(f *provider.Function) (*bundle.Bundle, string, error) {
	e, err := d.entryOf(f, d.ofCandidate)
	if err != nil {
		return nil, "", err
	}
	b, err := bundle.OpenDir(e.Dir)
	return b, e.Name, err
}

// FetchFor brings what the URI of a revision stands for now, unless the revision's content is here.
func (d *Downloads) FetchFor(ctx context.Context, f *provider.Function, p *fetch.Progress) error {
	if d.Has(f) {
		return nil
	}
	return d.Fetch(ctx, f.Deployment, f.Inference, p)
}

// Pin notes the content that a revision has, whether or not it is here.
func (d *Downloads) Pin(f *provider.Function, content string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if was, ok := d.readPin(pinName(f.Name, f.Revision)); ok && was.entry == content {
		return nil
	}
	return d.pin(f, content)
}

// Bring returns the directory of the content that a revision has. It downloads the content again if it is not here.
func (d *Downloads) Bring(ctx context.Context, f *provider.Function, content string) (dir string, err error) {
	e, here := d.cache.Entry(content)
	if !here {
		if e, err = d.fetch(ctx, f.Deployment, f.Inference, nil); err != nil {
			return "", err
		}
	}
	if e.Name != content {
		return "", annotation.SourceError(f.Inference.Source, fmt.Sprintf("it stands for other content now, and this "+
			"provider has lost the content of revision %d; deploy the function again", f.Revision))
	}
	return e.Dir, d.Pin(f, content)
}

// mounted returns the URI of the file that a URI of a claim names, and any other URI unchanged.
func mounted(claims map[string]string, u source.URI) (source.URI, error) {
	if u.Scheme != source.PVC || claims == nil {
		return u, nil
	}
	dir, is := claims[u.Host]
	if !is {
		return u, fmt.Errorf("the claim %s is not mounted in the provider's pods; mount it there, and name its directory "+
			"with --model-claims %[1]s=/mnt/%[1]s (chart: models.claims)", u.Host)
	}
	return source.URI{Scheme: source.File, Path: dir + "/" + u.Path, Sum: u.Sum}, nil
}

// Dir is where a content is, if it is on this machine.
func (d *Downloads) Dir(content string) string { return d.cache.Dir(content) }
