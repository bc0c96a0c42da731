package command

import (
	"context"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/async"
	"github.com/faas-infer/faas-infer/provider/shutdown"
	"github.com/faas-infer/faas-infer/provider/trace"
	"github.com/faas-infer/faas-infer/provider/web"
)

// door is an address at which a provider serves.
type door struct {
	flag, address string
	// routes chooses from the provider's routes. plain: it has no TLS.
	routes   func(http.Handler) http.Handler
	plain    bool
	listener net.Listener
}

// runningProvider is a provider that serves.
type runningProvider struct {
	flags    *ProviderFlags
	log      zerolog.Logger
	parts    Parts
	registry *prometheus.Registry
	provider *provider.Server
	async    *async.Queue
	// tracer exports traces and metrics, nil for none.
	tracer *trace.Tracer
	// queueClosed: async has been closed, or given up.
	queueClosed bool
	// doors are the addresses at which it serves, servers those of the doors.
	doors   []door
	servers []*http.Server
	// bounds bound the doors' connections.
	bounds *web.Connections
	// identity is the provider's certificate, nil without --tls. acme gets others, nil without
	// --acme-domain.
	identity *mutual.Identity
	acme     *certificates
	// restore brings back the stored functions. endRestore ends it early and waits.
	restore    func(context.Context)
	endRestore func()
	// endDownloads ends the downloads of models; the next provider goes on with them.
	endDownloads context.CancelFunc
	stopRun      context.CancelFunc
	ran          <-chan struct{}
	served       <-chan error
	// steps end it; release stops waiting for the user's second signal.
	steps   shutdown.Steps
	release func()
}
