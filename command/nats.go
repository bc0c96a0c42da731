package command

import (
	"context"
	"path/filepath"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/async"
)

// openAsync opens the queue of asynchronous requests.
func (f *ProviderFlags) openAsync(ctx context.Context, s *runningProvider, b Base) (*async.Queue, error) {
	var tracer async.Tracer
	if b.Tracer != nil {
		tracer = s.tracer
	}
	held, spareHeld := queueHeld(f.maxHeld)
	return async.Open(ctx, async.Options{
		Dir: filepath.Join(f.state, "nats"), Listen: f.nats.listen, URL: f.nats.url, Login: f.nats.login, Replicas: f.nats.replicas, Sync: f.nats.sync,
		Invoker: s.provider, Functions: s.provider, Admit: provider.Access{Server: s.provider}.Admit, Spare: provider.BestEffort{Server: s.provider}, Several: s.parts.Several,
		Callback: async.CallbackOptions{Timeout: f.nats.callbackTimeout, AllowPrivateRedirects: f.nats.privateRedirects, ForbidPrivate: f.nats.noCalls},
		MaxBody:  f.maxBody, BodyTimeout: f.bodyTimeout, Bodies: b.Bodies, Concurrency: f.nats.concurrency, MaxHeld: held, SpareHeld: spareHeld,
		MaxResults: f.nats.results, MaxResultCount: f.nats.resultCount,
		Tracer: tracer, Registerer: s.registry, Logger: s.log,
	})
}

// natsAddress returns the address to which the gateway publishes asynchronous requests, ""
// if there is none.
func (s *runningProvider) natsAddress() string { return s.async.Address() }
