package command

import (
	"context"
	"net/http"
	"time"

	"github.com/openfaas/faas-provider/auth"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Platform runs a provider's functions: on this machine, or on a cluster.
type Platform interface {
	// Open opens the platform's parts. After an error, the caller must still close the
	// parts that it returns.
	Open(ctx context.Context, b Base) (Parts, error)
}

// Base holds what a provider has on every platform.
type Base struct {
	Flags       *ProviderFlags
	Credentials *auth.BasicAuthCredentials
	Metrics     *metrics.Metrics
	// Decisions gets what is decided about functions, and why.
	Decisions *decisions.Log
	// Bodies reads the bodies of requests. All of them count in --max-held together.
	Bodies *web.BodyReader
	// InFlight counts the requests in flight, for which a provider that stops waits. Routes
	// beside the provider's that execute functions go through it.
	InFlight *web.Gate
	// Identity is the provider's certificate, nil without --tls.
	Identity *mutual.Identity
	// Tracer traces requests, nil for none.
	Tracer provider.Tracer
	// Backlog is that of [control.Options]. It may be called once the controller runs.
	Backlog func(function string) (requests int, at time.Time)
	Log     zerolog.Logger
}

// Parts hold what a platform gives to a provider.
type Parts struct {
	// Store, Secrets, Controller and Logs serve the provider. The provider runs
	// Controller and closes it.
	Store      provider.Store
	Secrets    provider.Secrets
	Controller Controller
	Logs       provider.LogSource
	// Nodes lists the machines.
	Nodes func(context.Context) ([]cluster.Node, error)
	// Several: other providers may run the same functions and take requests from the
	// same external queue.
	Several bool
	// Rates counts requests for all providers that run the same functions, nil without others.
	Rates provider.Rates
	// Rollouts are the other providers as gradual rollouts see them, nil without others.
	Rollouts provider.RolloutPeers
	// Revisions remembers the revisions of functions, nil if Store does.
	Revisions provider.RevisionStore
	// Build and PublicKey answer faas-cli's remote builder; nil for 404.
	Build, PublicKey http.Handler
	// Upload makes a bundle of an uploaded model; nil for 501.
	Upload func(w http.ResponseWriter, r *http.Request) error
	// Defaults returns the annotations in a function's image; nil for none.
	Defaults provider.Defaults
	// Fetcher brings models that functions name by URIs; nil if the controller does.
	Fetcher provider.Fetcher
	// FunctionUser is provider.Options.FunctionUser.
	FunctionUser func(user int) bool
	// Serve, if it is not nil, is called once the provider has its functions. It starts
	// work that ends with ctx, and returns at once.
	Serve func(ctx context.Context, s *provider.Server)
	// Wrap, if it is not nil, adds routes that take precedence over the provider's.
	Wrap func(http.Handler) http.Handler
	// Close closes what Open has opened. It is called after the controller's Close.
	Close func() error
}

// Controller is a provider's controller that can be run and closed.
type Controller interface {
	provider.Controller
	// Describe returns the running state of a function; false if it is not deployed.
	Describe(name string) (keeper.Description, bool)
	// Run drives the functions until ctx ends.
	Run(ctx context.Context)
	// Close stops what must not outlive the provider. Run must have returned.
	Close(ctx context.Context) error
}
