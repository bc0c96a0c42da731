package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/model/content"
	"github.com/faas-infer/faas-infer/model/source/fetch"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/control"
)

const (
	// contentMark stands between the path of a model and the name of its content, in the names of instances' models.
	contentMark = "@content:"
	// arrivalPatience is how long a deployment from outside waits for its model before it is tried again.
	arrivalPatience = 2 * time.Second
	// feedLook is the time between two looks at an instance that another replica feeds, and between two signs that an
	// instance still waits for its model.
	feedLook = time.Second
)

// uris serves models that functions name by URIs. The provider downloads them, and sends them to the instances, which
// run an image without a model. No credential leaves the provider, and no instance asks it for anything.
type uris struct {
	platform  *platform
	models    *imageModels
	downloads *bundles.Downloads
	// image is that of the instances, "" for none.
	image string
	// agents sends contents to nodes whose pods share them; nil if none do.
	agents *agents
	// known reports whether there is a function with a full name.
	known func(full string) bool

	mu sync.Mutex
	// arrivals are the downloads for deployments from outside, by function and revision.
	arrivals map[string]*arrival
	// contents has what instances get, by the content's name.
	contents map[string]*placed
	// latest has the content that each function has now, by the function's name.
	latest map[string]string
	// sendings are those to starting instances.
	sendings map[cluster.InstanceID]toInstance
}

// toInstance is the sending of the content of an instance: to itself or to its node.
type toInstance struct {
	function string
	// to is the node, "" for the instance.
	to string
	*sending
}

// arrival is a download in the background.
type arrival struct {
	progress fetch.Progress
	done     chan struct{}
	err      error
}

// placed is a content of revisions.
type placed struct {
	// of are the revisions that have it: the one of each function of which this replica has learned last, by the
	// function's name. An earlier one may name a place or a secret that is gone.
	of map[string]revision
	// index is nil if the files were not read yet.
	index *content.Index
	// reading is held by who reads them.
	reading sync.Mutex
}

// revision is one that has a content, and the content's entry in the cache of downloads.
type revision struct {
	*provider.Function
	entry string
	// at is when this replica has learned of it.
	at time.Time
}

// isURI reports whether a deployment names its model by a URI.
func isURI(d types.FunctionDeployment) bool {
	in, err := annotation.Parse(d)
	return err == nil && in.Source != ""
}

// refused says why no model by a URI can be served, nil if one can.
func (u *uris) refused(f *provider.Function) error {
	if u.image == "" {
		return annotation.SourceError(f.Inference.Source, "this provider has no image to run it in; start the "+
			"provider with --model-image (chart: models.image), or put the model into the function's image")
	}
	return nil
}

// listModels lists the models of a revision, whose content it has downloaded. It returns a [provider.DownloadingError]
// while that goes on.
func (u *uris) listModels(ctx context.Context, f *provider.Function) (found, []control.Model, error) {
	n := found{revision: f.Revision}
	if err := u.refused(f); err != nil {
		return n, nil, err
	}
	if err := u.arrive(ctx, f); err != nil {
		return n, nil, err
	}
	b, entry, err := u.downloads.Open(f)
	if err != nil {
		return n, nil, err
	}
	models, err := bundles.VariantsIn(bundles.Place{Hash: u.models.Hash}).Models(b, f)
	if err == nil && len(models) > 1 {
		err = u.platform.images.alike(ctx, b)
	}
	if err == nil {
		err = u.platform.images.setTexts(ctx, b, f, models)
	}
	if err != nil {
		return n, nil, fmt.Errorf("%s: %w", f.ModelFrom(), err)
	}
	if slices.ContainsFunc(models, func(m control.Model) bool { return engines.IsManifest(m.File) }) {
		return n, nil, errTensorFlow(f)
	}
	index, err := content.IndexOf(b.Dir)
	if err != nil {
		return n, nil, fmt.Errorf("%s: %w", f.ModelFrom(), err)
	}
	name := index.Name()
	u.keep(name, revision{Function: f, entry: entry}, &index)
	n.image = v1alpha1.ResolvedImage{Reference: u.image, Directory: podspec.ContentPath, Entry: entry, Content: name, MaxTokens: f.MaxTokens}
	for _, m := range models {
		below, err := n.add(f, b.Dir, m)
		if err != nil {
			return n, nil, err
		}
		u.models.keep(m.File, origin{inside: inContent(below, name)})
	}
	return n, models, nil
}

// errTensorFlow refuses a model that ONNX Runtime does not run.
func errTensorFlow(f *provider.Function) error {
	return annotation.SourceError(f.Inference.Source, "on Kubernetes a model by URI must be ONNX, because the image of "+
		"--model-image has no TensorFlow; convert it with faas-infer model convert, or put it into the function's image")
}

// inContent is a model's name in instances.
func inContent(below, content string) string {
	return path.Join(podspec.ContentPath, filepath.ToSlash(below)) + contentMark + content
}

// contentOf returns the name of the content of an instance's model, "" if its image has the model.
func contentOf(spec cluster.InstanceSpec) string {
	_, name, _ := strings.Cut(spec.Model, contentMark)
	return name
}

// keep remembers that a revision has a content. The index is nil if the files were not read.
func (u *uris) keep(name string, r revision, index *content.Index) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.contents == nil {
		u.contents, u.latest = map[string]*placed{}, map[string]string{}
	}
	p := u.contents[name]
	if p == nil {
		p = &placed{of: map[string]revision{}, index: index}
		u.contents[name] = p
	}
	r.at = time.Now()
	p.of[r.Name] = r
	u.latest[r.Name] = name
}

// find returns a content, and the revision with it of a function, or else of another function, as that of a candidate
// is. It returns nil if there is none.
func (u *uris) find(name, function string) (*placed, revision) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.contents[name]
	if p == nil {
		return nil, revision{}
	}
	r, own := p.of[function]
	if !own {
		for _, r = range p.of {
			break
		}
	}
	return p, r
}

// arrive waits for a moment until a revision's content is here.
func (u *uris) arrive(ctx context.Context, f *provider.Function) error {
	if u.downloads.Has(f) {
		return nil
	}
	key := fmt.Sprintf("%s %d", f.Name, f.Revision)
	u.mu.Lock()
	if u.arrivals == nil {
		u.arrivals = map[string]*arrival{}
	}
	a := u.arrivals[key]
	if a == nil {
		a = &arrival{done: make(chan struct{})}
		u.arrivals[key] = a
		u.platform.watching.Go(func() {
			defer close(a.done)
			a.err = u.downloads.FetchFor(u.platform.ctx, f, &a.progress)
		})
	}
	u.mu.Unlock()
	late := time.After(arrivalPatience)
	select {
	case <-a.done:
		u.mu.Lock()
		delete(u.arrivals, key)
		u.mu.Unlock()
		return a.err
	case <-late:
		return &provider.DownloadingError{Progress: a.progress.String()}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// recorded returns the models of a revision as its function's status has them. No server is asked, and the content
// need not be on this machine.
func (u *uris) recorded(f *provider.Function, r v1alpha1.ResolvedImage) (n found, models []control.Model, ok bool) {
	if u.refused(f) != nil || !u.plausible(r) {
		return n, nil, false
	}
	n = found{revision: f.Revision, image: r}
	if err := u.downloads.Pin(f, r.Entry); err != nil {
		u.platform.base.Log.Warn().Err(err).Str("function", f.Name).Msg("the cache of models may evict the function's model")
	}
	u.keep(r.Content, revision{Function: f, entry: r.Entry}, nil)
	fetch := func(ctx context.Context) error {
		_, err := u.downloads.Bring(ctx, f, r.Entry)
		return err
	}
	models = n.restore(u.models, u.downloads.Dir(r.Entry), func(m v1alpha1.ResolvedModel) origin {
		return origin{inside: inContent(m.File, r.Content), fetch: fetch}
	})
	u.platform.images.setCounters(f, u.downloads.Dir(r.Entry), models)
	return n, models, true
}

// plausible reports whether a status names a content, and a version of the image of --model-image. The right to write
// the status is no right to choose another image.
func (u *uris) plausible(r v1alpha1.ResolvedImage) bool {
	was, err := name.ParseReference(r.Reference)
	now, failed := name.ParseReference(u.image)
	if err != nil || failed != nil || was.Context().Name() != now.Context().Name() {
		return false
	}
	return r.Directory == podspec.ContentPath && content.IsName(r.Content) && r.Entry != "" && areLocal(r.Models)
}

// errUnknown says that no function of this provider has a content: it has just been started, or the function is gone.
var errUnknown = errors.New("no function has this model")

// source returns the content of a function on this machine. It downloads it again if it is gone.
func (u *uris) source(ctx context.Context, name, function string) (content.Source, error) {
	p, r := u.find(name, function)
	if p == nil {
		return content.Source{}, errUnknown
	}
	dir, err := u.downloads.Bring(ctx, r.Function, r.entry)
	if err != nil {
		return content.Source{}, err
	}
	p.reading.Lock()
	defer p.reading.Unlock()
	if p.index == nil {
		index, err := content.IndexOf(dir)
		if err != nil {
			return content.Source{}, err
		}
		if index.Name() != name {
			return content.Source{}, fmt.Errorf("%s has changed on the provider's disk; deploy the function again", dir)
		}
		p.index = &index
	}
	return content.Source{Index: *p.index, Dir: dir}, nil
}

// isHere reports whether the content of a function is on this machine.
func (u *uris) isHere(name, function string) bool {
	p, r := u.find(name, function)
	return p != nil && u.downloads.Has(r.Function)
}

// feed implements Feed of [kubernetes.Options]. The leader sends. It also decides how long that may take: it may
// download the model first, of which the other replicas see nothing, so they give up no instance that waits.
func (u *uris) feed(ctx context.Context, client *http.Client, spec cluster.InstanceSpec, address string,
	sent func(int64)) error {
	defer u.hide(spec.ID)
	for {
		state, err := content.Ask(ctx, client, address)
		switch {
		case errors.Is(err, content.ErrNoReceiver):
			return nil // It has its model, and loads it.
		case err != nil:
			return err
		case state.Needs == content.NeedsNothing:
			return nil
		case u.platform.election.Leading():
			return u.send(ctx, client, spec, address, sent)
		}
		sent(0)
		u.watch(ctx, spec, state)
		select {
		case <-time.After(feedLook):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tidy evicts models that no function uses until ctx ends.
func (u *uris) tidy(ctx context.Context) {
	log := u.platform.base.Log
	bundles.TidyEvery(ctx, log, func() ([]string, error) {
		freed, err := u.downloads.Tidy(time.Now())
		if freed > 0 {
			log.Info().Int64("bytes", freed).Msg("evicted downloaded models that no function uses")
		}
		return nil, err
	})
}
