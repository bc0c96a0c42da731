package strangers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/e2e/graphs"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answering answers each request with its first number, wrong from the number of requests on
// that wrongFrom says, and with status while that is not 0.
type answering struct {
	requests  atomic.Int64
	wrongFrom int64
	status    int
	said      string
	// busy is how many requests get 503 first.
	busy int64
}

func (a *answering) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := a.requests.Add(1)
	switch {
	case n <= a.busy:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case a.status != 0:
		w.WriteHeader(a.status)
		fmt.Fprint(w, a.said)
		return
	}
	value := float32(3)
	if a.wrongFrom > 0 && n >= a.wrongFrom {
		value = 4
	}
	if r.Header.Get(load.HeaderLength) == "" {
		fmt.Fprintf(w, `{"outputs":[{"name":"y","datatype":"FP32","shape":[1],"data":[%g]}]}`, value)
		return
	}
	header := `{"outputs":[{"name":"y","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]}`
	w.Header().Set(load.HeaderLength, strconv.Itoa(len(header)))
	_, _ = w.Write(append([]byte(header), float32s(value)...))
}

// A model is right if all its answers are, and otherwise what the worst of them is.
func TestOutcomes(t *testing.T) {
	request := []tensor.Tensor{{Name: "x", Type: tensor.FP32, Shape: []int64{1}, Data: float32s(1)}}
	want := Answer{Outputs: []graphs.Want{{Name: "y", Type: tensor.FP32, Shape: []int64{1}, Data: float32s(3), Moved: float32s(3)}}}
	for name, c := range map[string]struct {
		a          *answering
		kind, said string
	}{
		"right":             {&answering{}, right, ""},
		"busy at first":     {&answering{busy: 2}, right, ""},
		"wrong at once":     {&answering{wrongFrom: 1}, wrong, "alone"},
		"wrong in JSON":     {&answering{wrongFrom: 2}, wrong, "in JSON"},
		"wrong in traffic":  {&answering{wrongFrom: 3}, wrong, "in traffic"},
		"a dead instance":   {&answering{status: 502, said: "the instance exited"}, crashed, "502"},
		"refused":           {&answering{status: 400, said: "bad x; send 3 numbers"}, refused, "send 3"},
		"refused, no way":   {&answering{status: 500, said: "no"}, refusedWithoutWay, "500 no"},
		"busy for ever":     {&answering{status: 503, said: "being measured"}, unanswered, "being measured"},
		"a broken envelope": {&answering{status: 200, said: "{}"}, wrong, "header length"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(c.a)
			defer s.Close()
			v := &server{Deployed: &rig.Deployed{URL: s.URL, State: "/state"}, client: s.Client(), patience: time.Minute, rounds: 1}
			if c.kind == unanswered {
				v.patience = 300 * time.Millisecond
			}
			o := v.ask(t.Context(), "f", [][]tensor.Tensor{request}, []Answer{want}, time.Now())
			if o.kind != c.kind || !strings.Contains(o.said, c.said) {
				t.Errorf("%q: %s", o.kind, o.said)
			}
			if (o.first > 0) != (c.kind == right || strings.HasPrefix(o.said, "in traffic")) {
				t.Errorf("the first answer came after %v", o.first)
			}
		})
	}
}

// A log that tells of a signal is a death.
func TestDeaths(t *testing.T) {
	for text, want := range map[string]bool{"SIGSEGV: segmentation violation": true, "panic: index out of range": true, "loaded sigmoid.onnx": false} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]string{"text": text})
		}))
		v := &server{Deployed: &rig.Deployed{URL: s.URL}, client: s.Client()}
		death, err := v.deaths(t.Context(), "f")
		if err != nil || (death != "") != want {
			t.Errorf("%q: %q, %v", text, death, err)
		}
		s.Close()
	}
}

func TestFunctionNames(t *testing.T) {
	if got := functionName("rapidocr/PP-OCRv6_det_small"); got != "rapidocr-pp-ocrv6-det-small" {
		t.Error(got)
	}
}
