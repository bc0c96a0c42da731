package command

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/provider/async"
	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/trace"
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

// noAddress is the value of --listen for no address with all routes.
const noAddress = "off"

// doorFlags are the addresses of a provider beside --listen.
type doorFlags struct{ data, admin string }

// acmeFlags say from which authority a provider gets its certificates by ACME (RFC 8555).
type acmeFlags struct {
	domains                []string
	directory, email, http string
}

// check refuses flags that cannot work. with is --tls.
func (a *acmeFlags) check(with string) error {
	switch {
	case len(a.domains) == 0 && (a.email != "" || a.http != ""):
		return errors.New("--acme-email and --acme-http are of use only with --acme-domain")
	case len(a.domains) > 0 && with != "":
		return errors.New("--tls and --acme-domain: give one of them; both say where the certificate comes from")
	}
	for _, name := range a.domains {
		if notHost(name) || !strings.Contains(strings.Trim(name, "."), ".") || strings.Contains(name, "*") || net.ParseIP(name) != nil {
			return fmt.Errorf("--acme-domain %q: it must be a name with a dot, such as functions.example.com, without scheme, port and *", name)
		}
	}
	return nil
}

// flushTraces is how long the last spans and metrics may take to the collector. It runs beside stopInstances.
const flushTraces = 2 * time.Second

// traceFlags are the flags of OpenTelemetry.
type traceFlags struct {
	endpoint string
	sample   float64
}

func (f *traceFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.endpoint, "otlp-endpoint", "", "URL of an OpenTelemetry collector (OTLP over HTTP), such as http://127.0.0.1:4318, which gets traces and metrics (default $OTEL_EXPORTER_OTLP_ENDPOINT; without one nothing is traced)")
	flags.Float64Var(&f.sample, "trace-sample", trace.DefaultSample, "share of requests that are traced, from 0 to 1, among those without a traceparent, which says it for the others (default $OTEL_TRACES_SAMPLER and $OTEL_TRACES_SAMPLER_ARG, or 0.01)")
	flags.Lookup("trace-sample").DefValue = "0" // Which help does not print: the default depends on variables.
}
