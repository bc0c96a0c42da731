package rig

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/gorilla/mux"
	"github.com/openfaas/faas-provider/proxy"
	"github.com/openfaas/faas-provider/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/duplex"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/trace"
	"github.com/faas-infer/faas-infer/provider/web"
)

// fixed is a controller and a store with one function, whose instances do not change.
type fixed struct {
	dispatcher *dispatch.Dispatcher
	// rate is the function's annotation of that name, "" for none.
	rate string
}

func (f *fixed) Deploy(context.Context, *provider.Function) (provider.Dispatcher, error) {
	return f.dispatcher, nil
}
func (f *fixed) Remove(context.Context, string) error        { return nil }
func (f *fixed) Scale(string, uint64) error                  { return nil }
func (f *fixed) Restoring(func(string) bool)                 {}
func (f *fixed) Status(string) (provider.Status, bool)       { return provider.Status{}, true }
func (f *fixed) NextRevision() (uint64, error)               { return 1, nil }
func (f *fixed) PutFunction(store.Function) error            { return nil }
func (f *fixed) DeleteFunction(namespace, name string) error { return nil }

func (f *fixed) Function(namespace, name string) (store.Function, error) {
	all, err := f.Functions(namespace)
	if err != nil || name != FunctionName {
		return store.Function{}, errors.Join(err, store.ErrAbsent)
	}
	return all[0], nil
}

// Functions returns the only deployment.
func (f *fixed) Functions(string) ([]store.Function, error) {
	annotations := map[string]string{"com.openfaas.slo.latency": "1s"}
	if f.rate != "" {
		annotations[annotation.InferRate] = f.rate
	}
	return []store.Function{{Revision: 1, Deployment: types.FunctionDeployment{
		Service: FunctionName, Namespace: provider.DefaultNamespace, Image: "subject:latest", Annotations: &annotations,
	}}}, nil
}

// The default namespace needs no entry in the store.

func (f *fixed) PutNamespace(store.Namespace) error { return nil }
func (f *fixed) DeleteNamespace(string) error       { return store.ErrAbsent }
func (f *fixed) CheckDeleteNamespace(string) error  { return store.ErrAbsent }
func (f *fixed) Namespace(string) (store.Namespace, error) {
	return store.Namespace{}, store.ErrAbsent
}
func (f *fixed) Namespaces() ([]store.Namespace, error) { return nil, nil }

// NewFront returns the provider's HTTP handler for one instance on a Unix socket, with a
// batching policy.
func NewFront(ctx context.Context, policy string, slo time.Duration, in batching.Instance, socket string) (http.Handler, *dispatch.Dispatcher, error) {
	return newFront(ctx, policy, slo, in, socket, guards{registry: prometheus.NewRegistry()})
}

// guards are the parts of a front that decide about requests and trace them. Those with the zero value
// are off.
type guards struct {
	registry *prometheus.Registry
	// keys is a file with API keys, rate an annotation.
	keys, rate string
	tracer     provider.Tracer
}

func newFront(ctx context.Context, policy string, slo time.Duration, in batching.Instance, socket string, g guards) (http.Handler, *dispatch.Dispatcher, error) {
	p, err := batching.New(policy, batching.Options{SLO: slo})
	if err != nil {
		return nil, nil, err
	}
	m := metrics.New(g.registry)
	d := dispatch.New(dispatch.Options{Policy: p, SLO: slo, QueueLimit: 1 << 16, Recorder: m.Function(provider.FullName(FunctionName, provider.DefaultNamespace))})
	d.Up(in, "unix", socket)
	f := &fixed{dispatcher: d, rate: g.rate}
	s := provider.New(provider.Options{Store: f, Controller: f, Metrics: m, Gatherer: g.registry, Logger: zerolog.Nop(),
		AccessKeys: g.keys, Tracer: g.tracer})
	if err := s.Restore(ctx); err != nil {
		return nil, nil, err
	}
	return s.Handler(), d, nil
}

// resolver sends every function to one address.
type resolver struct{ url.URL }

// Resolve implements faas-provider's interface.
func (r resolver) Resolve(string) (url.URL, error) { return r.URL, nil }

// newFaaSProxy returns faas-provider's proxy for an instance at a TCP address, with the
// routes of faas-provider's Serve.
func newFaaSProxy(address string) http.Handler {
	handler := proxy.NewHandlerFunc(types.FaaSConfig{ReadTimeout: time.Minute}, resolver{url.URL{Scheme: "http", Host: address}}, false)
	r := mux.NewRouter()
	r.HandleFunc("/function/{name:[-a-zA-Z_0-9.]+}", handler)
	r.HandleFunc("/function/{name:[-a-zA-Z_0-9.]+}/", handler)
	r.HandleFunc("/function/{name:[-a-zA-Z_0-9.]+}/{params:.*}", handler)
	return r
}

// Front is one front of a bench, a process of its own.
type Front struct {
	// Kind is "provider" for this provider's invoke route with the shared queue and batches of one, "full" for
	// the same with TLS 1.3, API keys, a rate limit and 1 % of the requests traced, and "faas-proxy" for
	// faas-provider's proxy.
	Kind string
	// Listen is the address to serve at. Socket is the instance's Unix socket, Address its TCP address.
	Listen, Socket, Address string
	// Exec is the measured time of one execution.
	Exec time.Duration
	// Keys is a file with the API keys, and Collector the URL of the collector of the traces, of "full".
	Keys, Collector string
}

// maxRate is a rate limit that no bench reaches.
const maxRate = "1000000/s"

// Serve runs the front until ctx ends.
func (f Front) Serve(ctx context.Context) error {
	g := guards{registry: prometheus.NewRegistry()}
	var identity *mutual.Identity
	switch f.Kind {
	case "provider":
	case "full":
		certificate, err := newCertificate(time.Now())
		if err != nil {
			return err
		}
		identity = mutual.Given(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }, zerolog.Nop())
		tracer, err := trace.New(trace.Options{Endpoint: f.Collector, Sample: trace.DefaultSample,
			Getenv: func(string) string { return "" }, Registry: g.registry, Logger: zerolog.Nop()})
		if err != nil {
			return err
		}
		if tracer == nil {
			return errors.New("--collector is empty: give the URL of a collector")
		}
		defer func() {
			flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			tracer.Close(flush)
		}()
		g.keys, g.rate, g.tracer = f.Keys, maxRate, tracer
	case "faas-proxy":
		return serveUntil(ctx, &http.Server{Handler: newFaaSProxy(f.Address), ReadHeaderTimeout: 10 * time.Second}, f.Listen, nil)
	default:
		return fmt.Errorf("--kind %q: it must be provider, full or faas-proxy", f.Kind)
	}
	in := batching.Instance{ID: "subject", Config: cluster.Config{Batch: 1}, Exec: []time.Duration{f.Exec}}
	handler, dispatcher, err := newFront(ctx, batching.SharedName, time.Second, in, f.Socket, g)
	if err != nil {
		return err
	}
	defer dispatcher.Close()
	return serveProvider(ctx, handler, f.Listen, identity)
}

// serveProvider serves a handler as the provider's program serves its routes. identity is nil without TLS.
func serveProvider(ctx context.Context, handler http.Handler, address string, identity *mutual.Identity) error {
	const stall = 30 * time.Second
	bounds := web.NewConnections(web.ConnectionOptions{Max: 10000, MaxHeads: 64 << 20, AnswerTimeout: stall})
	if identity != nil {
		handler = mutual.Guard(handler, mutual.Rules{Open: []string{"/healthz"}, Callers: func(string) []string { return nil }})
	}
	server := web.NewServer(handler, bounds)
	bound := server.ConnContext
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return mutual.WithConn(bound(ctx, c), c) }
	return serveUntil(ctx, server, address, func(l net.Listener) net.Listener {
		l = duplex.LimitStalls(bounds.Listen(l), stall)
		if identity != nil {
			l = identity.Listen(l, "h2")
		}
		return l
	})
}

// serveUntil serves at an address until ctx ends. wrap, if set, changes the listener.
func serveUntil(ctx context.Context, server *http.Server, address string, wrap func(net.Listener) net.Listener) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	if wrap != nil {
		l = wrap(l)
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

// newCertificate makes a self-signed certificate. Clients must not verify it.
func newCertificate(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(240 * time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, nil
}
