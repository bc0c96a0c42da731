package bundles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	cache   *fetch.Cache
	secrets Secrets
	// stored lists the stored functions.
	stored func(namespace string) ([]store.Function, error)
}

var _ provider.Fetcher = (*Downloads)(nil)

// DownloadOptions configures [Downloads].
type DownloadOptions struct {
	// Dir is the directory of the downloads, with the cache.
	Dir string
	// MaxBytes bounds the cache, Sources says what may be asked beside public addresses.
	MaxBytes int64
	Sources  origin.Sources
}

// NewDownloads opens a directory of downloads. It makes it when something is downloaded. functions lists the stored
// functions, whose models stay.
func NewDownloads(o DownloadOptions, secrets Secrets, functions func(namespace string) ([]store.Function, error)) *Downloads {
	d := &Downloads{dir: o.Dir, secrets: secrets, stored: functions}
	d.cache = fetch.Open(fetch.Options{Dir: o.Dir, MaxBytes: o.MaxBytes, Sources: o.Sources, InUse: d.inUse})
	return d
}

// Close closes idle connections.
func (d *Downloads) Close() error { return d.cache.Close() }

// Fetch implements [provider.Fetcher].
func (d *Downloads) Fetch(ctx context.Context, f types.FunctionDeployment, in annotation.Inference, p *fetch.Progress) error {
	_, err := d.fetch(ctx, f, in, p)
	return err
}

func (d *Downloads) fetch(ctx context.Context, f types.FunctionDeployment, in annotation.Inference, p *fetch.Progress) (fetch.Entry, error) {
	u, err := source.Parse(in.Source)
	if err != nil {
		return fetch.Entry{}, annotation.SourceError("", err.Error())
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

// open returns the bundle of a revision whose model comes from a URI. It downloads that only if it is not here.
func (d *Downloads) open(ctx context.Context, f *provider.Function) (*bundle.Bundle, error) {
	u, err := source.Parse(f.Inference.Source)
	if err != nil {
		return nil, err
	}
	name, err := os.ReadFile(d.pin(f.Name, f.Revision))
	pinned := err == nil
	e, here := d.cache.Entry(string(name))
	if !pinned {
		e, here = d.cache.Last(u)
	}
	if !here {
		if e, err = d.fetch(ctx, f.Deployment, f.Inference, nil); err != nil {
			return nil, err
		}
	}
	if !pinned || e.Name != string(name) {
		if err := d.write(d.pin(f.Name, f.Revision), []byte(e.Name)); err != nil {
			return nil, err
		}
	}
	return bundle.OpenDir(e.Dir)
}

// pin is the file that says which content a revision has.
func (d *Downloads) pin(function string, revision uint64) string {
	return filepath.Join(d.dir, "pins", function+"@"+strconv.FormatUint(revision, 10))
}

// write writes a small file as a whole.
func (d *Downloads) write(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return fmt.Errorf("note which model the function has: %w", err)
	}
	return os.Rename(file+".new", file)
}

// inUse lists the entries that revisions have. It removes the pins of those that were replaced or removed [UnusedFor] ago.
func (d *Downloads) inUse() (names []string) {
	pins, _ := os.ReadDir(filepath.Join(d.dir, "pins"))
	stored, err := d.stored("")
	current := map[string]bool{}
	for _, f := range stored {
		current[filepath.Base(d.pin(provider.FullName(f.Deployment.Service, f.Deployment.Namespace), f.Revision))] = true
	}
	for _, pin := range pins {
		file := filepath.Join(d.dir, "pins", pin.Name())
		info, gone := pin.Info()
		if gone != nil {
			continue
		}
		if err == nil && !current[pin.Name()] && time.Since(info.ModTime()) > UnusedFor {
			_ = os.Remove(file) // If it stays, so does its model for a while.
			continue
		}
		if name, gone := os.ReadFile(file); gone == nil {
			names = append(names, string(name))
		}
	}
	return names
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
	return d.write(d.kept(f.Namespace, f.Service), text)
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
