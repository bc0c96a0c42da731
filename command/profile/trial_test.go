package profile

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
)

// doubler doubles one number per row, and fails above most rows.
type doubler struct{ most int }

func (doubler) Inputs() []tensor.Info {
	return []tensor.Info{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, 1}}}
}
func (doubler) Outputs() []tensor.Info {
	return []tensor.Info{{Name: "y", Type: tensor.FP32, Shape: []int64{-1, 1}}}
}
func (d doubler) Run(_ context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	if rows > d.most {
		return nil, errors.New("CUDA out of memory")
	}
	return inputs, nil
}
func (doubler) Close() error                 { return errors.New("somebody else closes it") }
func (doubler) Memory() int64                { return 1 << 30 }
func (doubler) ProcessorTime() time.Duration { return 0 }
func (doubler) Platform() string             { return "" }

// An instance measures its running engine when it is asked to, and answers other requests as ever.
func TestTrial(t *testing.T) {
	asked := func(e doubler, method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		Trial(e, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })).
			ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
		return w
	}
	w := asked(doubler{8}, http.MethodPost, TrialQuery(6, time.Second))
	var p profiler.Profile
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d, %v", w.Code, err)
	}
	var batches []int
	for _, m := range p.Measurements {
		batches = append(batches, m.Batch)
		if m.Threads != 1 || m.Runs < 20 || m.Median <= 0 {
			t.Errorf("%+v", m)
		}
	}
	if len(batches) != 4 || batches[3] != 6 || p.Memory < 1<<30 || p.Payloads == nil || p.MeasuredAt.IsZero() {
		t.Errorf("batches %v, %+v", batches, p)
	}
	if w := asked(doubler{8}, http.MethodGet, "/_/ready"); w.Body.String() != "ok" {
		t.Errorf("another request: %d %s", w.Code, w.Body)
	}
	for path, want := range map[string]struct {
		code int
		says string
	}{
		TrialQuery(6, time.Second):                {http.StatusInternalServerError, "CUDA out of memory"},
		TrialPath:                                 {http.StatusBadRequest, "max-batch"},
		TrialPath + "?max-batch=0&until=1s":       {http.StatusBadRequest, "max-batch"},
		TrialPath + "?max-batch=2&until=tomorrow": {http.StatusBadRequest, "until"},
		TrialPath + "?max-batch=2&until=-1s":      {http.StatusBadRequest, "until"},
	} {
		if w := asked(doubler{1}, http.MethodPost, path); w.Code != want.code || !strings.Contains(w.Body.String(), want.says) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
