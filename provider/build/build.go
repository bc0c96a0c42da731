// Package build answers faas-cli's remote-builder protocol without a container
// engine: what faas-cli sends as the context of an image becomes the bundle of
// that name.
//
// The request's body is a tar with the context's files below context/ and the
// name of the image in com.openfaas.docker.config. It is signed as a whole, so it
// is kept in a file without a name until the signature is known to be right, and
// read after that. The files are unpacked into a directory of their own, looked
// over, written to the disk and put in the bundle's place at once (packages
// bundle and place). Until then the old bundle is there, after that the new one,
// also if the machine fails at any instant.
//
// A Dockerfile is not read, and nothing is compiled but an ONNX model's handler in Go,
// with the Go of this machine. What the bundle is follows from its bundle.yaml, or it is
// a model if there is one ONNX file. What Python needs for it is installed before the
// bundle is put in its place, so that whoever builds is told what cannot be.
package build

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// Defaults of the limits in [Options].
const (
	DefaultMaxBytes    = 1 << 30
	DefaultMaxUnpacked = 4 << 30
	DefaultMaxEntries  = 200_000
	DefaultBodyTimeout = 10 * time.Minute
)

const (
	// atOnce is how many builds run at a time; the others wait. It bounds what
	// unsigned requests can take of the disk.
	atOnce = 2
	// reserve is a handler's.
	reserve = 64 << 20
)

// Options of a [Handler]. A limit that is zero has its default.
type Options struct {
	// Root is the directory of bundles.
	Root string
	// Secret is the key with which requests are signed.
	Secret []byte
	// MaxBytes is the largest body, MaxUnpacked the most that its files may take
	// together, in bytes, and MaxEntries how many they and their directories may
	// be.
	MaxBytes, MaxUnpacked int64
	MaxEntries            int
	// BodyTimeout is how long a client may take to send the body, and wait for
	// other builds before that.
	BodyTimeout time.Duration
	// CheckModel returns why the engine cannot run the model in a file; nil if it
	// can. Left out, models are not checked before somebody deploys them.
	CheckModel func(ctx context.Context, file string) error
	// Install makes ready on this machine what a bundle asks for, by its manifest's
	// path: Python's packages. Left out, that is done when somebody deploys it.
	Install func(ctx context.Context, manifest string) error
	// Publish, if it is not nil, brings a bundle to where images are taken from, as
	// a registry, in the place of Root. It may tell the client of it by say.
	Publish func(ctx context.Context, image string, b *bundle.Bundle, say func(format string, args ...any)) error
	// Logger is told of every build.
	Logger zerolog.Logger
}

// Handler answers POST /build.
type Handler struct {
	options Options
	slots   chan struct{}
	// reserve is what a build leaves free of the disk, in bytes.
	reserve int64
	// install lets one bundle at a time into its place.
	install sync.Mutex
}

// New makes a handler, and removes what earlier ones left half made.
func New(o Options) (*Handler, error) {
	if len(o.Secret) == 0 {
		return nil, errors.New("the builder needs a secret to check signatures with; the file of --payload-secret is empty")
	}
	if o.MaxBytes < 0 || o.MaxUnpacked < 0 || o.MaxEntries < 0 || o.BodyTimeout < 0 {
		return nil, errors.New("the builder's limits must not be negative")
	}
	o.MaxBytes = orDefault(o.MaxBytes, DefaultMaxBytes)
	o.MaxUnpacked = orDefault(o.MaxUnpacked, DefaultMaxUnpacked)
	o.MaxEntries = orDefault(o.MaxEntries, DefaultMaxEntries)
	o.BodyTimeout = orDefault(o.BodyTimeout, DefaultBodyTimeout)
	if err := os.MkdirAll(o.Root, 0o755); err != nil {
		return nil, fmt.Errorf("the directory of bundles: %w", err)
	}
	h := &Handler{options: o, slots: make(chan struct{}, atOnce), reserve: reserve}
	if err := h.Sweep(); err != nil {
		o.Logger.Warn().Err(err).Msg("remove what earlier builds left")
	}
	return h, nil
}

func orDefault[T int | int64 | time.Duration](value, otherwise T) T {
	if value == 0 {
		return otherwise
	}
	return value
}

// Sweep removes replaced bundles from which no process runs any more, and what a
// crash left half made. A build does it too.
func (h *Handler) Sweep() error { return bundle.Sweep(h.options.Root) }

// PublicKey answers GET /publickey, with which faas-cli asks for the key to seal
// a build's secrets with. There is none.
func PublicKey(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "this builder has no key: it packs files and runs no build, so that nothing could use build secrets; remove build_secrets from the stack file", http.StatusNotFound)
}

// Disabled answers POST /build where there is no secret to check signatures with.
func Disabled(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "the builder is off; start the provider with --payload-secret FILE and give faas-cli the same file", http.StatusNotFound)
}
