package testcluster

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Registry is an image registry without TLS and passwords.
type Registry struct {
	server *http.Server
	ended  []chan error
	host   string
	// hangs is closed when the registry answers again. It is nil while it answers.
	hangs atomic.Pointer[chan struct{}]
}

// StartRegistry starts a registry at one of this machine's addresses. It stores its blobs in
// dir. name is the address's name, "" for none.
func StartRegistry(dir, address, name string) (*Registry, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for the registry: %w", err)
	}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithBlobHandler(registry.NewDiskBlobHandler(dir)))
	r := &Registry{host: l.Addr().String()}
	if _, port, err := net.SplitHostPort(r.host); err == nil && name != "" {
		r.host = net.JoinHostPort(name, port)
	}
	r.server = &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if until := r.hangs.Load(); until != nil {
			select {
			case <-*until:
			case <-request.Context().Done():
				return
			}
		}
		handler.ServeHTTP(w, request)
	})}
	r.serve(func() error { return r.server.Serve(l) })
	return r, nil
}

func (r *Registry) serve(run func() error) {
	ended := make(chan error, 1)
	r.ended = append(r.ended, ended)
	go func() { ended <- run() }()
}

// ServeTLS makes the registry also listen at another address, with TLS. There it can serve
// images without a host.
func (r *Registry) ServeTLS(address, certificate, key string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for the registry: %w", err)
	}
	r.serve(func() error { return r.server.ServeTLS(l, certificate, key) })
	return nil
}

// Host returns the registry's address, with which the names of its images begin.
func (r *Registry) Host() string { return r.host }

// Hang makes the registry answer no request, as behind a firewall, until resume is called.
func (r *Registry) Hang() (resume func()) {
	until := make(chan struct{})
	r.hangs.Store(&until)
	return sync.OnceFunc(func() {
		r.hangs.Store(nil)
		close(until)
	})
}

// Stop stops the registry.
func (r *Registry) Stop() error {
	err := r.server.Close()
	for _, ended := range r.ended {
		if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// Push uploads an image and returns its name with the host, such as
// "127.0.0.1:5000/pause:1".
func (r *Registry) Push(image string, content v1.Image) (string, error) {
	ref, err := name.ParseReference(r.Host() + "/" + image)
	if err != nil {
		return "", fmt.Errorf("the image's name: %w", err)
	}
	if err := remote.Write(ref, content); err != nil {
		return "", fmt.Errorf("push %s: %w", ref, err)
	}
	return ref.Name(), nil
}

// RegistryImage returns an image for linux/amd64. files maps paths in the image to local
// files, links maps symbolic links to their targets. All belong to root; everybody can
// execute the files.
func RegistryImage(files, links map[string]string, config v1.Config) (v1.Image, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for to, from := range files {
		text, err := os.ReadFile(from)
		if err != nil {
			return nil, fmt.Errorf("read a file for the image: %w", err)
		}
		if err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(path.Clean(to), "/"), Mode: 0o755, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := w.Write(text); err != nil {
			return nil, err
		}
	}
	for link, to := range links {
		if err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(path.Clean(link), "/"), Linkname: to, Typeflag: tar.TypeSymlink}); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		return nil, fmt.Errorf("make a layer: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, fmt.Errorf("make an image: %w", err)
	}
	return mutate.ConfigFile(image, withConfig(image, config))
}

func withConfig(image v1.Image, config v1.Config) *v1.ConfigFile {
	file := &v1.ConfigFile{OS: "linux", Architecture: "amd64", Config: config, RootFS: v1.RootFS{Type: "layers"}}
	// The layers are those of the image. Reading a new image cannot fail.
	if old, err := image.ConfigFile(); err == nil {
		file.RootFS = old.RootFS
	}
	return file
}
