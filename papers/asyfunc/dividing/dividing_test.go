package dividing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// models can be measured, at once.
type models struct{ latency.Models }

func (models) Hash(file string) (string, error)                { return "hash of " + file, nil }
func (models) Bytes(file string) int64                         { return int64(len(file)) }
func (models) Prepare(context.Context, string) (string, error) { return "prepared", nil }
func (models) Measure(_ context.Context, _ string, maxBatch int, _ time.Duration) (string, *profiler.Profile, error) {
	p := &profiler.Profile{Model: "m", Engine: "engine", Machine: "machine", Memory: 10 << 20}
	for b := 1; b <= maxBatch; b *= 2 {
		p.Measurements = append(p.Measurements, profiler.Measurement{Batch: b, Threads: 1, Runs: 20, Median: 5000 * float64(b+1), P95: 5000 * float64(b+1), CPU: 5000 * float64(b+1)})
	}
	return "prepared", p, nil
}

// profiles keeps profiles in memory.
type profiles map[string]*profiler.Profile

func (s profiles) Profile(key string) (*profiler.Profile, error) {
	if p, ok := s[key]; ok {
		return p, nil
	}
	return nil, errors.New("not in the store")
}

func (s profiles) PutProfile(key string, p *profiler.Profile) error {
	s[key] = p
	return nil
}

// rig is a finder and what it works with.
type rig struct {
	*Finder
	store   profiles
	leading bool
	blocks  func(ctx context.Context, file string) (*shadow.Model, error)
}

func newRig(store profiles) *rig {
	r := &rig{store: store, leading: true}
	times := latency.NewFinder(latency.Finder{
		Models: models{}, Profiles: store, Rules: latency.Rules{Policy: "late", Scaling: capacity.Production()},
		Engine: "engine", Machine: "machine", Leading: func() bool { return r.leading }, Logger: zerolog.Nop(),
	})
	r.Finder = New(times, func(ctx context.Context, file string) (*shadow.Model, error) { return r.blocks(ctx, file) }, nil)
	return r
}

func function() *provider.Function {
	return &provider.Function{Name: "f.n", Inference: annotation.Inference{IsInference: true, SLO: time.Second, MaxBatch: 8, Percentile: 99}}
}

// oneBlock is a model that could be divided.
func oneBlock() *shadow.Model {
	return &shadow.Model{Name: "m", Rows: []int{1}, Threads: []int{1}, Blocks: []shadow.Block{{Ms: [][]float64{{1}}}}}
}

// A search for a model's blocks delays no function's times.
func TestProfilesDoNotWaitForLayers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newRig(profiles{}), function()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.blocks = func(ctx context.Context, _ string) (*shadow.Model, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		done := make(chan error, 1)
		go func() {
			_, err := r.layers(ctx, f, "divided")
			done <- err
		}()
		synctest.Wait()
		within, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, _, err := r.times.Profile(within, f, "m", false); err != nil {
			t.Errorf("the other model was not measured: %v", err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the search ended with %v", err)
		}
	})
}

// Only a model that cannot be divided is not tried again.
func TestUndivided(t *testing.T) {
	r, f := newRig(profiles{}), function()
	for _, c := range []struct {
		fails error
		why   string
	}{
		{errors.New("it was killed"), ""},
		{&shadow.UndividedError{Why: "no cuts"}, "the model cannot be divided: no cuts"},
	} {
		r.blocks = func(context.Context, string) (*shadow.Model, error) { return nil, c.fails }
		if _, why, err := r.Divide(t.Context(), f, "m", nil); !errors.Is(err, c.fails) || why != c.why {
			t.Errorf("after %v it cannot be divided because %q (%v), want %q", c.fails, why, err, c.why)
		}
	}
}

// A restart forgets neither the layers nor why a model cannot be divided. The leader looks again, since the
// model may have been prepared again. Another replica shows what is stored.
func TestUndividedAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newRig(profiles{}), function()
		if _, _, err := r.times.Profile(t.Context(), f, "m", false); err != nil {
			t.Fatal(err)
		}
		var fails error = &shadow.UndividedError{Why: "no cuts"}
		r.blocks = func(context.Context, string) (*shadow.Model, error) {
			return oneBlock(), fails
		}
		if _, err := r.layers(t.Context(), f, "m"); !errors.Is(err, fails) {
			t.Fatal(err)
		}
		const why = "the model cannot be divided: no cuts"
		after := restarted(r)
		if _, err := after.layers(t.Context(), f, "m"); !errors.Is(err, fails) {
			t.Errorf("the leader after a restart: %v", err)
		}
		after.leading = false
		if _, err := after.layers(t.Context(), f, "m"); !errors.Is(err, latency.ErrStored) || errors.As(err, new(*shadow.UndividedError)) || err.Error() != "the leader found: "+why {
			t.Errorf("a replica that follows: %v", err)
		}
		fails, after.leading = nil, true
		if _, err := after.layers(t.Context(), f, "m"); err != nil {
			t.Errorf("the leader does not look again: %v", err)
		}
		again := restarted(r)
		if m, err := again.layers(t.Context(), f, "m"); err != nil || m.Name != "m" {
			t.Errorf("its layers were not stored: %v", err)
		}
	})
}

// restarted is a finder with r's store that has looked at nothing.
func restarted(r *rig) *rig {
	after := newRig(r.store)
	after.blocks = r.blocks
	return after
}
