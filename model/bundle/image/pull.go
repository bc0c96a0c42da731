package image

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// Errors that Resolve and Pull wrap.
var (
	// ErrReference: the text is not an image's name.
	ErrReference = errors.New("invalid image name")
	// ErrNotFound: the registry has no such image.
	ErrNotFound = errors.New("no such image")
	// ErrDenied: the registry refuses access to the image.
	ErrDenied = errors.New("the registry refuses access")
	// ErrNoBundle: the image has no bundle in it.
	ErrNoBundle = errors.New("the image has no bundle")
	// ErrTooLarge: the bundle exceeds a limit.
	ErrTooLarge = errors.New("the bundle is too large")
)

// DefaultMaxBytes and DefaultMaxFiles limit a bundle that Pull takes.
const (
	DefaultMaxBytes = 16 << 30
	DefaultMaxFiles = 100_000
)

// settings holds the options.
type settings struct {
	maxBytes  int64
	maxFiles  int
	plain     func(registry string) bool
	transport http.RoundTripper
}

// Option changes how Resolve and Pull work.
type Option func(*settings)

// WithPlain names registries, as registry.example.com:5000, that may be reached over
// plain HTTP if they do not answer over TLS. Registries on this machine and at
// private addresses need no naming.
func WithPlain(registries ...string) Option {
	return func(s *settings) {
		s.plain = func(registry string) bool { return slices.Contains(registries, registry) }
	}
}

func newSettings(options []Option) settings {
	s := settings{maxBytes: DefaultMaxBytes, maxFiles: DefaultMaxFiles, plain: func(string) bool { return false }, transport: remote.DefaultTransport}
	for _, o := range options {
		o(&s)
	}
	return s
}

// parse reads an image's name.
func (s settings) parse(ref string) (name.Reference, error) {
	r, err := name.ParseReference(ref)
	if err == nil && (s.plain(r.Context().RegistryStr()) || privateIPv6(r.Context().RegistryStr())) {
		r, err = name.ParseReference(ref, name.Insecure)
	}
	if err != nil {
		return nil, fmt.Errorf("%w %q: %w; write it as registry.example.com/team/name:tag", ErrReference, ref, err)
	}
	return r, nil
}

// privateIPv6 reports whether a registry's name is a private address of IPv6. The library knows
// those of IPv4.
func privateIPv6(registry string) bool {
	host, _, err := net.SplitHostPort(registry)
	if err != nil {
		host = strings.Trim(registry, "[]")
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Is6() && ip.IsPrivate()
}

// Resolved is an image in a registry.
type Resolved struct {
	// Reference names the image by its digest, for pods to run.
	Reference string
	// Digest is "sha256:" and 64 hexadecimal digits. It is the tag's digest, which
	// may cover images for several platforms.
	Digest string
	// Bundle is the directory of the image's bundle, "" if it has none.
	Bundle string
	// Platforms are those on which the image runs, as "linux/amd64"; none if it does not say.
	Platforms []string
	// Watchdog is the arguments with which [Program] serves the image's program as its watchdog; nil if
	// another server does.
	Watchdog []string
	// TLS: the image's [Program] knows the option --tls.
	TLS   bool
	image v1.Image
}

// Resolve finds an image in its registry and reads its config, but no layers. The
// error wraps [ErrReference], [ErrNotFound] or [ErrDenied] for these causes. A nil
// keychain means the keychain of Docker's config.
func Resolve(ctx context.Context, ref string, keychain authn.Keychain, options ...Option) (*Resolved, error) {
	return resolve(ctx, ref, keychain, newSettings(options))
}

func resolve(ctx context.Context, ref string, keychain authn.Keychain, s settings) (*Resolved, error) {
	parsed, err := s.parse(ref)
	if err != nil {
		return nil, err
	}
	if keychain == nil {
		keychain = authn.DefaultKeychain
	}
	found, err := remote.Get(parsed, remote.WithContext(ctx), remote.WithAuthFromKeychain(keychain), remote.WithTransport(s.transport),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		return nil, explain(ref, err)
	}
	image, err := found.Image()
	if err != nil {
		return nil, explain(ref, err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, explain(ref, err)
	}
	r := &Resolved{Reference: parsed.Context().Digest(found.Digest.String()).Name(), Digest: found.Digest.String(), TLS: config.Config.Labels[TLSLabel] == "true", image: image}
	if r.Platforms, err = platforms(found, config); err != nil {
		return nil, explain(ref, err)
	}
	if c := config.Config; slices.Equal(c.Entrypoint, []string{Program}) && len(c.Cmd) > 0 && c.Cmd[0] == watchdog {
		r.Watchdog = c.Cmd
	}
	if label := config.Config.Labels[Label]; label != "" {
		if r.Bundle = path.Clean(label); !path.IsAbs(label) || r.Bundle == "/" {
			return nil, fmt.Errorf("image %s: its label %s is %q; it must be the absolute path of a directory, as %s", ref, Label, label, Dir)
		}
	}
	return r, nil
}

// platforms lists the platforms of an index, or the one of a single image.
func platforms(found *remote.Descriptor, config *v1.ConfigFile) (all []string, err error) {
	if !found.MediaType.IsIndex() {
		if config.OS != "" && config.Architecture != "" {
			all = append(all, config.OS+"/"+config.Architecture)
		}
		return all, nil
	}
	index, err := found.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, m := range manifest.Manifests {
		// Builders add attestations for an unknown platform.
		if m.Platform != nil && m.Platform.OS != "" && m.Platform.OS != "unknown" && m.Platform.Architecture != "" {
			all = append(all, m.Platform.OS+"/"+m.Platform.Architecture)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// explain turns a registry's answer into one of this package's errors.
func explain(ref string, err error) error {
	var answer *transport.Error
	if errors.As(err, &answer) {
		switch answer.StatusCode {
		case http.StatusNotFound:
			return fmt.Errorf("%w: %s: %w", ErrNotFound, ref, err)
		case http.StatusUnauthorized, http.StatusForbidden:
			return fmt.Errorf("%w to image %s: %w; name a pull secret (type kubernetes.io/dockerconfigjson) among the function's secrets, or check the image's name", ErrDenied, ref, err)
		}
	}
	return fmt.Errorf("image %s: %w", ref, err)
}

// Bundle is a bundle from an image.
type Bundle struct {
	// Bundle is the copy on this machine.
	*bundle.Bundle
	Resolved
}

// InImage turns the path of a bundle's file on this machine into its path in the
// image.
func (b *Bundle) InImage(file string) (string, error) {
	below, err := filepath.Rel(b.Dir, file)
	if err != nil || !filepath.IsLocal(below) {
		return "", fmt.Errorf("%s is not in the bundle %s", file, b.Dir)
	}
	return path.Join(b.Resolved.Bundle, filepath.ToSlash(below)), nil
}

// Folder returns the directory into which [Pull] copies the bundle of the image with a
// digest.
func Folder(cacheDir, digest string) string {
	return filepath.Join(cacheDir, strings.ReplaceAll(digest, ":", "-"))
}

// Pull copies the bundle out of an image into a directory below cacheDir, named by
// the image's digest. If the directory is there already, Pull only looks up the tag.
// [Evict] limits the size of cacheDir. The errors are those of [Resolve] and
// [bundle.Open], or wrap [ErrNoBundle] or [ErrTooLarge]. Pull writes nothing outside
// the directory, whatever the image contains.
func Pull(ctx context.Context, ref string, keychain authn.Keychain, cacheDir string, options ...Option) (*Bundle, error) {
	s := newSettings(options)
	r, err := resolve(ctx, ref, keychain, s)
	if err != nil {
		return nil, err
	}
	if r.Bundle == "" {
		return nil, fmt.Errorf("%w: %s has no label %s; make one with `faas-infer-kubernetes image function`, or add the label", ErrNoBundle, ref, Label)
	}
	dir := Folder(cacheDir, r.Digest)
	workdir.Use(dir, time.Now()) // It is not evicted meanwhile, if it is there.
	whole := func(dir string) bool {
		_, err := bundle.OpenDir(dir)
		return err == nil
	}
	err = store(cacheDir).Make(ctx, filepath.Base(dir), whole, func(work string) error {
		if err := s.extract(ctx, r, work); err != nil {
			return err
		}
		_, err := bundle.OpenDir(work)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", ref, err)
	}
	b, err := bundle.OpenDir(dir)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", ref, err)
	}
	return &Bundle{Bundle: b, Resolved: *r}, nil
}
