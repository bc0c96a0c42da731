package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/store"
)

// still is a controller whose functions have one instance each, which gives back what it gets.
type still struct{}

func (still) Deploy(context.Context, *provider.Function) (provider.Dispatcher, error) {
	return still{}, nil
}
func (still) Remove(context.Context, string) error       { return nil }
func (still) Scale(string, uint64) error                 { return nil }
func (still) Restoring(func(string) bool)                {}
func (still) Status(string) (s provider.Status, ok bool) { return oneInstance.Status, true }
func (still) Watch(string) (w provider.Watched, ok bool) { return oneInstance, true }
func (still) Invoke(_ context.Context, r *frame.Request) (*frame.Response, error) {
	return &frame.Response{Status: http.StatusOK, Header: http.Header{}, Body: r.Body}, nil
}

var oneInstance = provider.Watched{
	Status: provider.Status{Replicas: 1, AvailableReplicas: 1}, Carries: 100, Revision: 1,
	Instances: []provider.WatchedInstance{{Instance: cluster.Instance{InstanceSpec: cluster.InstanceSpec{
		ID: "one", Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000}}}, State: cluster.Ready}}},
}

// watchedServer is a provider in this process. Its clock stands until it is set.
type watchedServer struct {
	rig.Deployed
	server *http.Server
	store  *store.Store
	dir    string
	// now is the clock in seconds since 1970.
	now atomic.Int64
}

// newWatchedServer starts a provider with n functions.
func newWatchedServer(ctx context.Context, n int) (_ *watchedServer, err error) {
	w := &watchedServer{}
	w.now.Store(1_790_000_000)
	if w.dir, err = os.MkdirTemp("", "faas-infer-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.store, err = store.Open(filepath.Join(w.dir, "store.db")); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	s := provider.New(provider.Options{Store: w.store, Controller: still{}, Metrics: metrics.New(registry), Gatherer: registry,
		Logger: zerolog.Nop(), Now: func() time.Time { return time.Unix(w.now.Load(), 0) }})
	if err := s.Restore(ctx); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	w.server = &http.Server{Handler: s.Handler(), ReadHeaderTimeout: time.Minute}
	go func() { _ = w.server.Serve(l) }()
	w.URL = "http://" + l.Addr().String()
	for i := range n {
		if err := w.Deploy(ctx, functionAt(i), "subject:latest", 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func functionAt(i int) string { return fmt.Sprintf("function-%d", i) }

func (w *watchedServer) close() {
	if w.server != nil {
		_ = w.server.Close()
	}
	if w.store != nil {
		_ = w.store.Close()
	}
	_ = os.RemoveAll(w.dir)
}

// get expects the answer 200.
func (w *watchedServer) get(ctx context.Context, path string) error {
	status, text, err := rig.Get(ctx, http.DefaultClient, w.URL+path)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("GET %s: %d: %.200s", path, status, text)
	}
	return err
}

// measureHistory measures what the heap of a provider with n functions grows by in some seconds of its clock. Each function
// gets a request before, and another one each minute.
func measureHistory(ctx context.Context, r *report.Report, n, seconds int) error {
	w, err := newWatchedServer(ctx, n)
	if err != nil {
		return err
	}
	defer w.close()
	callAll := func() error {
		for i := range n {
			if err := w.get(ctx, "/function/"+functionAt(i)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := callAll(); err != nil {
		return err
	}
	before := liveHeap()
	for second := range seconds {
		if second%60 == 30 {
			if err := callAll(); err != nil {
				return err
			}
		}
		w.now.Add(1)
		if err := w.get(ctx, "/system/stats?function="+functionAt(0)); err != nil {
			return err
		}
	}
	if err := w.get(ctx, "/system/stats"); err != nil { // What is shown of a function is kept, too.
		return err
	}
	after := liveHeap()
	if after <= before {
		return errors.New("the heap has not grown: there is no history")
	}
	r.Add("stats.memory_mib", float64(after-before)/(1<<20), "MiB",
		fmt.Sprintf("growth of the live heap of a provider with %d functions by %d s of history", n, seconds))
	return nil
}

// liveHeap is what this process' heap holds in bytes.
func liveHeap() uint64 {
	http.DefaultClient.CloseIdleConnections()
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // The first leaves what pools held.
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
