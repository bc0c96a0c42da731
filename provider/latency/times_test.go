package latency_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// models holds one model whose batch of b takes 10 ms · (b+1)/2, predicted or measured.
// Predicting and measuring take a second each.
type models struct {
	// linked is the directory in which Sketch leaves a model, "" for that of Prepare.
	linked   string
	mu       sync.Mutex
	calls    []string
	measured atomic.Int64
	// sketch is the factor by which a sketch is slower; 0 means that sketching fails.
	sketch float64
	// assumed is the factor by which assumed times are slower; 0 means that none are.
	assumed float64
	// slower is the factor by which a prediction is slower. The other fields are failures.
	slower                       float64
	hash, check, predict, failed error
}

func (m *models) call(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, what)
}

func (m *models) did() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	text := fmt.Sprint(m.calls)
	m.calls = nil
	return text
}

func (m *models) Hash(file string) (string, error) { return "hash of " + file, m.hash }
func (m *models) Check(_ context.Context, file string, known func(string) bool) error {
	if hash, err := m.Hash(file); err != nil || known(hash) {
		return err
	}
	m.call("check")
	return m.check
}
func (m *models) Bytes(file string) int64 { return int64(len(file)) }

func (m *models) Prepare(_ context.Context, file string) (string, error) {
	m.call("prepare")
	return "prepared " + file, nil
}

// Sketch returns a provisional profile of at most two batches. It fails if m.sketch is 0.
func (m *models) Sketch(_ context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	if m.sketch == 0 {
		return "", nil, errors.New("not to be sketched")
	}
	m.call("sketch")
	p := profile(min(maxBatch, 2), until, m.sketch, false)
	p.Provisional = true
	return cmp.Or(m.linked, "prepared "+file), p, nil
}

func (m *models) Assume(
	_ context.Context, file string, _ int, until time.Duration,
) (string, *profiler.Profile, error) {
	if m.assumed == 0 {
		return "", nil, latency.ErrNotAssumed
	}
	m.call("assume")
	p := profile(1, until, m.assumed, true)
	p.Provisional = true
	return cmp.Or(m.linked, "prepared "+file), p, nil
}

func (m *models) Predict(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	m.call("predict")
	if m.predict != nil {
		return "", nil, m.predict
	}
	return "prepared " + file, profile(maxBatch, until, max(1, m.slower), true), ctx.Err()
}

func (m *models) Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	m.call("measure")
	if m.measured.Add(1) != 1 {
		return "", nil, errors.New("measured twice at the same time")
	}
	defer m.measured.Add(-1)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return "", nil, ctx.Err()
	}
	if m.failed != nil {
		return "", nil, m.failed
	}
	return "prepared " + file, profile(maxBatch, until, 1, false), nil
}

// profile reaches maxBatch, or the first batch that takes longer than until.
func profile(maxBatch int, until time.Duration, factor float64, predicted bool) *profiler.Profile {
	p := &profiler.Profile{Model: "m", Engine: "engine", Machine: "machine", Memory: 10 << 20}
	for b := 1; b <= maxBatch; b *= 2 {
		us := factor * 5000 * float64(b+1)
		m := profiler.Measurement{Batch: b, Threads: 1, Median: us, P95: us, CPU: us, Predicted: predicted}
		if !predicted {
			m.Runs = 20
		}
		if p.Measurements = append(p.Measurements, m); us > float64(until.Microseconds()) {
			break
		}
	}
	return p
}

// store keeps profiles in memory.
type store struct {
	mu    sync.Mutex
	kept  map[string]*profiler.Profile
	fails error
}

func (s *store) Profile(key string) (*profiler.Profile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.kept[key]; ok {
		return p, nil
	}
	return nil, errors.New("not in the store")
}

func (s *store) PutProfile(key string, p *profiler.Profile) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails == nil {
		s.kept[key] = p
	}
	return s.fails
}

// rig is a finder and what it works with.
type rig struct {
	*latency.Finder
	models  *models
	store   *store
	leading bool
}

func newRig(predict bool) *rig {
	r := &rig{models: &models{}, store: &store{kept: map[string]*profiler.Profile{}}, leading: true}
	r.Finder = latency.NewFinder(latency.Finder{
		Models: r.models, Profiles: r.store, Rules: latency.Rules{Policy: "late", Scaling: capacity.Production()},
		Predict: predict, Engine: "engine", Machine: "machine", Leading: func() bool { return r.leading }, Logger: zerolog.Nop(),
	})
	return r
}

func function(slo time.Duration, maxBatch int) *provider.Function {
	return &provider.Function{Name: "f.n", Inference: annotation.Inference{IsInference: true, SLO: slo, MaxBatch: maxBatch, Percentile: 99}}
}

// put stores a profile of the model "m" for the function.
func (r *rig) put(f *provider.Function, p *profiler.Profile) {
	hash, _ := r.models.Hash("m")
	r.store.kept[r.Key(hash, f)] = p
}

// stored is the profile of "m" in the store.
func (r *rig) stored(f *provider.Function) *profiler.Profile {
	hash, _ := r.models.Hash("m")
	return r.store.kept[r.Key(hash, f)]
}

func TestKeys(t *testing.T) {
	r, f := newRig(true), function(time.Second, 8)
	seen := map[string]bool{r.Key("a", f): true, r.Key("b", f): true, r.Key("a", function(time.Second, 16)): true}
	r.Engine = "another"
	seen[r.Key("a", f)] = true
	r.Engine, r.Machine = "engine", "another"
	if seen[r.Key("a", f)] = true; len(seen) != 5 {
		t.Errorf("%v", seen)
	}
}

func TestCheck(t *testing.T) {
	f := function(200*time.Millisecond, 4)
	unreadable := errors.New("no such file")
	for _, c := range []struct {
		name    string
		prepare func(r *rig)
		did     string
		refused bool
		is      error
	}{
		{"nothing is known, and it can be read", func(*rig) {}, "[check]", false, nil},
		{"nothing is known, and it cannot be read", func(r *rig) { r.models.check = unreadable }, "[check]", false, unreadable},
		{"there is no file", func(r *rig) { r.models.hash = unreadable }, "[]", false, unreadable},
		{"measured, and fast enough", func(r *rig) { r.put(f, profile(4, time.Second, 1, false)) }, "[]", false, nil},
		{"measured, and too slow", func(r *rig) { r.put(f, profile(4, time.Hour, 100, false)) }, "[]", true, nil},
		{"predicted too slow: it is measured first", func(r *rig) { r.put(f, profile(4, time.Hour, 100, true)) }, "[]", false, nil},
		{"measured elsewhere", func(r *rig) { r.Machine = "another"; r.put(f, profile(4, time.Hour, 100, false)) }, "[check]", false, nil},
	} {
		r := newRig(true)
		c.prepare(r)
		err := r.Check(t.Context(), f, "m")
		var refusal *annotation.Error
		if did := r.models.did(); did != c.did || errors.As(err, &refusal) != c.refused || !c.refused && !errors.Is(err, c.is) {
			t.Errorf("%s: %s, %v", c.name, did, err)
		}
	}
}

// find returns Profile's answer as text.
func (r *rig) find(t *testing.T, f *provider.Function, alone bool) string {
	prepared, p, err := r.Profile(t.Context(), f, "m", alone)
	switch {
	case err != nil:
		return err.Error()
	case prepared != "prepared m":
		return fmt.Sprintf("%q is prepared", prepared)
	}
	return fmt.Sprintf("≤%d %v", p.MaxBatch(), p.Measurements[0].Predicted)
}

func TestProfile(t *testing.T) {
	second := function(time.Second, 8)
	for _, c := range []struct {
		name    string
		f       *provider.Function
		predict bool
		prepare func(r *rig)
		found   string
		did     string
		again   string
	}{
		{"predicted, and kept", second, true, func(*rig) {}, "≤8 true", "[predict]", "[prepare]"},
		{"measured, where it is to be", second, false, func(*rig) {}, "≤8 false", "[measure]", "[prepare]"},
		{"measured, where it cannot be predicted", second, true, func(r *rig) { r.models.predict = latency.ErrUnpredictable }, "≤8 false", "[predict measure]", "[prepare]"},
		{"measured, where predicting fails", second, true, func(r *rig) { r.models.predict = errors.New("killed") }, "≤8 false", "[predict measure]", "[prepare]"},
		{"measured, before it is refused", second, true, func(r *rig) { r.models.slower = 1000 }, "≤8 false", "[predict measure]", "[prepare]"},
		{"batches go on to half the objective", function(50*time.Millisecond, 32), true, func(*rig) {}, "≤8 true", "[predict]", "[prepare]"},
		{"a stored prediction does not do where it is to be measured", second, false, func(r *rig) { r.put(second, profile(8, time.Second, 1, true)) }, "≤8 false", "[measure]", "[prepare]"},
		{"a stored measurement does where it may be predicted", second, true, func(r *rig) { r.put(second, profile(8, time.Second, 1, false)) }, "≤8 false", "[prepare]", "[prepare]"},
		{"what is stored ends too early", second, false, func(r *rig) { r.put(second, profile(8, 10*time.Millisecond, 1, false)) }, "≤8 false", "[measure]", "[prepare]"},
		{"what is found is not kept, and is found again", second, true, func(r *rig) { r.store.fails = errors.New("disk full") }, "≤8 true", "[predict]", "[predict]"},
		{"it cannot be measured", second, false, func(r *rig) { r.models.failed = errors.New("killed by signal 9") }, "killed by signal 9", "[measure]", "[measure]"},
		{"there is no file", second, true, func(r *rig) { r.models.hash = errors.New("gone") }, "gone", "[]", "[]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(c.predict)
			c.prepare(r)
			for _, want := range []string{c.did, c.again} {
				if found, did := r.find(t, c.f, false), r.models.did(); found != c.found || did != want {
					t.Errorf("%s: %s by %s, want %s by %s", c.name, found, did, c.found, want)
				}
			}
		})
	}
}

// A new model serves with a sketch at once, if it meets the objective by that, and is then
// predicted.
func TestSketch(t *testing.T) {
	f := function(time.Second, 8)
	r := newRig(true)
	r.models.sketch = 1
	for _, want := range []string{"[sketch]", "[prepare]"} {
		if found, did := r.find(t, f, false), r.models.did(); found != "≤2 false" || did != want {
			t.Errorf("%s by %s, want %s", found, did, want)
		}
	}
	r.leading = false
	if _, _, err := r.Refine(t.Context(), f, "m"); !errors.Is(err, latency.ErrFollowing) {
		t.Errorf("who follows: %v", err)
	}
	r.leading = true
	for _, want := range []string{"[predict]", "[prepare]"} {
		_, p, err := r.Refine(t.Context(), f, "m")
		if did := r.models.did(); err != nil || p.Provisional || p.MaxBatch() != 8 || did != want {
			t.Errorf("%v: %+v by %s, want %s", err, p, did, want)
		}
	}
	if found, did := r.find(t, f, false), r.models.did(); found != "≤8 true" || did != "[prepare]" {
		t.Errorf("afterwards %s by %s", found, did)
	}

	large := newRig(true)
	large.models.sketch, large.models.linked = 1, t.TempDir()
	for _, want := range []string{"[sketch]", "[]"} {
		prepared, _, err := large.Profile(t.Context(), f, "m", false)
		if did := large.models.did(); err != nil || prepared != large.models.linked || did != want {
			t.Errorf("a large model, which is sketched before it is prepared: %s, %v, by %s", prepared, err, did)
		}
	}

	slow := newRig(true)
	slow.models.sketch = 1000
	if found, did := slow.find(t, f, false), slow.models.did(); found != "≤8 true" || did != "[sketch predict]" {
		t.Errorf("what a sketch says is too slow: %s by %s", found, did)
	}
}

// A function that needs larger batches stores a profile that is enough for the others, too,
// whether its objective is longer or shorter than theirs.
func TestAssume(t *testing.T) {
	f := function(400*time.Millisecond, 8)
	for _, c := range []struct {
		name            string
		assumed, sketch float64
		found, did      string
	}{
		{"times that meet the objective", 2, 1, "≤1 true", "[assume]"},
		{"times that do not", 1000, 1, "≤2 false", "[assume sketch]"},
		{"no times", 0, 1, "≤2 false", "[sketch]"},
		{"neither", 1000, 0, "≤8 true", "[assume predict]"},
	} {
		r := newRig(true)
		r.models.assumed, r.models.sketch = c.assumed, c.sketch
		if found, did := r.find(t, f, false), r.models.did(); found != c.found || did != c.did {
			t.Errorf("%s: %s by %s, want %s by %s", c.name, found, did, c.found, c.did)
		}
	}
}

func TestAProfileGoesOnAsFarAsAnybodyNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(false)
		short, long := function(50*time.Millisecond, 32), function(400*time.Millisecond, 32)
		for _, c := range []struct {
			f          *provider.Function
			found, did string
		}{{short, "≤8 false", "[measure]"}, {long, "≤32 false", "[measure]"}, {short, "≤32 false", "[prepare]"}, {long, "≤32 false", "[prepare]"}} {
			if found, did := r.find(t, c.f, false), r.models.did(); found != c.found || did != c.did {
				t.Errorf("%v: %s by %s, want %s by %s", c.f.Inference.SLO, found, did, c.found, c.did)
			}
		}
	})
}

// A replica that does not lead reads only the store, unless alone is set. Then it stores
// nothing that it finds.
func TestFollowing(t *testing.T) {
	r, f := newRig(true), function(time.Second, 8)
	r.leading = false
	if _, _, err := r.Profile(t.Context(), f, "m", false); !errors.Is(err, latency.ErrFollowing) {
		t.Errorf("%v", err)
	}
	if found, did := r.find(t, f, true), r.models.did(); found != "≤8 true" || did != "[predict]" || len(r.store.kept) != 0 {
		t.Errorf("%s by %s, %d are kept", found, did, len(r.store.kept))
	}
	r.put(f, profile(8, time.Second, 1, false))
	if found, did := r.find(t, f, false), r.models.did(); found != "≤8 false" || did != "[prepare]" {
		t.Errorf("%s by %s", found, did)
	}
}

// Of many calls that need the same model's times at the same time, one measures them. A call
// whose context ends meanwhile returns its own error.
func TestOneMeasuresForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newRig(false), function(time.Second, 8)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if found := r.find(t, f, false); found != "≤8 false" {
					t.Error(found)
				}
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		synctest.Wait()
		if _, _, err := r.Profile(ctx, f, "m", false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		all.Wait()
		if did := r.models.did(); did != "[measure prepare prepare prepare prepare]" {
			t.Error(did)
		}
	})
}

// Giving up during a prediction does not start a measurement.
func TestGivingUpMeasuresNothing(t *testing.T) {
	r := newRig(true)
	ctx, cancel := context.WithCancel(t.Context())
	r.models.predict = errors.New("ended")
	cancel()
	for range 20 { // Whether the turn or the end is seen first is chance.
		if _, _, err := r.Profile(ctx, function(time.Second, 8), "m", false); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	for _, what := range r.models.calls {
		if what == "measure" {
			t.Fatal("measured")
		}
	}
}
