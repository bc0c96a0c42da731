// Package build answers faas-cli's remote-builder protocol without a container
// engine: the context that faas-cli sends for an image becomes the bundle of that name.
// It does not read Dockerfiles and compiles nothing but the Go handler of an ONNX model,
// with the Go of this machine. Begin reading at [Handler.ServeHTTP].
//
// The request's body is a tar with the context's files below context/ and the
// name of the image in com.openfaas.docker.config. The signature covers the whole body.
// The handler therefore keeps the body in a file without a name, and reads it after it has
// checked the signature. Only then the request waits for other builds, so requests without
// the secret can keep nobody from building. They can use the disk; the share of each client
// is bounded. The handler unpacks the files into a new directory, checks them, writes
// them to the disk, and puts the directory in the bundle's place in one step (package
// bundle). If the machine fails at any instant, either the old bundle or the new one is
// there.
//
// bundle.yaml says what the bundle is. Without one, it is a model if there is exactly one
// ONNX file. Python packages are installed before the bundle is put in its place, so the
// client sees what cannot be installed.
package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Defaults of the limits in [Options].
const (
	DefaultMaxBytes    = 1 << 30
	DefaultMaxUnpacked = 4 << 30
	DefaultMaxEntries  = 200_000
	DefaultBodyTimeout = 10 * time.Minute
)

const (
	// maxBuilds is the number of builds that run at a time; the others wait.
	maxBuilds = 2
	// maxStored is how many bodies of the largest size may be on the disk at a time. A
	// client that does not know the secret can store one, until its signature turns out
	// wrong.
	maxStored = 4
	// maxUploads is how many bodies may arrive or wait at a time: each counts as that
	// part of the space at least.
	maxUploads = 64
	// reserve is Handler.reserve: 64 MiB.
	reserve = 64 << 20
)

// Options configures a [Handler]. A limit of zero means its default.
type Options struct {
	// Root is the directory of bundles.
	Root string
	// Secret is the key with which requests of faas-cli are signed. Without it there are uploads only.
	Secret []byte
	// MaxBytes is the most bytes of a body, MaxUnpacked the most bytes of its files
	// together. MaxEntries is the most files, directories and links.
	MaxBytes, MaxUnpacked int64
	MaxEntries            int
	// BodyTimeout is how long a client may take to send the body, and how long the
	// request may then wait for other builds.
	BodyTimeout time.Duration
	// CheckModel returns the reason why the engine cannot run the model in a file, nil
	// if it can. If CheckModel is nil, models are only checked when they are deployed.
	CheckModel func(ctx context.Context, file string) error
	// Verdict says in JSON whether a model meets an objective, by its file or its bundle's manifest. It is
	// called for uploads; nil for no verdict.
	Verdict func(ctx context.Context, file string, slo time.Duration) ([]byte, error)
	// Install installs on this machine the Python packages that a bundle needs, by the
	// path of its manifest. If Install is nil, that happens when the bundle is deployed.
	Install func(ctx context.Context, manifest string) error
	// Publish, if it is not nil, stores a bundle as an image, for example in a
	// registry, instead of in Root. It may report progress to the client with say.
	Publish func(ctx context.Context, image string, b *bundle.Bundle, say func(format string, args ...any)) error
	// Logger logs every build.
	Logger zerolog.Logger
}

// Handler answers POST /build, and POST /system/upload ([Handler.Upload]).
type Handler struct {
	options Options
	// stored is the disk space of the bodies. A client may take no more than it leaves free.
	stored *web.Budget
	// slots has one element for each build that runs. Only signed requests take one.
	slots chan struct{}
	// reserve is the free space on the disk that a build must leave, in bytes.
	reserve int64
	// install is held while a bundle is put in its place.
	install sync.Mutex
}

// New returns a handler. It removes the unfinished files of earlier builds.
func New(o Options) (*Handler, error) {
	if o.MaxBytes < 0 || o.MaxUnpacked < 0 || o.MaxEntries < 0 || o.BodyTimeout < 0 {
		return nil, errors.New("the builder's limits must not be negative")
	}
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	o.MaxUnpacked = cmp.Or(o.MaxUnpacked, DefaultMaxUnpacked)
	o.MaxEntries = cmp.Or(o.MaxEntries, DefaultMaxEntries)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, DefaultBodyTimeout)
	if err := os.MkdirAll(o.Root, 0o755); err != nil {
		return nil, fmt.Errorf("the directory of bundles: %w", err)
	}
	h := &Handler{options: o, slots: make(chan struct{}, maxBuilds), reserve: reserve, stored: web.NewBudget(web.BudgetOptions{
		Limit: maxStored * o.MaxBytes, Full: refuse(http.StatusServiceUnavailable, "other clients' builds take all the space for contexts; try again"),
		ClientShare: refuse(http.StatusTooManyRequests, "builds of this client already take its share of the space for contexts; wait for one to end"),
	})}
	if err := h.Sweep(); err != nil {
		o.Logger.Warn().Err(err).Msg("the unfinished files of earlier builds could not be removed")
	}
	return h, nil
}

// Sweep removes replaced bundles from which no process runs any more, and the unfinished
// files of a crash. Every build does so, too.
func (h *Handler) Sweep() error { return bundle.Sweep(h.options.Root) }

// PublicKey answers GET /publickey with 404. faas-cli asks for the key with which it
// seals a build's secrets, and there is none.
func PublicKey(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "this builder has no public key: it cannot use build secrets, because it runs no container build; remove build_secrets from the stack file", http.StatusNotFound)
}

// Disabled answers POST /build of a provider without a secret to check signatures.
func Disabled(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "the builder is off; start the provider with --payload-secret FILE and give faas-cli the same file", http.StatusNotFound)
}
