package protocol

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Moving an axis to the front and back gives the same tensor: for 2 rows of [2, n, 1] the
// elements a1 b1 a2 b2 become a1 a2 b1 b2.
func TestMove(t *testing.T) {
	own := tensor.Tensor{Name: "s", Type: tensor.Uint8, Shape: []int64{2, 2, 1}, Data: []byte("abcd")}
	in, err := move(own, 1, true)
	if err != nil || string(in.Data) != "acbd" || !slices.Equal(in.Shape, []int64{2, 2, 1}) {
		t.Errorf("%s %v, %v", in.Data, in.Shape, err)
	}
	wide := tensor.Tensor{Name: "s", Type: tensor.Uint8, Shape: []int64{3, 1, 2, 2}, Data: []byte("abcdefghijkl")}
	in, err = move(wide, 2, true)
	if err != nil || string(in.Data) != "abefijcdghkl" || !slices.Equal(in.Shape, []int64{2, 3, 1, 2}) {
		t.Errorf("%s %v, %v", in.Data, in.Shape, err)
	}
	out, err := move(in, 2, false)
	if err != nil || string(out.Data) != string(wide.Data) || !slices.Equal(out.Shape, wide.Shape) {
		t.Errorf("%s %v, %v", out.Data, out.Shape, err)
	}
	words := tensor.Tensor{Name: "s", Type: tensor.Bytes, Shape: []int64{2, 2}}
	for _, s := range []string{"a", "", "bcd", "e"} {
		words.Data = tensor.AppendString(words.Data, s)
	}
	in, err = move(words, 1, true)
	all, _ := in.Elements()
	if err != nil || string(slices.Concat(all...)) != "abcde" || string(all[1]) != "bcd" {
		t.Errorf("%q, %v", all, err)
	}
}

// A model without a batch takes its own shapes, and answers with its own.
func TestWholeRequests(t *testing.T) {
	m := &Model{
		Name: "m", MaxRows: 2,
		Inputs: Own([]tensor.Info{
			{Name: "x", Type: tensor.FP32, Shape: []int64{-1, -1, 2}, Edge: &tensor.Edge{Shape: []int64{-1, 2}, Axis: -1}},
			{Name: "k", Type: tensor.FP32, Shape: []int64{-1}, Edge: &tensor.Edge{Shape: []int64{}, Axis: -1}},
		}),
		Outputs: Own([]tensor.Info{{Name: "y", Type: tensor.FP32, Shape: []int64{-1, -1}, Edge: &tensor.Edge{Shape: []int64{-1}, Axis: -1}}}),
	}
	for path, body := range map[string]string{
		"/v2/models/m/infer":   `{"inputs": [{"name": "x", "shape": [3, 2], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6]}, {"name": "k", "shape": [], "datatype": "FP32", "data": [7]}]}`,
		"/v1/models/m:predict": `{"inputs": {"x": [[1, 2], [3, 4], [5, 6]], "k": 7}}`,
	} {
		call, failure := m.Decode(frame.Request{Method: http.MethodPost, Path: path, Header: http.Header{}, Body: []byte(body)})
		if call == nil {
			t.Fatalf("%s: %d %s", path, failure.Status, failure.Body)
		}
		if call.Rows != 1 || !slices.Equal(call.Inputs[0].Shape, []int64{1, 3, 2}) || !slices.Equal(call.Inputs[1].Shape, []int64{1}) {
			t.Errorf("%s: %d rows, %v and %v", path, call.Rows, call.Inputs[0].Shape, call.Inputs[1].Shape)
		}
		got := call.Respond([]tensor.Tensor{{Name: "y", Type: tensor.FP32, Shape: []int64{1, 0}}})
		var answer struct {
			Outputs json.RawMessage `json:"outputs"`
		}
		if err := json.Unmarshal(got.Body, &answer); err != nil || got.Status != http.StatusOK {
			t.Errorf("%s: %d %s, %v", path, got.Status, got.Body, err)
		}
	}
	_, metadata := m.Decode(frame.Request{Method: http.MethodGet, Path: "/v2/models/m", Header: http.Header{}})
	var described struct{ Inputs []map[string]any }
	if err := json.Unmarshal(metadata.Body, &described); err != nil || len(described.Inputs[0]) != 3 {
		t.Errorf("%s, %v", metadata.Body, err)
	}
}

// A tensor with its batch on another axis has as many rows as that axis is long.
func TestBatchOnAnotherAxis(t *testing.T) {
	m := &Model{
		Name:    "m",
		Inputs:  Own([]tensor.Info{{Name: "s", Type: tensor.Uint8, Shape: []int64{-1, 2, 1}, Edge: &tensor.Edge{Shape: []int64{2, -1, 1}, Axis: 1}}}),
		Outputs: Own([]tensor.Info{{Name: "z", Type: tensor.Uint8, Shape: []int64{-1, 2, 1}, Edge: &tensor.Edge{Shape: []int64{2, -1, 1}, Axis: 1}}}),
	}
	body := `{"inputs": [{"name": "s", "shape": [2, 3, 1], "datatype": "UINT8", "data": [1, 2, 3, 4, 5, 6]}]}`
	call, failure := m.Decode(frame.Request{Method: http.MethodPost, Path: "/v2/models/m/infer", Header: http.Header{}, Body: []byte(body)})
	if call == nil {
		t.Fatalf("%d %s", failure.Status, failure.Body)
	}
	if call.Rows != 3 || !slices.Equal(call.Inputs[0].Data, []byte{1, 4, 2, 5, 3, 6}) {
		t.Errorf("%d rows of %v", call.Rows, call.Inputs[0])
	}
	got := call.Respond([]tensor.Tensor{{Name: "z", Type: tensor.Uint8, Shape: []int64{3, 2, 1}, Data: call.Inputs[0].Data}})
	want := `{"model_name":"m","model_version":"1","outputs":[{"name":"z","datatype":"UINT8","shape":[2,3,1],"data":[1,2,3,4,5,6]}]}`
	if string(got.Body) != want {
		t.Errorf("%s, want %s", got.Body, want)
	}
}

// A model's name may be escaped in a path, as some clients do with hyphens.
func TestEscapedNames(t *testing.T) {
	m := &Model{Name: "res-net"}
	for path, want := range map[string]int{"/v2/models/res%2Dnet/ready": 200, "/v1/models/res%2dnet": 200, "/v2/models/res%2Fnet/ready": 404, "/v2/models/res%ZZ/ready": 404} {
		if _, answer := m.Decode(frame.Request{Method: http.MethodGet, Path: path, Header: http.Header{}}); answer.Status != want {
			t.Errorf("%s: %d %s", path, answer.Status, answer.Body)
		}
	}
}
