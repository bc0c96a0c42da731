package instance

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// waiter is a distributed engine whose runs take a time, or until their context ends.
type waiter struct {
	takes time.Duration
	mu    sync.Mutex
	now   int
	most  int
}

// count adds to the runs at the same time.
func (w *waiter) count(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now += n
	w.most = max(w.most, w.now)
}

func (w *waiter) Inputs() []tensor.Info {
	return []tensor.Info{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, 1}}}
}

func (w *waiter) Outputs() []tensor.Info {
	return []tensor.Info{{Name: "y", Type: tensor.FP32, Shape: []int64{-1, 1}}}
}

func (w *waiter) Distributed() {}

func (w *waiter) Close() error { return nil }

func (w *waiter) Run(ctx context.Context, _ int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	w.count(1)
	defer w.count(-1)
	select {
	case <-time.After(w.takes):
		return inputs, nil
	case <-ctx.Done():
		return nil, errors.New("a worker was cut off")
	}
}

// With a concurrency of two, two batches run at the same time on a distributed engine, and the
// third waits. Each says how long it ran and waited itself.
func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &waiter{takes: time.Second}
		s, err := NewServer(engine, Options{Name: "m", MaxBatch: 1, Threads: 1, Concurrency: 2, Logger: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		spent := make(chan Spent, 3)
		for range 3 {
			go func() {
				responses, took := s.HandleBatch(t.Context(), []frame.Request{binaryInvoke(1)})
				if responses[0].Status != http.StatusOK {
					t.Errorf("%d %s", responses[0].Status, responses[0].Body)
				}
				spent <- took
			}()
		}
		for i := range 3 {
			got := <-spent
			want := Spent{Exec: time.Second}
			if i == 2 {
				want.Waited = time.Second
			}
			if got != want {
				t.Errorf("batch %d: %+v, want %+v", i, got, want)
			}
		}
		if took := time.Since(began); took != 2*time.Second || engine.most != 2 {
			t.Errorf("three batches took %v, at most %d at the same time", took, engine.most)
		}
	})
}

// A run ends with the time of its last member, and so does the wait for a turn.
func TestARunEndsWhenItsBatchIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewServer(&waiter{takes: time.Hour}, Options{Name: "m", MaxBatch: 4, Logger: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		ended := make(chan struct{})
		for range 2 {
			go func() {
				first, last := binaryInvoke(1), binaryInvoke(2)
				first.Due, last.Due = began.Add(time.Second), began.Add(3*time.Second)
				responses, _ := s.HandleBatch(t.Context(), []frame.Request{first, last})
				for _, r := range responses {
					if r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" || !strings.Contains(string(r.Body), "can no longer be met") {
						t.Errorf("%d %s", r.Status, r.Body)
					}
				}
				if took := time.Since(began); took != 3*time.Second {
					t.Errorf("it ended after %v", took)
				}
				ended <- struct{}{}
			}()
		}
		<-ended
		<-ended
	})
}

// Servers beside each other run one batch at a time together, and have the same metrics.
func TestServersBesideEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &waiter{takes: time.Second}
		gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "further"})
		first, err := NewServer(engine, Options{Name: "a", MaxBatch: 1, Logger: zerolog.Nop(), Collectors: []prometheus.Collector{gauge}})
		if err != nil {
			t.Fatal(err)
		}
		second, err := NewServer(engine, Options{Name: "b", MaxBatch: 1, Logger: zerolog.Nop(), Beside: first})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		for _, s := range []*Server{first, second} {
			go func() {
				s.HandleBatch(t.Context(), []frame.Request{binaryInvoke(1)})
				ended <- struct{}{}
			}()
		}
		<-ended
		<-ended
		if engine.most != 1 {
			t.Errorf("%d batches ran at the same time", engine.most)
		}
		metrics := bodyOf(t, do(t, second, http.MethodGet, "/metrics", "", nil))
		for _, want := range []string{`requests_total{code="200"} 2`, "further 0"} {
			if !strings.Contains(metrics, want) {
				t.Errorf("/metrics lacks %s", want)
			}
		}
	})
}

// An engine that runs one batch at a time is never given two.
func TestConcurrencyIsForDistributedEngines(t *testing.T) {
	_, err := NewServer(&doubler{width: 1}, Options{Name: "m", MaxBatch: 1, Concurrency: 2})
	if err == nil || !strings.Contains(err.Error(), "concurrency is 2") {
		t.Errorf("%v", err)
	}
}
