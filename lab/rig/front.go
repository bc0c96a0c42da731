package rig

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/store"
)

// fixed is a controller and a store with one function, whose instances do not change.
type fixed struct {
	dispatcher *dispatch.Dispatcher
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
	return []store.Function{{Revision: 1, Deployment: types.FunctionDeployment{
		Service: FunctionName, Namespace: provider.DefaultNamespace, Image: "subject:latest",
		Annotations: &map[string]string{"com.openfaas.slo.latency": "1s"},
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
	p, err := batching.New(policy, batching.Options{SLO: slo})
	if err != nil {
		return nil, nil, err
	}
	registry := prometheus.NewRegistry()
	m := metrics.New(registry)
	d := dispatch.New(dispatch.Options{Policy: p, SLO: slo, QueueLimit: 1 << 16, Recorder: m.Function(provider.FullName(FunctionName, provider.DefaultNamespace))})
	d.Up(in, "unix", socket)
	f := &fixed{dispatcher: d}
	s := provider.New(provider.Options{Store: f, Controller: f, Metrics: m, Gatherer: registry, Logger: zerolog.Nop()})
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

// ServeFront runs one front until ctx ends. Kind "provider" is this provider's invoke route
// with the shared queue and batches of one; "faas-proxy" is faas-provider's proxy. "bench
// dataplane" starts both as separate processes. exec is the measured time of one execution.
func ServeFront(ctx context.Context, kind, listen, socket, address string, exec time.Duration) error {
	var handler http.Handler
	switch kind {
	case "provider":
		in := batching.Instance{ID: "subject", Config: cluster.Config{Batch: 1}, Exec: []time.Duration{exec}}
		front, dispatcher, err := NewFront(ctx, batching.SharedName, time.Second, in, socket)
		if err != nil {
			return err
		}
		defer dispatcher.Close()
		handler = front
	case "faas-proxy":
		handler = newFaaSProxy(address)
	default:
		return fmt.Errorf("--kind %q: it must be provider or faas-proxy", kind)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	if err := server.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}
