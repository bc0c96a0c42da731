package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// tally counts the answers to a steady load.
type tally struct {
	// codes counts answers by status, in failed are requests without one.
	codes  map[int]int
	failed []error
	// example is an answer that was not 200.
	example string
	worst   time.Duration
}

func (r *tally) String() string {
	return fmt.Sprintf("answers by status %v, without answer %d, the slowest took %v", r.codes, len(r.failed), r.worst.Round(time.Millisecond))
}

// wantAll fails the test unless there were requests, and all were answered with one of the
// codes.
func (r *tally) wantAll(t *testing.T, codes ...int) {
	t.Helper()
	if len(r.codes) == 0 {
		t.Error("there was no load")
	}
	if len(r.failed) > 0 {
		t.Errorf("%d requests have no answer, for example: %v", len(r.failed), r.failed[0])
	}
	for code, n := range r.codes {
		if !slices.Contains(codes, code) {
			t.Errorf("%d answers with %d; for example %s", n, code, r.example)
		}
	}
}

// underLoad sends requests at a steady rate, independent of earlier answers, until the
// returned function is called. That waits for the last answer.
func underLoad(t *testing.T, c *http.Client, url string, perSecond float64) (end func() *tally) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &tally{codes: map[int]int{}}
	var all sync.WaitGroup
	var mu sync.Mutex
	send := func() {
		began := time.Now()
		a, err := try(c, http.MethodPost, url, []byte("x"))
		mu.Lock()
		defer mu.Unlock()
		r.worst = max(r.worst, time.Since(began))
		if err != nil {
			r.failed = append(r.failed, err)
			return
		}
		if r.codes[a.status]++; a.status != http.StatusOK {
			r.example = strings.TrimSpace(a.body)
		}
	}
	all.Go(func() {
		ticks := time.Tick(time.Duration(float64(time.Second) / perSecond))
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks:
				all.Go(send)
			}
		}
	})
	return func() *tally {
		stop()
		all.Wait()
		return r
	}
}

func (w *way) underLoad(t *testing.T, name string, perSecond float64) (end func() *tally) {
	t.Helper()
	return underLoad(t, w.http, w.base+"/function/"+name, perSecond)
}
