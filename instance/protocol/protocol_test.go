package protocol

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// one has one input, two has two of different types and two outputs.
var (
	one = &Model{
		Name:    "one.openfaas-fn",
		Inputs:  []tensor.Info{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, 2}}},
		Outputs: []tensor.Info{{Name: "y", Type: tensor.FP32, Shape: []int64{-1, 2}}},
	}
	two = &Model{
		Name: "two",
		Inputs: []tensor.Info{
			{Name: "ids", Type: tensor.Int64, Shape: []int64{-1, -1}},
			{Name: "mask", Type: tensor.Bool, Shape: []int64{-1}},
		},
		Outputs: []tensor.Info{
			{Name: "score", Type: tensor.FP32, Shape: []int64{-1}},
			{Name: "class", Type: tensor.Int32, Shape: []int64{-1, 1}},
		},
	}
)

func post(path, body string) frame.Request {
	return frame.Request{Method: http.MethodPost, Path: path, Header: http.Header{}, Body: []byte(body)}
}

// binaryPost is a request with binary tensors behind its JSON part.
func binaryPost(path, text string, binary []byte) frame.Request {
	r := post(path, text+string(binary))
	r.Header.Set(lengthHeader, strconv.Itoa(len(text)))
	return r
}

// TestRequestsThatAreTaken covers every form in which a request may come.
func TestRequestsThatAreTaken(t *testing.T) {
	row := string(floats(1, 2))
	for name, c := range map[string]struct {
		model   *Model
		request frame.Request
		rows    int
		inputs  []string // the inputs' bytes
	}{
		"v2": {one, post("/v2/models/one/infer",
			`{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}`), 1, []string{row}},
		"v2 by the full name": {one, post("/v2/models/one.openfaas-fn/versions/1/infer",
			`{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}`), 1, []string{row}},
		"v2 data before its shape": {one, post("/v2/models/one/infer",
			`{"inputs":[{"data":[1,2],"datatype":"FP32","shape":[1,2],"name":"x"}]}`), 1, []string{row}},
		"v2 nested": {one, post("/v2/models/one/infer",
			`{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[[1,2],[1,2]]}]}`), 2, []string{row + row}},
		"v2 binary": {one, binaryPost("/v2/models/one/infer",
			`{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}]}`, []byte(row)), 1, []string{row}},
		"v2 in any order": {two, post("/v2/models/two/infer",
			`{"inputs":[{"name":"mask","shape":[1],"datatype":"BOOL","data":[true]},
			            {"name":"ids","shape":[1,3],"datatype":"INT64","data":[1,2,3]}]}`), 1,
			[]string{"\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00", "\x01"}},
		"as large as may be": {small, post("/v2/models/small/infer",
			`{"inputs":[{"name":"ids","shape":[2,4],"datatype":"INT64","data":[0,0,0,0,0,0,0,0]},{"name":"mask","shape":[2],"datatype":"BOOL","data":[true,true]}]}`), 2,
			[]string{strings.Repeat("\x00", 64), "\x01\x01"}},
		"rows": {one, post("/v1/models/one:predict", `{"signature_name":"serving_default","instances":[[1,2],[1,2]]}`), 2, []string{row + row}},
		"rows by name": {two, post("/v1/models/two/versions/1:predict",
			`{"instances":[{"ids":[1],"mask":true},{"mask":false,"ids":[2]}]}`), 2,
			[]string{"\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00", "\x01\x00"}},
		"columns": {one, post("/v1/models/one:predict", `{"inputs":[[1,2]]}`), 1, []string{row}},
		"columns by name": {two, post("/v1/models/two:predict", `{"inputs":{"mask":[true],"ids":[[1]]}}`), 1,
			[]string{"\x01\x00\x00\x00\x00\x00\x00\x00", "\x01"}},
		"invoke, v2":        {one, post("/", `{"id":"7","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}`), 1, []string{row}},
		"invoke, rows":      {one, post("/", `{"instances":[[1,2]]}`), 1, []string{row}},
		"invoke, columns":   {one, post("", `{"inputs":[[1,2]]}`), 1, []string{row}},
		"invoke, by name":   {one, post("/", `{"inputs":{"x":[[1,2]]}}`), 1, []string{row}},
		"invoke, v2 binary": {one, binaryPost("/", `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}]}`, []byte(row)), 1, []string{row}},
	} {
		t.Run(name, func(t *testing.T) {
			call, response := c.model.Decode(c.request)
			if call == nil {
				t.Fatalf("refused: %d %s", response.Status, response.Body)
			}
			if call.Rows != c.rows {
				t.Errorf("%d rows, want %d", call.Rows, c.rows)
			}
			for i, want := range c.inputs {
				in, info := call.Inputs[i], c.model.Inputs[i]
				if in.Name != info.Name || in.Type != info.Type || string(in.Data) != want {
					t.Errorf("input %d is %s %s %x, want %x", i, in.Name, in.Type, in.Data, want)
				}
			}
		})
	}
}

// small takes at most four ids in a row.
var small = &Model{Name: "small", Inputs: two.Inputs, Outputs: two.Outputs, MaxShapes: tensor.Shapes{"ids": {1, 4}}}

// TestRequestsThatAreRefused checks that every error is a sentence that names
// what is wrong.
func TestRequestsThatAreRefused(t *testing.T) {
	const infer = "/v2/models/one/infer"
	for name, c := range map[string]struct {
		model   *Model
		request frame.Request
		status  int
		wrong   string
	}{
		"not JSON":         {one, post("/", `hello`), 400, "not valid JSON"},
		"empty":            {one, post("/", ``), 400, "not valid JSON: it ends"},
		"neither protocol": {one, post("/", `{"data":1}`), 400, `neither "inputs" nor "instances"`},
		"cut off":          {one, post(infer, `{"inputs":[{"name":"x"`), 400, "it ends where"},
		"something behind": {one, post(infer, `{"inputs":[]} x`), 400, "the end of the body"},
		"wrong name": {one, post(infer, `{"inputs":[{"name":"z","shape":[1,2],"datatype":"FP32","data":[1,2]}]}`), 400,
			`no input "z"; it takes x FP32 [-1,2]`},
		"wrong type": {one, post(infer, `{"inputs":[{"name":"x","shape":[1,2],"datatype":"INT64","data":[1,2]}]}`), 400,
			`input "x" is INT64; the model takes x FP32 [-1,2]`},
		"no type":  {one, post(infer, `{"inputs":[{"name":"x","shape":[1,2],"data":[1,2]}]}`), 400, `the datatype ""`},
		"a string": {one, post(infer, `{"inputs":[{"name":"x","shape":[1,2],"datatype":"BYTES","data":["a"]}]}`), 400, `the datatype "BYTES"`},
		"wrong shape": {one, post(infer, `{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}`), 400,
			`input "x" has the shape [1,3]; the model takes x FP32 [-1,2]`},
		"wrong rank": {one, post(infer, `{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}`), 400, "the shape [2]"},
		"too few":    {one, post(infer, `{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[1,2,3]}]}`), 400, "has 3 elements, but its shape [2,2] needs 4"},
		"nested otherwise": {one, post(infer, `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[[1],[2]]}]}`), 400,
			"data of the shape [2,1], but its shape says [1,2]"},
		"above the largest sizes": {small, post("/v2/models/small/infer", `{"inputs":[{"name":"ids","shape":[1,5],"datatype":"INT64","data":[1,2,3,4,5]}]}`), 400,
			"has the shape [1,5]; dimension 1 may be at most 4 (com.openfaas.infer.shapes.max)"},
		"negative":  {one, post(infer, `{"inputs":[{"name":"x","shape":[-1,2],"datatype":"FP32","data":[1,2]}]}`), 400, "negative"},
		"huge":      {one, post(infer, `{"inputs":[{"name":"x","shape":[4611686018427387904,2],"datatype":"FP32","data":[1,2]}]}`), 400, "too large"},
		"no rows":   {one, post(infer, `{"inputs":[{"name":"x","shape":[0,2],"datatype":"FP32","data":[]}]}`), 400, "is empty"},
		"no data":   {one, post(infer, `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32"}]}`), 400, "has no data"},
		"no inputs": {one, post(infer, `{"inputs":[]}`), 400, `input "x" is missing`},
		"twice": {one, post(infer, `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]},
			{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}`), 400, "given twice"},
		"rows differ": {two, post("/v2/models/two/infer", `{"inputs":[{"name":"ids","shape":[2,1],"datatype":"INT64","data":[1,2]},
			{"name":"mask","shape":[1],"datatype":"BOOL","data":[true]}]}`), 400, `"mask" has 1 rows, but input "ids" has 2`},
		"unknown output": {one, post(infer, `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}],"outputs":[{"name":"q"}]}`), 400,
			`no output "q"; it has y FP32 [-1,2]`},
		"output twice": {one, post(infer, `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}],"outputs":[{"name":"y"},{"name":"y"}]}`), 400,
			`output "y" is requested twice`},
		"classification": {one, post(infer, `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}],
			"outputs":[{"name":"y","parameters":{"classification":0}}]}`), 400, "classification is 0; it must be the number of classes"},
		"classification of all": {one, post(infer, `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}],
			"parameters":{"classification":2}}`), 400, "classification is a parameter of an output"},
		"shared memory": {one, post(infer, `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"shared_memory_region":"r"}}]}`), 400,
			"shared memory extension"},
		"binary too short": {one, binaryPost("/", `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}]}`, []byte("1234")), 400,
			"binary_data_size of 8, but the body has 4"},
		"binary too long": {one, binaryPost("/", `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}]}`, floats(1, 2, 3)), 400,
			"4 bytes follow"},
		"binary in part": {one, binaryPost("/", `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":7}}]}`, floats(1, 2)), 400,
			"not whole elements"},
		"both": {one, binaryPost("/", `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2],"parameters":{"binary_data_size":8}}]}`, floats(1, 2)), 400,
			"both data and binary_data_size"},
		"length beyond the body": {one, frame.Request{Method: "POST", Path: "/", Header: http.Header{lengthHeader: {"99"}}, Body: []byte("{}")}, 400, "not a length within"},
		"rows ragged":            {one, post("/", `{"instances":[[1,2],[1]]}`), 400, "instance 1: input \"x\""},
		"rows too deep":          {one, post("/", `{"instances":[[[1],[2]]]}`), 400, "the shape [1,2,1]; the model takes x FP32 [-1,2]"},
		"no instances":           {one, post("/", `{"instances":[]}`), 400, "is empty"},
		"both formats":           {one, post("/", `{"instances":[[1,2]],"inputs":[[1,2]]}`), 400, "more than one"},
		"unknown signature":      {one, post("/", `{"signature_name":"train","instances":[[1,2]]}`), 400, `no signature "train"`},
		"rows without names":     {two, post("/", `{"instances":[[1]]}`), 400, "the model has 2 inputs"},
		"a row lacks an input":   {two, post("/", `{"instances":[{"ids":[1]}]}`), 400, `input "mask" is missing`},
		"a later row lacks one":  {two, post("/", `{"instances":[{"ids":[1],"mask":true},{"ids":[1]}]}`), 400, "instance 1: input \"mask\" is missing"},
		"a row has one twice":    {two, post("/", `{"instances":[{"ids":[1],"ids":[1],"mask":true}]}`), 400, "given twice"},
		"other model, v2":        {one, post("/v2/models/other/infer", `{}`), 404, `no model "other" here`},
		"other model, v1":        {one, post("/v1/models/other:predict", `{}`), 404, `no model "other" here`},
		"other version":          {one, post("/v2/models/one/versions/2/infer", `{}`), 404, "only the version 1"},
		"other route":            {one, post("/predict", `{}`), 404, "/v2/models/one.openfaas-fn/infer"},
		"classify":               {one, post("/v1/models/one:classify", `{}`), 404, "no route"},
		"GET":                    {one, frame.Request{Method: "GET", Path: "/"}, 405, "takes POST, not GET"},
	} {
		t.Run(name, func(t *testing.T) {
			call, response := c.model.Decode(c.request)
			if call != nil {
				t.Fatal("taken")
			}
			var body struct{ Error string }
			if err := json.Unmarshal(response.Body, &body); err != nil {
				t.Fatalf("the body %s: %v", response.Body, err)
			}
			if response.Status != c.status || !strings.Contains(body.Error, c.wrong) {
				t.Errorf("got %d %s, want %d with %q", response.Status, body.Error, c.status, c.wrong)
			}
		})
	}
}

// A past of no length is an input; neither is one with no rows, nor one as wide as no request is.
func TestEmptyInput(t *testing.T) {
	past := &Model{Name: "past", Inputs: []tensor.Info{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, -1, -1}, Empty: true}}}
	for shape, wrong := range map[string]string{"[1,0,8]": "", "[0,1,8]": "is empty", "[1,0,1048577]": "is empty", "[1,4611686018427387904,0]": "too large"} {
		call, response := past.Decode(post("/v2/models/past/infer", `{"inputs":[{"name":"x","shape":`+shape+`,"datatype":"FP32","data":[]}]}`))
		if said := string(response.Body); (call != nil) != (wrong == "") || !strings.Contains(said, wrong) {
			t.Errorf("%s: %+v, %s", shape, call, said)
		}
	}
}
