package control

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
)

// revisionOf returns the number in an answer's header.
func revisionOf(t testing.TB, got *frame.Response) uint64 {
	t.Helper()
	number, err := strconv.ParseUint(got.Header.Get("X-Infer-Revision"), 10, 64)
	if err != nil {
		t.Fatalf("%v: %v", got.Header, err)
	}
	return number
}

// Once a revision has answered, no request that comes later is answered by an earlier one. No
// request fails meanwhile.
func TestNoEarlierRevisionAnswersAfterALater(t *testing.T) {
	for what, c := range map[string]struct {
		cores int // in millicores
		pause time.Duration
	}{"room for both": {16000, time.Millisecond}, "little room": {2000, 2 * time.Millisecond}} {
		try(t, func(r *rig) {
			r.backend.widen(c.cores)
			r.measured("f", "m1")
			go func() {
				for _, model := range []string{"m2", "m3", "m4"} {
					time.Sleep(3 * time.Second)
					r.deploy("f", model)
				}
			}()
			var mu sync.Mutex
			var sent sync.WaitGroup
			latest, failed := uint64(0), 0
			began := time.Now()
			for range int(12 * time.Second / c.pause) {
				sent.Go(func() {
					scaled := time.Since(began) > 2*time.Second // Before, there is too little for the load.
					mu.Lock()
					before := latest
					mu.Unlock()
					got, err := r.asks("f")
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						if scaled {
							failed++
						}
						return
					}
					number := revisionOf(r.t, got)
					if number < before || !strings.HasPrefix(string(got.Body), "m"+strconv.FormatUint(number, 10)+":") {
						r.t.Errorf("%s: revision %d answers %q after %d", what, number, got.Body, before)
					}
					latest = max(latest, number)
				})
				time.Sleep(c.pause)
			}
			sent.Wait()
			if latest != r.revision || failed > 0 {
				r.t.Errorf("%s: at the end %d answers, not %d; %d requests failed", what, latest, r.revision, failed)
			}
		})
	}
}

// A deployment that changes no instance makes the same ones answer as the new revision.
func TestInstancesThatStayAnswerAsTheNewRevision(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		for want := range uint64(3) {
			got, err := r.asks("f")
			if err != nil || revisionOf(r.t, got) != want+1 {
				r.t.Errorf("%v, %v; want revision %d", got, err, want+1)
			}
			r.deploy("f", "m", func(f *provider.Function) { f.Inference.Percentile = 99 - float64(want) })
			time.Sleep(2 * time.Second)
		}
	})
}
