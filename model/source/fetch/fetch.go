// Package fetch brings what a model's URI names to this machine, and keeps it in a cache. All who want the same wait
// for one download, which goes on where it broke off. Bytes are verified before anybody sees them. The
// package does
// not decide who may have a model, nor which revision of a function uses which content.
//
// Begin reading at [Cache.Fetch]. Package origin asks the servers. The files follow a download: download.go brings one
// file, unpack.go and bundle.go make a bundle of it, and room.go keeps the cache within its bounds.
package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/filelock"
	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/source"
	"github.com/faas-infer/faas-infer/model/source/origin"
)

// DefaultStall is how long a server may send nothing before its answer counts as broken off.
const DefaultStall = 30 * time.Second

// Options configures a cache.
type Options struct {
	// Dir is the directory of the cache. One file system must hold all of it.
	Dir string
	// MaxBytes bounds the size of what the cache keeps.
	MaxBytes int64
	// Sources are the hosts, networks and directories that [origin.ParseSources] has read. Without them only
	// public addresses
	// are asked, and no file of this machine is read.
	Sources origin.Sources
	// Stall is how long a server may send nothing, [DefaultStall] if it is 0.
	Stall time.Duration
	// InUse lists the names of the entries that must stay, however full the cache is, and of those that go only when no
	// unused one is left, in the order in which they go; nil for none.
	InUse func() (needed, spare []string)
	// Hashed gets the [model.ContentHash] of an ONNX file that was downloaded into an entry, so that nobody has to
	// read it again; nil for nobody.
	Hashed func(file, hash string)
}

// Cache keeps models by their content. Its methods may be called concurrently, and processes may share its directory.
type Cache struct {
	options Options
	store   workdir.Store
	client  *origin.Client

	mu sync.Mutex
	// flights are the downloads that go on, by what they bring.
	flights map[string]*flight
}

// Entry is a model in the cache: a bundle.
type Entry struct {
	// Name identifies the content: sha256- and a hash of the files' contents and places.
	Name string
	// Dir is the bundle's directory.
	Dir string
}

// Open returns a cache. It makes its directory when something is fetched.
func Open(o Options) *Cache {
	if o.Stall <= 0 {
		o.Stall = DefaultStall
	}
	c := &Cache{options: o, flights: map[string]*flight{}}
	c.store = workdir.Store{Dir: filepath.Join(o.Dir, "entries"), Durable: true}
	c.client = origin.NewClient(o.Sources)
	return c
}

// Close closes idle connections.
func (c *Cache) Close() error {
	c.client.Close()
	return nil
}

// Entry returns the entry of a name that [Cache.Fetch] has returned, false if it is gone.
func (c *Cache) Entry(name string) (Entry, bool) {
	e := Entry{Name: name, Dir: filepath.Join(c.store.Dir, name)}
	if !isEntry(name) || !workdir.Exists(e.Dir) {
		return Entry{}, false
	}
	workdir.Use(e.Dir, time.Now())
	return e, true
}

// isEntry reports whether a name is one of an entry, and no pattern or path.
func isEntry(name string) bool {
	return strings.HasPrefix(name, "sha256-") && filepath.IsLocal(name) && !strings.ContainsAny(name, `*?[\/`)
}

// Fetch returns the entry of a URI, which it downloads unless the cache has it. A URI without a hash is asked
// for at its
// server each time, by its ETag, and only what has changed is downloaded again. p, if it is not nil, shows how far the
// download is. The error is the end of a sentence about the URI.
func (c *Cache) Fetch(ctx context.Context, u source.URI, with origin.Credentials, p *Progress) (Entry, error) {
	if u.Endpoint == "" && (u.Scheme == source.S3 || u.Scheme == source.GS) {
		u.Endpoint = with.Endpoint
	}
	if err := c.options.Sources.Check(u); err != nil {
		return Entry{}, err
	}
	if u.Sum != "" {
		if e, ok := c.Entry(nameOf(u)); ok {
			return e, nil
		}
	}
	return c.join(ctx, key(u, with), p, func(ctx context.Context, p *Progress) (Entry, error) {
		return c.bring(ctx, u, with, p)
	})
}

// key identifies what a caller fetches: others with other credentials may see other content.
func key(u source.URI, with origin.Credentials) string {
	return origin.Hash(u.Key(), u.Sum, with.Text())
}

// nameOf is the entry of a URI that names one file by its hash.
func nameOf(u source.URI) string {
	return "sha256-" + origin.Hash(layout(&origin.Object{Original: u.Name()}, u.Sum))
}

// layout identifies a file and its place in a bundle: one content is an archive under one name, and a model under
// another.
func layout(o *origin.Object, sum string) string {
	return fmt.Sprintf("%s %s packed=%t archive=%t keras=%t", o.Name, sum, o.Packed, namesArchive(o.Original),
		path.Ext(o.Original) == kerasEnd)
}

// flight is one download for all who wait for it.
type flight struct {
	cancel  context.CancelFunc
	waiting int
	done    chan struct{}
	entry   Entry
	err     error
	shown   Progress
}

// join returns the result of work, or of the same work that goes on. The work ends when the last caller leaves.
func (c *Cache) join(ctx context.Context, key string, p *Progress, work func(context.Context, *Progress) (Entry, error)) (Entry, error) {
	c.mu.Lock()
	f := c.flights[key]
	if f == nil {
		inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{cancel: cancel, done: make(chan struct{})}
		c.flights[key] = f
		go func() {
			defer close(f.done)
			defer cancel()
			f.entry, f.err = work(inner, &f.shown)
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.flights[key] == f {
				delete(c.flights, key)
			}
		}()
	}
	f.waiting++
	c.mu.Unlock()
	p.follow(&f.shown)
	select {
	case <-f.done:
		return f.entry, f.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	f.waiting--
	last := f.waiting == 0
	if last {
		if c.flights[key] == f {
			delete(c.flights, key)
		}
		f.cancel()
	}
	c.mu.Unlock()
	if last {
		<-f.done
	}
	return Entry{}, ctx.Err()
}

// reference is what the latest fetch of a URI has brought.
type reference struct {
	// URI is for people who look into the directory. Tag identifies the state of the content at its server.
	URI, Tag, Entry string
}

// referenceFile is where a URI's reference is.
func (c *Cache) referenceFile(key string) string {
	return filepath.Join(c.options.Dir, "references", key+".json")
}

func (c *Cache) reference(key string) (r reference) {
	text, err := os.ReadFile(c.referenceFile(key))
	if err != nil || json.Unmarshal(text, &r) != nil {
		return reference{}
	}
	return r
}

// refer notes what a URI stands for now. If that fails, the URI is downloaded again next time.
func (c *Cache) refer(key string, r reference) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	file := c.referenceFile(key)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// bring downloads what a URI names, unless it has not changed since the last time.
func (c *Cache) bring(ctx context.Context, u source.URI, with origin.Credentials, p *Progress) (_ Entry, err error) {
	key := key(u, with)
	parts := filepath.Join(c.options.Dir, "parts", key)
	if err := os.MkdirAll(parts, 0o700); err != nil {
		return Entry{}, roomError(err)
	}
	lock, err := os.OpenFile(parts+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return Entry{}, roomError(err)
	}
	defer lock.Close()
	if err := filelock.Lock(ctx, lock, filelock.Exclusive, filelock.Forever); err != nil {
		return Entry{}, err
	}
	if u.Sum != "" { // Another process may have brought it meanwhile.
		if e, ok := c.Entry(nameOf(u)); ok {
			return e, nil
		}
	}
	defer func() { _ = os.Remove(parts) }() // It stays if it has bytes.
	found, err := c.client.Look(ctx, u, with)
	if err != nil {
		return Entry{}, err
	}
	defer found.Close()
	if was := c.reference(key); found.Tag != "" && was.Tag == found.Tag && u.Sum == "" {
		if e, ok := c.Entry(was.Entry); ok {
			return e, nil
		}
	}
	e, err := c.install(ctx, u, found, parts, p)
	if stop := new(origin.Fatal); errors.As(err, stop) {
		err = errors.Join(err, os.RemoveAll(parts)) // Going on does not help.
	}
	if err != nil {
		return Entry{}, err
	}
	return e, errors.Join(c.refer(key, reference{URI: u.String(), Tag: found.Tag, Entry: e.Name}), os.RemoveAll(parts))
}

// install downloads the files of a URI, makes a bundle of them and puts it into the cache.
func (c *Cache) install(ctx context.Context, u source.URI, found *origin.Finding, parts string, p *Progress) (_ Entry, err error) {
	if err := c.makeRoom(found.Size(), parts); err != nil {
		return Entry{}, err
	}
	p.begin(found.Size())
	work, err := c.store.Begin()
	if err != nil {
		return Entry{}, roomError(err)
	}
	defer func() { err = errors.Join(err, work.Remove()) }()
	var sums []string
	hashes := map[*origin.Object]*model.Hasher{}
	b := &budget{options: c.options}
	for _, o := range found.Objects {
		h, err := c.download(ctx, o, partOf(parts, o), b, p)
		if err != nil {
			return Entry{}, named(o.Name, err)
		}
		sums, hashes[o] = append(sums, layout(o, h.Sum())), h
	}
	if found.Size() < 0 {
		if err := c.makeRoom(workdir.Size(parts), parts); err != nil {
			return Entry{}, err
		}
	}
	placed := map[string]*model.Hasher{}
	for _, o := range found.Objects { // After all: what is moved cannot be continued.
		name, err := c.options.place(o, partOf(parts, o), work.Path, b)
		if err != nil {
			return Entry{}, named(o.Name, roomError(err))
		}
		placed[name] = hashes[o]
	}
	if all := workdir.Size(work.Path); all > c.options.MaxBytes {
		return Entry{}, c.options.tooLarge(all)
	}
	slices.Sort(sums)
	name := "sha256-" + origin.Hash(sums...)
	if err := describe(work.Path, u); err != nil {
		return Entry{}, roomError(err)
	}
	if err := c.store.Publish(work, name, workdir.Exists); err != nil {
		return Entry{}, roomError(err)
	}
	e, ok := c.Entry(name)
	if !ok {
		return Entry{}, fmt.Errorf("it was removed from the cache of models, %s, while it was put there; "+
			"deploy again", c.store.Dir)
	}
	c.options.tell(e, placed)
	return e, nil
}

// tell passes on the hashes of an entry's ONNX files, by their names.
func (o Options) tell(e Entry, placed map[string]*model.Hasher) {
	for name, h := range placed {
		file := filepath.Join(e.Dir, filepath.FromSlash(name))
		if o.Hashed == nil || path.Ext(name) != ".onnx" || !h.Whole() {
			continue
		}
		if _, err := os.Stat(file); err == nil { // Otherwise a folder around it is gone.
			o.Hashed(file, h.Sum())
		}
	}
}

// partOf is where an object's bytes are until all are there.
func partOf(parts string, o *origin.Object) string {
	return filepath.Join(parts, origin.Hash(o.Name)+".part")
}

// named adds the name of one of several files to an error.
func named(file string, err error) error {
	if file == "" {
		return err
	}
	return fmt.Errorf("%s: %w", file, err)
}
