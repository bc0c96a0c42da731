package profile

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
)

// TrialPath is where an instance with --trial measures its model, TrialTimeout the longest that a batch may
// take there.
const (
	TrialPath    = "/v1/trial"
	TrialTimeout = time.Minute
)

// The parameters of a request to [TrialPath].
const (
	maxBatchParameter = "max-batch"
	untilParameter    = "until"
)

// TrialQuery asks for a measurement with batches of up to maxBatch, without those that are larger than one
// that takes longer than until.
func TrialQuery(maxBatch int, until time.Duration) string {
	return TrialPath + "?" + url.Values{maxBatchParameter: {strconv.Itoa(maxBatch)}, untilParameter: {until.String()}}.Encode()
}

// Trial measures a running engine at [TrialPath], and passes other requests to next. The answer is a profile
// without the names of model, engine and machine.
func Trial(e engine.Running, next http.Handler) http.Handler {
	turn := make(chan struct{}, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != TrialPath {
			next.ServeHTTP(w, r)
			return
		}
		maxBatch, err := strconv.Atoi(r.URL.Query().Get(maxBatchParameter))
		if err != nil || maxBatch < 1 {
			http.Error(w, fmt.Sprintf("%s is %q: it must be a number from 1", maxBatchParameter, r.URL.Query().Get(maxBatchParameter)), http.StatusBadRequest)
			return
		}
		until, err := time.ParseDuration(r.URL.Query().Get(untilParameter))
		if err != nil || until < 0 {
			http.Error(w, fmt.Sprintf("%s is %q: it must be a duration", untilParameter, r.URL.Query().Get(untilParameter)), http.StatusBadRequest)
			return
		}
		select {
		case turn <- struct{}{}: // An engine runs one batch at a time.
			defer func() { <-turn }()
		case <-r.Context().Done():
			return
		}
		p, err := measureRunning(r.Context(), e, maxBatch, until)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p) // The provider has gone if that fails.
	})
}

// measureRunning measures an engine that goes on after it.
func measureRunning(ctx context.Context, e engine.Running, maxBatch int, until time.Duration) (*profiler.Profile, error) {
	r := &pythonRunner{engine: e, sample: e.Inputs(), inputs: map[int][]tensor.Tensor{}}
	points, err := profiler.Measure(ctx, func(int) (profiler.Runner, error) { return lasting{r}, nil },
		profiler.Quick(maxBatch, 1, until, time.Now, r.processorTime), nil)
	if err != nil {
		return nil, err
	}
	return &profiler.Profile{
		Memory: residentPeak() + e.Memory(), Measurements: points, MeasuredAt: time.Now(),
		Payloads: measurePayloads(ctx, Signature{e.Inputs(), e.Outputs()}),
	}, nil
}

// lasting is a runner whose engine somebody else closes.
type lasting struct{ *pythonRunner }

// Close implements [profiler.Runner].
func (lasting) Close() error { return nil }
