package bundles

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/source"
	"github.com/faas-infer/faas-infer/model/source/fetch"
	"github.com/faas-infer/faas-infer/model/source/origin"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/store"
)

// Secrets has the values of functions' secrets.
type Secrets interface {
	Value(namespace, name string) ([]byte, error)
}

// Downloads are the models that functions name by URIs. A revision of a function stays with the content that its
// deployment has found, whatever the URI stands for later: a pin says which that is. So a provider that starts asks no
// server.
type Downloads struct {
	dir     string
	claims  map[string]string
	cache   *fetch.Cache
	secrets Secrets
	// stored lists the stored functions.
	stored func(namespace string) ([]store.Function, error)

	mu sync.Mutex
	// brought are the contents that deployments have fetched and no stored revision has yet, by [deploymentKey].
	brought map[string]brought
}

// brought is what a deployment has fetched. A revision has taken it once pinned is set.
type brought struct {
	entry  string
	at     time.Time
	pinned bool
}

// storedWithin is how long a revision may take from its pin to the store, with the check of its model.
const storedWithin = 5 * time.Minute

var _ provider.Fetcher = (*Downloads)(nil)

// DownloadOptions configures [Downloads].
type DownloadOptions struct {
	// Dir is the directory of the downloads, with the cache.
	Dir string
	// MaxBytes bounds the cache, Sources says what may be asked beside public addresses.
	MaxBytes int64
	Sources  origin.Sources
	// Claims has the directories in which claims of Kubernetes are mounted, by name; nil for none. Sources must allow
	// them.
	Claims map[string]string
	// Hashed is that of [fetch.Options].
	Hashed func(file, hash string)
}

// NewDownloads opens a directory of downloads. It makes it when something is downloaded. functions lists the stored
// functions, whose models stay.
func NewDownloads(o DownloadOptions, secrets Secrets, functions func(namespace string) ([]store.Function, error)) *Downloads {
	d := &Downloads{dir: o.Dir, claims: o.Claims, secrets: secrets, stored: functions}
	d.cache = fetch.Open(fetch.Options{
		Dir: o.Dir, MaxBytes: o.MaxBytes, Sources: o.Sources, InUse: d.inUse, Hashed: o.Hashed,
	})
	return d
}

// Close closes idle connections.
func (d *Downloads) Close() error { return d.cache.Close() }

// Fetch implements [provider.Fetcher].
func (d *Downloads) Fetch(ctx context.Context, f types.FunctionDeployment, in annotation.Inference, p *fetch.Progress) error {
	e, err := d.fetch(ctx, f, in, p)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.brought == nil {
		d.brought = map[string]brought{}
	}
	d.brought[deploymentKey(f)] = brought{entry: e.Name, at: time.Now()}
	return nil
}

// deploymentKey identifies a deployment of a function, or of the candidate that may become its next revision.
func deploymentKey(f types.FunctionDeployment) string {
	f.Service = strings.TrimSuffix(f.Service, provider.CandidateSuffix)
	return store.Hash(f)
}

func (d *Downloads) fetch(ctx context.Context, f types.FunctionDeployment, in annotation.Inference, p *fetch.Progress) (fetch.Entry, error) {
	u, err := source.Parse(in.Source)
	if err != nil {
		return fetch.Entry{}, annotation.SourceError("", err.Error())
	}
	if u, err = mounted(d.claims, u); err != nil {
		return fetch.Entry{}, annotation.SourceError(in.Source, err.Error())
	}
	with, err := d.credentials(f)
	if err != nil {
		return fetch.Entry{}, &annotation.Error{Key: "secrets", Value: strings.Join(f.Secrets, ", "), Why: err.Error()}
	}
	e, err := d.cache.Fetch(ctx, u, with, p)
	if err != nil && ctx.Err() == nil {
		err = annotation.SourceError(in.Source, err.Error())
	}
	return e, err
}

// credentials reads the function's secrets that are for servers of models.
func (d *Downloads) credentials(f types.FunctionDeployment) (origin.Credentials, error) {
	values := map[string][]byte{}
	for _, name := range f.Secrets {
		if !origin.SecretCounts(name) {
			continue
		}
		value, err := d.secrets.Value(f.Namespace, name)
		if err != nil {
			return origin.Credentials{}, err
		}
		values[name] = value
	}
	return origin.ReadCredentials(values)
}

// open returns the bundle of a revision whose model comes from a URI. It asks no server and downloads nothing.
func (d *Downloads) open(_ context.Context, f *provider.Function) (*bundle.Bundle, error) {
	e, err := d.entryOf(f, d.earlier)
	if err != nil {
		return nil, err
	}
	return bundle.OpenDir(e.Dir)
}

// entryOf returns the content of a revision, and pins it. before finds that of a revision that has no pin, and for
// which no deployment has fetched one.
func (d *Downloads) entryOf(f *provider.Function,
	before func(f *provider.Function, key string) string) (fetch.Entry, error) {
	key := deploymentKey(f.Deployment)
	d.mu.Lock()
	defer d.mu.Unlock()
	fetched := d.brought[key]
	own, pinned := d.readPin(pinName(f.Name, f.Revision))
	entry := own.entry
	if !pinned {
		back, known := d.readPin(pinName(f.Name, f.BackTo))
		switch {
		case f.BackTo > 0 && known:
			entry = back.entry
		case fetched.entry != "" && !fetched.pinned:
			entry = fetched.entry
		default:
			entry = before(f, key)
		}
	}
	e, here := d.cache.Entry(entry)
	if !here {
		return fetch.Entry{}, annotation.SourceError(f.Inference.Source, "this revision's content is not on this "+
			"machine, or nobody knows which it is; deploy it again")
	}
	if !pinned {
		if err := d.pin(f, e.Name); err != nil {
			return fetch.Entry{}, err
		}
		if fetched.entry != "" {
			d.brought[key] = brought{fetched.entry, time.Now(), true}
		}
	}
	return e, nil
}

// pin notes the content of a revision.
func (d *Downloads) pin(f *provider.Function, entry string) error {
	return write(d.pinFile(pinName(f.Name, f.Revision)), []byte(entry+"\n"+deploymentKey(f.Deployment)))
}

// earlier returns the content of the candidate that a revision was, or else of the earlier revisions of an equal
// deployment; "" if there is none, or if those differ: nobody knows then which of them is meant.
func (d *Downloads) earlier(f *provider.Function, key string) string {
	base := baseName(f.Name)
	if entry := d.ofCandidate(f, key); entry != "" {
		return entry
	}
	entry := ""
	for _, name := range d.pinNames() {
		function, _, _ := strings.Cut(name, "@")
		was, ok := d.readPin(name)
		if !ok || was.deployment != key || baseName(function) != base {
			continue
		}
		if entry != "" && entry != was.entry {
			return ""
		}
		entry = was.entry
	}
	return entry
}

// ofCandidate returns the content of the candidate that a revision was, "" if it was none.
func (d *Downloads) ofCandidate(f *provider.Function, _ string) string {
	name, namespace, _ := strings.Cut(baseName(f.Name), ".")
	was, _ := d.readPin(pinName(provider.FullName(name+provider.CandidateSuffix, namespace), f.Revision))
	return was.entry
}

// revisionPin is what is noted of a revision: its content, and its [deploymentKey].
type revisionPin struct{ entry, deployment string }

// pinName is the name of a revision's pin.
func pinName(function string, revision uint64) string {
	return function + "@" + strconv.FormatUint(revision, 10)
}

// baseName is the full name of the function whose candidate one may be.
func baseName(full string) string {
	name, namespace, _ := strings.Cut(full, ".")
	return provider.FullName(strings.TrimSuffix(name, provider.CandidateSuffix), namespace)
}

// pinFile is where a pin is.
func (d *Downloads) pinFile(name string) string { return filepath.Join(d.dir, "pins", name) }

func (d *Downloads) readPin(name string) (p revisionPin, ok bool) {
	text, err := os.ReadFile(d.pinFile(name))
	p.entry, p.deployment, _ = strings.Cut(string(text), "\n")
	return p, err == nil
}

// pinNames lists the pins.
func (d *Downloads) pinNames() (names []string) {
	all, _ := os.ReadDir(filepath.Join(d.dir, "pins"))
	for _, e := range all {
		if filepath.Ext(e.Name()) != ".new" {
			names = append(names, e.Name())
		}
	}
	return names
}

// write writes a small file as a whole.
func write(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return fmt.Errorf("note which model the function has: %w", err)
	}
	return os.Rename(file+".new", file)
}

// keptRevisions is the number of a function's latest revisions whose pins stay: those to which one may go back.
const keptRevisions = 10

// inUse lists the entries that revisions have: needed are those of the present ones and of deployments, spare those to
// which one may go back, most revisions back first. It removes the pins of others [UnusedFor] after they were last
// among these.
func (d *Downloads) inUse() (needed, spare []string) {
	now := time.Now()
	stored, failed := d.stored("")
	functions := map[string]bool{}
	current := map[string]bool{}
	for _, f := range stored {
		full := provider.FullName(f.Deployment.Service, f.Deployment.Namespace)
		functions[baseName(full)] = true
		current[pinName(full, f.Revision)] = true
	}
	pins := d.pinNames()
	latest := latestRevisions(pins)
	behind := map[string]int{} // How many revisions back a spare entry is at least.
	for _, name := range pins {
		function, revision := splitPin(name)
		base := baseName(function)
		newer := slices.Index(latest[base], revision)
		file := d.pinFile(name)
		if failed != nil || current[name] || functions[base] && newer < keptRevisions {
			_ = os.Chtimes(file, now, now) // Otherwise it goes an hour earlier.
		} else if info, err := os.Stat(file); err == nil && now.Sub(info.ModTime()) > UnusedFor {
			_ = os.Remove(file) // If it stays, so does its model for a while.
			continue
		}
		switch p, ok := d.readPin(name); {
		case !ok:
		case failed != nil || current[name]: // What cannot be listed may be needed.
			needed = append(needed, p.entry)
		default:
			if least, known := behind[p.entry]; !known || newer < least {
				behind[p.entry] = newer
			}
		}
	}
	spare = slices.SortedFunc(maps.Keys(behind), func(a, b string) int {
		return cmp.Or(cmp.Compare(behind[b], behind[a]), cmp.Compare(a, b))
	})
	return append(needed, d.broughtEntries(now)...), spare
}

// latestRevisions lists the revisions that functions have pins of, the latest first.
func latestRevisions(pins []string) map[string][]uint64 {
	latest := map[string][]uint64{}
	for _, name := range pins {
		function, revision := splitPin(name)
		latest[baseName(function)] = append(latest[baseName(function)], revision)
	}
	for function, revisions := range latest {
		slices.Sort(revisions)
		slices.Reverse(revisions)
		latest[function] = slices.Compact(revisions)
	}
	return latest
}

// broughtEntries lists what deployments have fetched that are not revisions yet.
func (d *Downloads) broughtEntries(now time.Time) (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, b := range d.brought {
		if age := now.Sub(b.at); age > UnusedFor || b.pinned && age > storedWithin { // Refused, or stored.
			delete(d.brought, key)
			continue
		}
		names = append(names, b.entry)
	}
	return names
}

// splitPin returns the function and the revision of a pin.
func splitPin(name string) (function string, revision uint64) {
	function, digits, _ := strings.Cut(name, "@")
	revision, _ = strconv.ParseUint(digits, 10, 64)
	return function, revision
}

// Tidy evicts what no revision has, as far as there is too much, and returns the number of bytes.
func (d *Downloads) Tidy(now time.Time) (freed int64, err error) { return d.cache.Tidy(now) }

// kept is the file of a deployment that waits for its model.
func (d *Downloads) kept(namespace, name string) string {
	return filepath.Join(d.dir, "waiting", provider.FullName(name, namespace)+".json")
}

// Keep implements [provider.Fetcher].
func (d *Downloads) Keep(f types.FunctionDeployment) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return write(d.kept(f.Namespace, f.Service), text)
}

// Drop implements [provider.Fetcher].
func (d *Downloads) Drop(namespace, name string) { _ = os.Remove(d.kept(namespace, name)) }

// Kept implements [provider.Fetcher].
func (d *Downloads) Kept() (all []types.FunctionDeployment, err error) {
	files, err := os.ReadDir(filepath.Join(d.dir, "waiting"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, file := range files {
		if filepath.Ext(file.Name()) != ".json" {
			continue
		}
		var f types.FunctionDeployment
		text, failed := os.ReadFile(filepath.Join(d.dir, "waiting", file.Name()))
		if failed == nil {
			failed = json.Unmarshal(text, &f)
		}
		if err = errors.Join(err, failed); failed == nil {
			all = append(all, f)
		}
	}
	return all, err
}
