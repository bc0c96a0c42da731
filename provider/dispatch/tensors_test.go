package dispatch

import (
	"net/http"
	"testing"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// Tensors say how many rows they have, and how long these are, wherever their elements stand. A body has no
// more elements than bytes, whatever its shape says.
func TestTensorsInBodies(t *testing.T) {
	for body, want := range map[string]look{
		`{"inputs":[{"name":"input_ids","shape":[2,3],"datatype":"INT64","data":[1,2,3,4,5,6]}]}`:                         {shaped, 3, 2},
		`{"id":"1", "inputs": [{"data": [[7]], "shape" : [ 1 , 1 ] }]}`:                                                   {shaped, 1, 1},
		`{"inputs":[{"name":"x","shape":[9000,70],"datatype":"INT64","parameters":{"binary_data_size":1}}]}` + "\x00\xff": {shaped, 70, 1},
		`{"inputs":[{"shape":[3],"data":["a","b","c"]}]}`:                                                                 {},
		`{"inputs":[{"shape":[1,3,4],"data":[]}]}`:                                                                        {},
		`{"inputs":[{"shape":[1,-3],"data":[]}]}`:                                                                         {},
		`{"inputs":[{"shape":[1,99999999999],"data":[]}]}`:                                                                {},
		`{"input":["shape","x"]}`:                                                                                         {},
		`{"input":"the \"shape\": [1,2]"}`:                                                                                {},
		`{"inputs":[{"shape"`:                                                                                             {},
	} {
		got, ok := lookAtTensors([]byte(body))
		if got != want || ok != (want != look{}) {
			t.Errorf("%s: %v %v, want %v", body, got, ok, want)
		}
	}
	long := `{"inputs":[{"shape":[9000,2]}]}` + string(make([]byte, 18000))
	if got, _ := lookAtTensors([]byte(long)); got != (look{shaped, 2, maxTexts}) {
		t.Errorf("9,000 rows: %v", got)
	}
	var s sizes
	s.wanted.Store(true)
	r := &frame.Request{Header: http.Header{"Inference-Header-Content-Length": {"3"}}, Body: []byte(`{"inputs":[{"shape":[2,3]}]}` + "\x01")}
	if got := s.lookAt(r); got.format != binary {
		t.Errorf("without padding it is %v", got)
	}
	s.longest.Store(100)
	if got := s.lookAt(r); got != (look{shaped, 3, 2}) {
		t.Errorf("with padding it is %v", got)
	}
}

// Rows of tensors in TensorFlow Serving's forms count once, however many inputs a row has.
func TestRowsOfNamedInputs(t *testing.T) {
	for body, want := range map[string]look{
		`{"instances":[{"a":[1,2,3,4,5,6],"b":[1,1,1,1,1,1]},{"a":[7,8,9,7,8,9],"b":[1,1,1,1,1,1]}]}`: {textual, 21 / 2, 2},
		`{"inputs":{"a":[[1,2,3],[4,5,6]],"b":[[1,1,1],[1,1,1]]}}`:                                    {textual, 5, 2},
		`{"instances":[[1,2,3],[4,5,6]]}`:                                                             {textual, 5 / 2, 2},
	} {
		if got := lookAtTexts([]byte(body)); got != want {
			t.Errorf("%s: %v, want %v", body, got, want)
		}
	}
}

func FuzzTensorsInBodies(f *testing.F) {
	f.Add([]byte(`{"inputs":[{"shape":[2,3]}]}`))
	f.Add([]byte(`"shape":[1,`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if got, ok := lookAtTensors(body); ok && (got.rows < 1 || got.rows > maxTexts || got.length < 1) {
			t.Errorf("%q: %+v", body, got)
		}
	})
}
