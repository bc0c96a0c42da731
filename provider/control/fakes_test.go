package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/web"
)

// fakeModels are models whose file name says how they behave: "slow" ones take a second.
type fakeModels struct {
	mu sync.Mutex
	// checks, prepares and measures count the calls; most is the maximum number of
	// measurements at the same time.
	checks, prepares, measures, atOnce, most int
	predicts                                 int
	longest                                  bool // predictions are of the longest path
	checkFails, measureFails, predictFails   error
	hashFails                                error
	edition                                  string // changes with the file
	// lessons are the bodies of the requests whose sizes were tried. Those of "runs" run.
	lessons []string
}

// Learn takes a second. The sizes with which a model runs are good for all that fails before.
func (m *fakeModels) Learn(ctx context.Context, _, _, _ string, r *frame.Request) (string, error) {
	m.mu.Lock()
	m.lessons = append(m.lessons, string(r.Body))
	m.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if string(r.Body) != "runs" {
		return "", web.Refuse(http.StatusBadRequest, "the model does not run with the sizes of this request")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.checkFails, m.measureFails = nil, nil
	return "ids:1x7", nil
}

func (m *fakeModels) Check(_ context.Context, file string, known func(string) bool) error {
	if hash, err := m.Hash(file); err != nil || known(hash) {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.checks++
	return m.checkFails
}

func (m *fakeModels) Hash(file string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return "hash of " + m.edition + file, m.hashFails
}

func (m *fakeModels) Bytes(string) int64 { return 1 }

func (m *fakeModels) Prepare(_ context.Context, file string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.prepares++
	return file, nil
}

func (m *fakeModels) Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	m.mu.Lock()
	m.measures++
	m.atOnce++
	m.most = max(m.most, m.atOnce)
	err := m.measureFails
	m.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		err = ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.atOnce--
	if err != nil {
		return "", nil, err
	}
	return file, fakeProfile(file, maxBatch, until), nil
}

// plain is the suffix of a large model's name before it is prepared.
const plain = " as it stands"

// Sketch returns the first two batches of provisional models, and serves large ones
// unprepared. The operators of others are unknown, or known well enough for a prediction.
func (m *fakeModels) Sketch(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	if !strings.Contains(file, "provisional") {
		return "", nil, errors.New("not to be sketched")
	}
	p := fakeProfile(file, min(maxBatch, 2), until)
	p.Provisional = true
	if strings.Contains(file, "large") {
		return file + plain, p, nil
	}
	return file, p, nil
}

func (m *fakeModels) Predict(_ context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.predicts++
	if m.predictFails != nil {
		return "", nil, m.predictFails
	}
	p := predictedProfile(file, maxBatch, until)
	p.Longest = m.longest
	return file, p, nil
}

// predictedProfile is fakeProfile as a prediction. The prediction is right, except for
// models whose name says that they are predicted to be slow.
func predictedProfile(file string, maxBatch int, until time.Duration) *profiler.Profile {
	p := fakeProfile(file, maxBatch, until)
	for i := range p.Measurements {
		m := &p.Measurements[i]
		m.Predicted, m.Runs, m.Margin = true, 0, 0.2
		if strings.Contains(file, "doubtful") {
			m.Median, m.P95, m.CPU = 500*m.Median, 500*m.P95, 500*m.CPU
		}
	}
	return p
}

// tried is the number of measurements so far.
func (m *fakeModels) tried() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.measures
}

func (m *fakeModels) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.measureFails = err
}

// execTime is the time of a batch: the fixed part is half the time of a batch of one.
func execTime(file string, batch, threads int) time.Duration {
	base := 4 * time.Millisecond
	switch {
	case strings.Contains(file, "slow"):
		base = time.Second
	case strings.Contains(file, "text"):
		base = 20 * time.Millisecond
	case strings.Contains(file, "slim"):
		base = 2 * time.Millisecond
	}
	return base * time.Duration(batch+1) / time.Duration(2*threads)
}

func fakeProfile(file string, maxBatch int, until time.Duration) *profiler.Profile {
	p := &profiler.Profile{Model: file, Engine: "engine", Machine: "machine", Yardstick: 40, Memory: 10 << 20, Own: 5 << 20}
	if strings.Contains(file, "text") {
		p.BySize = &profiler.Sizes{Unit: "tokens", Length: 128, Elements: 256}
		for _, n := range []int64{16, 128, 256, 512} {
			p.BySize.Times = append(p.BySize.Times, profiler.SizeTime{Length: n, Elements: 2 * n, Factors: []float64{float64(n) / 128}})
		}
	}
	for _, threads := range []int{1, 2} {
		for b := 1; b <= maxBatch; b *= 2 {
			t := execTime(file, b, threads)
			us := float64(t.Microseconds())
			p.Measurements = append(p.Measurements, profiler.Measurement{Batch: b, Threads: threads, Median: us, P95: us, CPU: us * float64(threads), Runs: 20})
			if until > 0 && t > until {
				break
			}
		}
	}
	return p
}

// fakeProfiles is a store in memory.
type fakeProfiles struct {
	mu    sync.Mutex
	kept  map[string]*profiler.Profile
	fails error
}

func (s *fakeProfiles) Profile(key string) (*profiler.Profile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.kept[key]; ok {
		return p, nil
	}
	return nil, errors.New("not in the store")
}

func (s *fakeProfiles) PutProfile(key string, p *profiler.Profile) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails == nil {
		s.kept[key] = p
	}
	return s.fails
}

// fakeCorrections is a store in memory.
type fakeCorrections struct {
	mu     sync.Mutex
	kept   map[string]correction.State
	writes int
}

func (s *fakeCorrections) Correction(function string) (correction.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state, ok := s.kept[function]; ok {
		return state, nil
	}
	return correction.State{}, errors.New("not in the store")
}

func (s *fakeCorrections) CorrectionNames() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.kept)), nil
}

func (s *fakeCorrections) PutCorrections(states map[string]correction.State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	maps.Copy(s.kept, states)
	return nil
}

func (s *fakeCorrections) DeleteCorrection(function string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, function)
	return nil
}

func (s *fakeCorrections) written() (functions, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kept), s.writes
}

// fakeHistories is a store in memory.
type fakeHistories struct {
	mu     sync.Mutex
	kept   map[string][]byte
	writes int
}

func (s *fakeHistories) History(function string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if history, ok := s.kept[function]; ok {
		return history, nil
	}
	return nil, errors.New("not in the store")
}

func (s *fakeHistories) PutHistories(histories map[string][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	maps.Copy(s.kept, histories)
	return nil
}

func (s *fakeHistories) DeleteHistory(function string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, function)
	return nil
}

func (s *fakeHistories) written() (functions, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kept), s.writes
}

// fakeSecrets holds one secret, "token".
type fakeSecrets struct{}

func (fakeSecrets) File(_, secret string) (string, error) {
	if secret != "token" {
		return "", fmt.Errorf("there is no secret %q", secret)
	}
	return "/secrets/token", nil
}

func (fakeSecrets) Version(_, secret string) string { return "version of " + secret }

// servingKey says in tests which variant of a bundle may serve.
const servingKey = "serving"

// serving lets only one variant serve.
func serving(name string) func(*provider.Function) {
	return func(f *provider.Function) { f.Inference.Stated = f.Inference.Stated.With(servingKey, name) }
}

// fakeBundles finds a bundle for every image but "absent".
type fakeBundles struct{}

func (fakeBundles) Models(_ context.Context, f *provider.Function) (bundle string, models []Model, err error) {
	image, model := f.Deployment.Image, f.Inference.Model
	if image == "absent" {
		return "", nil, errors.New("no bundle")
	}
	if list, several := strings.CutPrefix(image, "variants:"); several { // For example "variants:precise=80,slim=70".
		for one := range strings.SplitSeq(list, ",") {
			m := Model{}
			name, accuracy, _ := strings.Cut(one, "=")
			m.Name, m.File = name, name
			if m.Accuracy, err = strconv.ParseFloat(accuracy, 64); err != nil {
				return "", nil, err
			}
			if only := f.Inference.Stated.Value(servingKey); only == "" || only == name {
				models = append(models, m)
			}
		}
		return "bundles/variants", models, nil
	}
	return "bundles/" + image, []Model{{Name: cluster.Whole, File: image + model, Images: f.Inference.Image}}, nil
}
