package command

import (
	"context"
	"net/http"

	"github.com/openfaas/faas-provider/auth"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// Platform is where a provider's functions run: this machine, or a cluster.
type Platform interface {
	// Open opens what is the platform's own. What it had opened when an error came
	// is in the parts all the same.
	Open(ctx context.Context, b Base) (Parts, error)
}

// Base is what a provider has on every platform.
type Base struct {
	Flags       *ProviderFlags
	Credentials *auth.BasicAuthCredentials
	Metrics     *metrics.Metrics
	Log         zerolog.Logger
}

// Parts are what a platform gives to a provider.
type Parts struct {
	// Store, Secrets, Controller and Logs are the provider's; Controller is run
	// until Close has it leave.
	Store      provider.Store
	Secrets    provider.Secrets
	Controller Controller
	Logs       provider.LogSource
	// Nodes lists the machines.
	Nodes func(context.Context) ([]cluster.Node, error)
	// Several: other providers may run the same functions, and take requests from
	// the same external queue.
	Several bool
	// Build and PublicKey answer faas-cli's remote builder; nil for 404.
	Build, PublicKey http.Handler
	// Defaults are the annotations that images bring along; nil for none.
	Defaults provider.Defaults
	// Serve, if it is not nil, is called once the provider has its functions, and
	// ends what it has begun with ctx. It returns at once.
	Serve func(ctx context.Context, s *provider.Server)
	// Wrap, if it is not nil, puts further routes before the provider's.
	Wrap func(http.Handler) http.Handler
	// Close closes what Open has opened, after the controller.
	Close func() error
}

// Controller is a provider's controller with its life.
type Controller interface {
	provider.Controller
	// Describe tells what runs of a function; false if it is not deployed.
	Describe(name string) (keeper.Description, bool)
	// Run drives the functions until ctx ends.
	Run(ctx context.Context)
	// Close ends what is to end with the provider; Run must have returned.
	Close(ctx context.Context) error
}
