package command

import (
	"context"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/async"
	"github.com/faas-infer/faas-infer/provider/async/queue"
)

// asyncFlags are the flags of asynchronous requests.
type asyncFlags struct {
	url, listen               string
	login                     queue.Login
	replicas                  int
	sync                      time.Duration
	concurrency               int
	results, resultCount      int64
	callbackTimeout           time.Duration
	privateRedirects, noCalls bool
}

func (f *asyncFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.listen, "nats-listen", "off", `address such as 127.0.0.1:4222 at which the provider takes a stock gateway's asynchronous requests, or "off" to take them only at /async-function/`)
	flags.StringVar(&f.url, "nats", "", "URL of an external NATS server with JetStream, such as nats://127.0.0.1:4222, to use instead of the embedded one")
	flags.StringVar(&f.login.Credentials, "nats-credentials", "", "directory with the credentials for --nats, as a Kubernetes Secret mounts them: the files username and password, or token, or nkey (a seed), or user.creds")
	flags.StringVar(&f.login.TLS, "nats-tls", "", "directory with ca.crt, the authority of the server at --nats, or with tls.crt and tls.key, the client's certificate, or with all three")
	flags.IntVar(&f.replicas, "nats-replicas", 0, "number of servers of the cluster at --nats that keep each request, from 1 to 5 (default: the server's own number, and for streams that exist as it is)")
	flags.DurationVar(&f.sync, "nats-sync", queue.DefaultSync, "how often accepted requests are synced to disk, in case the machine loses power; a killed process loses none")
	flags.IntVar(&f.concurrency, "async-concurrency", 0, "maximum number of asynchronous requests of one function that are executed at once (default 256)")
	flags.Int64Var(&f.results, "async-results", queue.DefaultMaxResults, "maximum size in bytes of all results that clients ask to keep (X-Keep-Result); 0 keeps none")
	flags.Int64Var(&f.resultCount, "async-results-count", queue.DefaultMaxCount, "maximum number of these results")
	flags.DurationVar(&f.callbackTimeout, "callback-timeout", async.DefaultCallbackTimeout, "how long posting a result to a callback URL may take")
	flags.BoolVar(&f.privateRedirects, "callback-private-redirects", false, "let a callback be redirected to a private address")
	flags.BoolVar(&f.noCalls, "callback-public-only", false, "refuse callback URLs that lead to private addresses")
}

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
