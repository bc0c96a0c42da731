package python_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/python"
)

var _ instance.PartsEngine = (*python.Engine)(nil)

// counting yields as many parts as a request says, each its number and a word.
const counting = `
import sys, numpy as np
inputs = {"x": ("float32", [1])}
outputs = {"y": ("float32", [None]), "word": ("string", [None])}
def handle(batch):
    left, step, gone = [int(r["x"][0, 0]) for r in batch], 0, []
    try:
        while max(left) > step:
            parts = []
            for r, n in zip(batch, left):
                rows = len(r["x"])
                if n == 13 and step == 1: parts.append(ValueError("thirteen"))
                elif n > step: parts.append({"y": np.full((rows, 2), step, "float32"), "word": [["wörd %d" % step]] * rows})
                else: parts.append(None)
                if n == 17 and step == 1: raise RuntimeError("seventeen")
            gone += yield parts
            for at in gone: left[at] = 0
            step += 1
    finally:
        print("closed at step", step, "gone", sorted(set(gone)))
`

// partsServer serves a handler that yields.
func partsServer(t *testing.T, source string) (*instance.Server, interface{ String() string }) {
	t.Helper()
	e, l := serve(t, handler(t, source))
	if !e.InParts() {
		t.Fatal("the handler yields, and the engine does not say so")
	}
	s, err := instance.NewServer(e, instance.Options{Name: "test", MaxBatch: 8, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	return s, l
}

// parted is a request whose answer comes in parts, which it gathers. After limit parts it needs no more.
type parted struct {
	frame.Request
	got   []string
	limit int
}

func newParted(path, body string, limit int) *parted {
	p := &parted{limit: limit}
	p.Request = frame.Request{Method: http.MethodPost, Path: path, Body: []byte(body), Parts: func(part []byte) error {
		if len(p.got) == p.limit {
			return errors.New("enough")
		}
		p.got = append(p.got, string(part))
		return nil
	}}
	return p
}

// The parts of an answer, joined along the first axis of a row, are the answer of the same request as a whole.
func TestPartsAreTheWhole(t *testing.T) {
	s, _ := partsServer(t, counting)
	body := `{"inputs":[[3],[9]]}`
	p := newParted("/", body, 100)
	// A neighbour that takes its answer as a whole gets it.
	whole := frame.Request{Method: http.MethodPost, Path: "/", Body: []byte(body)}
	responses, _ := s.HandleBatch(t.Context(), []frame.Request{whole, p.Request, whole})
	type answer struct {
		Outputs struct {
			Y    [][]float64
			Word [][]string
		}
	}
	var want, joined answer
	if err := json.Unmarshal(responses[0].Body, &want); err != nil || len(want.Outputs.Y) != 2 || len(want.Outputs.Y[0]) != 6 {
		t.Fatalf("%d %s, %v", responses[0].Status, responses[0].Body, err)
	}
	if string(responses[2].Body) != string(responses[0].Body) {
		t.Errorf("%s and %s", responses[0].Body, responses[2].Body)
	}
	if len(p.got) != 3 || responses[1].Status != http.StatusOK || len(responses[1].Body) > 0 {
		t.Fatalf("%d parts and then %d %q", len(p.got), responses[1].Status, responses[1].Body)
	}
	for _, text := range p.got {
		var part answer
		if err := json.Unmarshal([]byte(text), &part); err != nil {
			t.Fatal(err, text)
		}
		if joined.Outputs.Y == nil {
			joined = part
			continue
		}
		for i := range part.Outputs.Y {
			joined.Outputs.Y[i] = append(joined.Outputs.Y[i], part.Outputs.Y[i]...)
			joined.Outputs.Word[i] = append(joined.Outputs.Word[i], part.Outputs.Word[i]...)
		}
	}
	for i := range want.Outputs.Y {
		if !slices.Equal(joined.Outputs.Y[i], want.Outputs.Y[i]) || !slices.Equal(joined.Outputs.Word[i], want.Outputs.Word[i]) {
			t.Errorf("row %d: %v is not %v", i, joined.Outputs, want.Outputs)
		}
	}
}

// A request that fails, or needs no more parts, harms no other one and not the next batch.
func TestPartsEndEarly(t *testing.T) {
	s, l := partsServer(t, counting)
	all, failing, leaving := newParted("/", `{"instances":[[4]]}`, 100), newParted("/", `{"instances":[[13]]}`, 100), newParted("/", `{"instances":[[1000000]]}`, 2)
	responses, _ := s.HandleBatch(t.Context(), []frame.Request{all.Request, failing.Request, leaving.Request})
	if len(all.got) != 4 || responses[0].Status != http.StatusOK {
		t.Errorf("%d parts, %d %s", len(all.got), responses[0].Status, responses[0].Body)
	}
	if len(failing.got) != 1 || responses[1].Status != http.StatusInternalServerError || !strings.Contains(string(responses[1].Body), "ValueError: thirteen") {
		t.Errorf("%d parts, %d %s", len(failing.got), responses[1].Status, responses[1].Body)
	}
	if len(leaving.got) != 2 {
		t.Errorf("%d parts", len(leaving.got))
	}
	for !strings.Contains(l.String(), "closed at step") {
		time.Sleep(time.Millisecond)
	}
	if want := "closed at step 4 gone [1, 2]"; !strings.Contains(l.String(), want) {
		t.Errorf("the handler does not say %q: %s", want, l)
	}
	// An exception in the middle is the error of all that have begun: they do not run again.
	broken := newParted("/", `{"instances":[[17]]}`, 100)
	next := newParted("/", `{"instances":[[20]]}`, 100)
	responses, _ = s.HandleBatch(t.Context(), []frame.Request{broken.Request, next.Request})
	for i, p := range []*parted{broken, next} {
		if len(p.got) != 1 || responses[i].Status != http.StatusInternalServerError || !strings.Contains(string(responses[i].Body), "seventeen") {
			t.Errorf("%d: %d parts, %d %s", i, len(p.got), responses[i].Status, responses[i].Body)
		}
	}
	last := newParted("/", `{"instances":[[2]]}`, 100)
	if responses, _ = s.HandleBatch(t.Context(), []frame.Request{last.Request}); len(last.got) != 2 || responses[0].Status != http.StatusOK {
		t.Errorf("%d parts, %d %s\n%s", len(last.got), responses[0].Status, responses[0].Body, l)
	}
}

// reusing yields its parts in one array, and one that is too large.
const reusing = `
import numpy as np
inputs = {"x": ("float32", [1])}
outputs = {"y": ("float32", [None]), "word": ("string", [None])}
y, word = np.zeros((1, 1), "float32"), np.array([[b""]], object)
def handle(batch):
    for step in range(3):
        y[:], word[:] = step, b"w%d" % step
        if batch[0]["x"][0, 0] == 13 and step == 2: word[:] = b"x" * (17 << 20)
        yield [{"y": y, "word": word}] * len(batch)
`

// A whole answer has what each part was when the handler yielded it.
func TestWholeAnswersCopyParts(t *testing.T) {
	s, _ := partsServer(t, reusing)
	whole := frame.Request{Method: http.MethodPost, Path: "/", Body: []byte(`{"inputs":[[1]]}`)}
	responses, _ := s.HandleBatch(t.Context(), []frame.Request{whole, whole})
	for _, r := range responses {
		var got struct {
			Outputs struct {
				Y    [][]float64
				Word [][]string
			}
		}
		err := json.Unmarshal(r.Body, &got)
		if o := got.Outputs; err != nil || !reflect.DeepEqual(o.Y, [][]float64{{0, 1, 2}}) || !reflect.DeepEqual(o.Word, [][]string{{"w0", "w1", "w2"}}) {
			t.Errorf("%d %s, %v", r.Status, r.Body, err)
		}
	}
}

// A part that is too large ends its answer only.
func TestLargePartsAreRefused(t *testing.T) {
	s, _ := partsServer(t, reusing)
	p := newParted("/", `{"inputs":[[13]]}`, 100)
	responses, _ := s.HandleBatch(t.Context(), []frame.Request{p.Request})
	if text := string(responses[0].Body); len(p.got) != 2 || responses[0].Status != http.StatusRequestEntityTooLarge || !strings.Contains(text, "at most 16777216 are allowed") {
		t.Errorf("%d parts, %d %s", len(p.got), responses[0].Status, text)
	}
	p = newParted("/", `{"inputs":[[1]]}`, 100)
	if responses, _ = s.HandleBatch(t.Context(), []frame.Request{p.Request}); len(p.got) != 3 || responses[0].Status != http.StatusOK {
		t.Errorf("%d parts, %d %s", len(p.got), responses[0].Status, responses[0].Body)
	}
}

// What asks for another form than JSON gets no parts.
func TestPartsAreJSON(t *testing.T) {
	s, _ := partsServer(t, counting)
	p := newParted("/v2/models/test/infer", `{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[3]}],"parameters":{"binary_data_output":true}}`, 100)
	responses, _ := s.HandleBatch(t.Context(), []frame.Request{p.Request})
	if len(p.got) != 0 || responses[0].Status != http.StatusNotAcceptable {
		t.Errorf("%d parts, %d %s", len(p.got), responses[0].Status, responses[0].Body)
	}
}

// A handler that yields must say along which axis its parts are joined.
func TestPartsNeedAnAxis(t *testing.T) {
	for _, outputs := range []string{``, `outputs = {"y": ("float32", [1])}`, `outputs = {"y": ("float32", [])}`} {
		_, _, err := tryServe(t, handler(t, "inputs = {\"x\": (\"float32\", [1])}\n"+outputs+"\ndef handle(batch): yield []\n"))
		if err == nil || !strings.Contains(err.Error(), "joined along the first axis of a row") {
			t.Errorf("%q: %v", outputs, err)
		}
	}
}

// A whole answer, which is one step, may take as long as the same answer in parts took.
func TestWholeAnswersMayTakeAsLongAsParts(t *testing.T) {
	e, l := serve(t, handler(t, `
import time
inputs = {"x": ("float32", [1])}
outputs = {"y": ("int64", [None])}
def handle(batch):
    for step in range(40):
        time.sleep(0.01)
        yield [[[step]]] * len(batch)
`), func(o *python.Options) { o.Timeout = time.Millisecond })
	s, err := instance.NewServer(e, instance.Options{Name: "test", MaxBatch: 8, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	p := newParted("/", `{"inputs":[[1]]}`, 100)
	whole := frame.Request{Method: http.MethodPost, Path: "/", Body: p.Body}
	for _, r := range []frame.Request{p.Request, whole} {
		if responses, _ := s.HandleBatch(t.Context(), []frame.Request{r}); responses[0].Status != http.StatusOK {
			t.Errorf("after %d parts: %d %s\n%s", len(p.got), responses[0].Status, responses[0].Body, l)
		}
	}
}
