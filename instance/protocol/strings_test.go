package protocol

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// words takes strings and gives strings and bytes, half gives float16.
var (
	words = &Model{
		Name:    "words",
		Inputs:  []tensor.Info{{Name: "s", Type: tensor.Bytes, Shape: []int64{-1, -1}}},
		Outputs: []tensor.Info{{Name: "text", Type: tensor.Bytes, Shape: []int64{-1, -1}}},
		MaxRows: 200_000,
	}
	half = &Model{
		Name:    "half",
		Inputs:  []tensor.Info{{Name: "x", Type: tensor.BF16, Shape: []int64{-1, 2}}},
		Outputs: []tensor.Info{{Name: "y", Type: tensor.BF16, Shape: []int64{-1, 2}}, {Name: "z", Type: tensor.FP16, Shape: []int64{-1}}},
	}
)

func stringsData(elements ...string) string {
	var data []byte
	for _, s := range elements {
		data = tensor.AppendString(data, s)
	}
	return string(data)
}

func TestStringsAreTaken(t *testing.T) {
	const infer = "/v2/models/words/infer"
	long, many := strings.Repeat("x", 10<<20), slices.Repeat([]string{"a"}, 100_000)
	for name, c := range map[string]struct {
		request frame.Request
		shape   []int64
		want    []string
	}{
		"v2": {post(infer, `{"inputs":[{"name":"s","shape":[2,1],"datatype":"BYTES","data":["a\"\né","" ]}]}`), []int64{2, 1}, []string{"a\"\né", ""}},
		"v2 binary": {binaryPost(infer, `{"inputs":[{"name":"s","shape":[1,3],"datatype":"BYTES","parameters":{"binary_data_size":18}}]}`,
			[]byte(stringsData("", "\xff\x00", "four"))), []int64{1, 3}, []string{"", "\xff\x00", "four"}},
		"v2 raw":          {with(post(infer, "as it is"), lengthHeader, "0"), []int64{1, 1}, []string{"as it is"}},
		"rows":            {post("/v1/models/words:predict", `{"instances":[["a","b"],["",{"b64":"/wA="}]]}`), []int64{2, 2}, []string{"a", "b", "", "\xff\x00"}},
		"rows by name":    {post("/v1/models/words:predict", `{"instances":[{"s":["a"]},{"s":[{"b64":""}]}]}`), []int64{2, 1}, []string{"a", ""}},
		"columns":         {post("/v1/models/words:predict", `{"inputs":[["a"],["b"]]}`), []int64{2, 1}, []string{"a", "b"}},
		"columns by name": {post("/v1/models/words:predict", `{"inputs":{"s":[["a",{"b64":"Yg=="}]]}}`), []int64{1, 2}, []string{"a", "b"}},
		"a long one":      {post("/", `{"instances":[["`+long+`"]]}`), []int64{1, 1}, []string{long}},
		"many":            {post("/", `{"inputs":[["`+strings.Join(many, `"],["`)+`"]]}`), []int64{100_000, 1}, many},
		"a surrogate":     {post("/", `{"instances":[["\ud83d\ude00"]]}`), []int64{1, 1}, []string{"😀"}},
	} {
		t.Run(name, func(t *testing.T) {
			call, refused := words.Decode(c.request)
			if call == nil {
				t.Fatalf("refused: %d %s", refused.Status, refused.Body)
			}
			in := call.Inputs[0]
			if in.Type != tensor.Bytes || !slices.Equal(in.Shape, c.shape) || string(in.Data) != stringsData(c.want...) {
				t.Errorf("%s %v with %d bytes, want %v", in.Type, in.Shape, len(in.Data), c.shape)
			}
		})
	}
	// One string a row may be given without a list around it.
	plain := &Model{Name: "plain", Inputs: []tensor.Info{{Name: "s", Type: tensor.Bytes, Shape: []int64{-1}}}, Outputs: words.Outputs}
	if call, refused := plain.Decode(post("/", `{"instances":[{"b64":"YQ=="},"b"]}`)); call == nil || string(call.Inputs[0].Data) != stringsData("a", "b") {
		t.Errorf("rows without lists: %s", refused.Body)
	}
}

func TestStringsAreRefused(t *testing.T) {
	const infer = "/v2/models/words/infer"
	input := func(shape, size string) string {
		return `{"inputs":[{"name":"s","shape":` + shape + `,"datatype":"BYTES","parameters":{"binary_data_size":` + size + `}}]}`
	}
	for name, c := range map[string]struct {
		request frame.Request
		why     string
	}{
		"not UTF-8":           {post("/", "{\"instances\":[[\"\xff\"]]}"), "not valid UTF-8; send such strings as binary data or in base64"},
		"a number":            {post("/", `{"instances":[[1]]}`), `"1" is not a string`},
		"null":                {post(infer, `{"inputs":[{"name":"s","shape":[1,1],"datatype":"BYTES","data":[null]}]}`), `"null" is not a string`},
		"an object in v2":     {post(infer, `{"inputs":[{"name":"s","shape":[1,1],"datatype":"BYTES","data":[{"b64":"YQ=="}]}]}`), "is not a string"},
		"base64":              {post("/", `{"instances":[[{"b64":"%"}]]}`), "b64 is not base64"},
		"base64, a number":    {post("/", `{"instances":[[{"b64":1}]]}`), "b64 is not a string"},
		"base64, another key": {post("/", `{"instances":[[{"b65":"YQ=="}]]}`), `not "b65"`},
		"base64, no key":      {post("/", `{"instances":[[{}]]}`), "{} is not a string"},
		"too few":             {post(infer, `{"inputs":[{"name":"s","shape":[2,1],"datatype":"BYTES","data":["a"]}]}`), "has 1 elements, but its shape needs 2"},
		"too many":            {post(infer, `{"inputs":[{"name":"s","shape":[1,1],"datatype":"BYTES","data":["a","b"]}]}`), "more than 1 elements"},
		"a length lies":       {binaryPost(infer, input("[1,1]", "6"), []byte("\xff\xff\xff\xffab")), "element 0: an element has a length of 4294967295 bytes, but 2 follow"},
		"a length is cut":     {binaryPost(infer, input("[2,1]", "7"), []byte(stringsData("a")+"ab")), "element 1: 2 bytes are left"},
		"bytes follow":        {binaryPost(infer, input("[1,1]", "9"), []byte(stringsData("a", ""))), "4 bytes follow the last of 1 elements"},
		"numbers":             {binaryPost(infer, strings.Replace(input("[1,1]", "4"), "BYTES", "FP32", 1), make([]byte, 4)), `input "s" is FP32; the model takes s BYTES`},
		"millions":            {binaryPost(infer, input("[1,2000000]", "0"), nil), "has 2000000 strings; at most 1048576"},
		"npy":                 {post("/", array(t, tensor.Int64, make([]byte, 8), 1, 1)), `input "s" is INT64; the model takes s BYTES`},
	} {
		t.Run(name, func(t *testing.T) {
			call, response := words.Decode(c.request)
			if call != nil {
				t.Fatal("taken")
			}
			if response.Status != 400 || !strings.Contains(unquoted(response.Body), c.why) {
				t.Errorf("got %d %s, want 400 with %s", response.Status, response.Body, c.why)
			}
		})
	}
	if _, response := words.Decode(with(post("/", `{"instances":[["a"]]}`), "Accept", NPYContentType)); response.Status != http.StatusNotAcceptable {
		t.Errorf("strings as a .npy file: %d %s", response.Status, response.Body)
	}
}

func TestStringsAreAnswered(t *testing.T) {
	good := []tensor.Tensor{{Name: "text", Type: tensor.Bytes, Shape: []int64{2, 2}, Data: []byte(stringsData("a\"\\\n", "é<>", "", "x"))}}
	odd := []tensor.Tensor{{Name: "text", Type: tensor.Bytes, Shape: []int64{1, 1}, Data: []byte(stringsData("\xff"))}}
	named := []tensor.Tensor{{Name: "image_bytes", Type: tensor.Bytes, Shape: []int64{1}, Data: []byte(stringsData("ab"))}}
	rows, columns := post("/", `{"instances":[["a"]]}`), post("/", `{"inputs":[["a"]]}`)
	infer := post("/v2/models/words/infer", `{"inputs":[{"name":"s","shape":[1,1],"datatype":"BYTES","data":["a"]}]}`)
	binary := post("/v2/models/words/infer", `{"parameters":{"binary_data_output":true},"inputs":[{"name":"s","shape":[1,1],"datatype":"BYTES","data":["a"]}]}`)
	for name, c := range map[string]struct {
		request frame.Request
		outputs []tensor.Tensor
		status  int
		want    string
	}{
		"rows":                {rows, good, 200, `{"predictions":[["a\"\\\u000a","é<>"],["","x"]]}`},
		"columns":             {columns, good, 200, `{"outputs":[["a\"\\\u000a","é<>"],["","x"]]}`},
		"rows, bytes":         {rows, odd, 200, `{"predictions":[[{"b64":"/w=="}]]}`},
		"columns, named":      {columns, named, 200, `{"outputs":[{"b64":"YWI="}]}`},
		"v2":                  {infer, good, 200, `{"model_name":"words","model_version":"1","outputs":[{"name":"text","datatype":"BYTES","shape":[2,2],"data":["a\"\\\u000a","é<>","","x"]}]}`},
		"v2, bytes":           {infer, odd, 400, `{"error":"output \"text\": it holds a string that is not UTF-8: JSON cannot represent it; request binary data"}` + "\n"},
		"v2 binary, any byte": {binary, odd, 200, `{"model_name":"words","model_version":"1","outputs":[{"name":"text","datatype":"BYTES","shape":[1,1],"parameters":{"binary_data_size":5}}]}` + stringsData("\xff")},
	} {
		call, refused := words.Decode(c.request)
		if call == nil {
			t.Fatalf("%s: %s", name, refused.Body)
		}
		if got := call.Respond(c.outputs); got.Status != c.status || string(got.Body) != c.want {
			t.Errorf("%s: got %d %q\nwant %d %q", name, got.Status, got.Body, c.status, c.want)
		}
	}
}

// TestHalfAsJSON checks that a request for an output that JSON cannot carry is refused before
// the model runs.
func TestHalfAsJSON(t *testing.T) {
	const infer = "/v2/models/half/infer"
	request := func(more string) frame.Request {
		return binaryPost(infer, `{"inputs":[{"name":"x","shape":[1,2],"datatype":"BF16","parameters":{"binary_data_size":4}}]`+more+`}`, make([]byte, 4))
	}
	for name, c := range map[string]struct {
		request frame.Request
		why     string
	}{
		"an input":       {post(infer, `{"inputs":[{"name":"x","shape":[1,2],"datatype":"BF16","data":[1,2]}],"parameters":{"binary_data_output":true}}`), "BF16 has no JSON form"},
		"every output":   {request(""), `output "y": it is BF16`},
		"a named output": {request(`,"outputs":[{"name":"z"}]`), `output "z": it is FP16: JSON cannot represent it; request binary data`},
		"one of two":     {request(`,"parameters":{"binary_data_output":true},"outputs":[{"name":"y"},{"name":"z","parameters":{"binary_data":false}}]`), `output "z"`},
		"bare":           {with(post("/", "1234"), "Content-Type", rawContent), `output "y"`},
	} {
		call, response := half.Decode(c.request)
		if call != nil || response.Status != 400 || !strings.Contains(unquoted(response.Body), c.why) {
			t.Errorf("%s: %d %s, want 400 with %s", name, response.Status, response.Body, c.why)
		}
	}
	for name, r := range map[string]frame.Request{
		"binary":  request(`,"parameters":{"binary_data_output":true}`),
		"one":     request(`,"outputs":[{"name":"y","parameters":{"binary_data":true}}]`),
		"classes": request(`,"outputs":[{"name":"y","parameters":{"classification":1}}]`),
		"accept":  query(with(with(post("/", "1234"), "Content-Type", rawContent), "Accept", rawContent), "output=y"),
	} {
		if call, refused := half.Decode(r); call == nil {
			t.Errorf("%s: %s", name, refused.Body)
		}
	}
}

func TestClassification(t *testing.T) {
	labelled := &Model{Name: "two", Inputs: two.Inputs, Labels: []string{"cat", "", "dog"}, Outputs: []tensor.Info{
		{Name: "score", Type: tensor.FP32, Shape: []int64{-1, 2, 2}}, {Name: "class", Type: tensor.Int32, Shape: []int64{-1, 1}}}}
	outputs := []tensor.Tensor{
		{Name: "score", Type: tensor.FP32, Shape: []int64{2, 2, 2}, Data: floats(0.25, 0.5, 1, float32(math.NaN()), 3, 3, 2, -1)},
		{Name: "class", Type: tensor.Int32, Shape: []int64{2, 1}, Data: []byte{7, 0, 0, 0, 255, 255, 255, 255}},
	}
	for name, c := range map[string]struct{ wanted, shape string }{
		"JSON":   {`[{"name":"score","parameters":{"classification":2}},{"name":"class","parameters":{"classification":3}}]`, ""},
		"binary": {`[{"name":"score","parameters":{"classification":2,"binary_data":true}},{"name":"class"}]`, ""},
	} {
		call, refused := labelled.Decode(post("/v2/models/two/infer", `{`+twoInputs+`,"outputs":`+c.wanted+`}`))
		if call == nil {
			t.Fatalf("%s: %s", name, refused.Body)
		}
		body := string(call.Respond(outputs).Body)
		want := `{"model_name":"two","model_version":"1","outputs":[{"name":"score","datatype":"BYTES","shape":[2,2],"data":["1.000000:2:dog","0.500000:1","3.000000:0:cat","3.000000:1"]},` +
			`{"name":"class","datatype":"BYTES","shape":[2,1],"data":["7:0:cat","-1:0:cat"]}]}`
		if name == "binary" {
			data := stringsData("1.000000:2:dog", "0.500000:1", "3.000000:0:cat", "3.000000:1")
			want = `{"model_name":"two","model_version":"1","outputs":[{"name":"score","datatype":"BYTES","shape":[2,2],"parameters":{"binary_data_size":64}},` +
				`{"name":"class","datatype":"INT32","shape":[2,1],"data":[7,-1]}]}` + data
		}
		if body != want {
			t.Errorf("%s: got %q\nwant %q", name, body, want)
		}
	}
	// An output without a batch dimension is one row, and one with it elsewhere has none.
	edged := &Model{Name: "two", Inputs: two.Inputs, Outputs: []tensor.Info{
		{Name: "score", Type: tensor.FP32, Shape: []int64{-1, 3}, Edge: &tensor.Edge{Shape: []int64{3}, Axis: -1}},
		{Name: "state", Type: tensor.FP32, Shape: []int64{-1, 2}, Edge: &tensor.Edge{Shape: []int64{2, -1}, Axis: 1}}}}
	call, refused := edged.Decode(post("/v2/models/two/infer", `{`+twoInputs+`,"outputs":[{"name":"score","parameters":{"classification":9}}]}`))
	if call == nil {
		t.Fatalf("%s", refused.Body)
	}
	whole := []tensor.Tensor{{Name: "score", Type: tensor.FP32, Shape: []int64{1, 3}, Data: floats(1, 3, 2)}, {Name: "state", Type: tensor.FP32, Shape: []int64{1, 2}, Data: floats(1, 2)}}
	if got, want := string(call.Respond(whole).Body), `"shape":[3],"data":["3.000000:1","2.000000:2","1.000000:0"]`; !strings.Contains(got, want) {
		t.Errorf("without a batch: %s", got)
	}
	call, refused = edged.Decode(post("/v2/models/two/infer", `{`+twoInputs+`,"outputs":[{"name":"state","parameters":{"classification":1}}]}`))
	if call != nil || refused.Status != 400 || !strings.Contains(unquoted(refused.Body), "with its batch at 1; classification needs the batch first") {
		t.Errorf("a batch elsewhere: %s", refused.Body)
	}
	call, refused = words.Decode(post("/v2/models/words/infer", `{"inputs":[{"name":"s","shape":[1,1],"datatype":"BYTES","data":["a"]}],"outputs":[{"name":"text","parameters":{"classification":1}}]}`))
	if call != nil || !strings.Contains(unquoted(refused.Body), `output "text": it is BYTES; classification needs numbers`) {
		t.Errorf("strings: %s", refused.Body)
	}
}

func TestSpecialNumbers(t *testing.T) {
	call, refused := one.Decode(post("/v1/models/one:predict", `{"instances":[[NaN,-Infinity],[1,Infinity],[ Inf , -Inf]]}`))
	if call == nil {
		t.Fatalf("refused: %s", refused.Body)
	}
	inf := float32(math.Inf(1))
	if want := floats(float32(math.NaN()), -inf, 1, inf, inf, -inf); string(call.Inputs[0].Data) != string(want) {
		t.Errorf("%x, want %x", call.Inputs[0].Data, want)
	}
	for _, r := range []frame.Request{
		post("/v2/models/one/infer", `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[NaN,1]}]}`),
		post("/", `{"instances":[["NaN",1]]}`), post("/", `{"instances":[[nan,1]]}`), post("/", `{"instances":[[-NaN,1]]}`),
		post("/v1/models/two:predict", `{"instances":[{"ids":[NaN],"mask":true}]}`),
	} {
		m := one
		if strings.Contains(r.Path, "two") {
			m = two
		}
		if call, response := m.Decode(r); call != nil || response.Status != 400 {
			t.Errorf("%s: %d", r.Body, response.Status)
		}
	}
}

func TestTritonEndpoints(t *testing.T) {
	m := &Model{Name: "m", Platform: "python", MaxRows: 8, Inputs: words.Inputs, Outputs: half.Outputs, Statistics: func() Statistics {
		return Statistics{
			Last: time.UnixMilli(5), Requests: Duration{3, 30}, Failed: Duration{1, 7}, Rows: 6, Waited: Duration{4, 2},
			Runs: map[int]Duration{4: {1, 20}, 2: {1, 9}},
		}
	}}
	get := func(path string) (out map[string]any) {
		_, response := m.Decode(frame.Request{Method: http.MethodGet, Path: path})
		if err := json.Unmarshal(response.Body, &out); err != nil || response.Status != 200 {
			t.Fatalf("%s: %d %s", path, response.Status, response.Body)
		}
		return out
	}
	_, config := m.Decode(frame.Request{Method: http.MethodGet, Path: "/v2/models/m/versions/1/config"})
	want := `{"input":[{"data_type":"TYPE_STRING","dims":[-1],"format":"FORMAT_NONE","name":"s"}],"max_batch_size":8,"name":"m",` +
		`"output":[{"data_type":"TYPE_BF16","dims":[2],"name":"y"},{"data_type":"TYPE_FP16","dims":[],"name":"z"}],"platform":"python","version_policy":{"latest":{"num_versions":1}}}` + "\n"
	if string(config.Body) != want {
		t.Errorf("got %s\nwant %s", config.Body, want)
	}
	if got := get("/v2/models/m")["platform"]; got != "python" {
		t.Errorf("the platform is %v", got)
	}
	stats, err := json.Marshal(get("/v2/models/m/stats"))
	want = `{"model_stats":[{"batch_stats":[` +
		`{"batch_size":2,"compute_infer":{"count":1,"ns":9},"compute_input":{"count":0,"ns":0},"compute_output":{"count":0,"ns":0}},` +
		`{"batch_size":4,"compute_infer":{"count":1,"ns":20},"compute_input":{"count":0,"ns":0},"compute_output":{"count":0,"ns":0}}],` +
		`"execution_count":2,"inference_count":6,"inference_stats":{"cache_hit":{"count":0,"ns":0},"cache_miss":{"count":0,"ns":0},` +
		`"compute_infer":{"count":2,"ns":29},"compute_input":{"count":0,"ns":0},"compute_output":{"count":0,"ns":0},` +
		`"fail":{"count":1,"ns":7},"queue":{"count":4,"ns":2},"success":{"count":3,"ns":30}},"last_inference":5,"name":"m","version":"1"}]}`
	if err != nil || string(stats) != want {
		t.Errorf("got %s, %v\nwant %s", stats, err, want)
	}
}

// FuzzStrings checks that every request for a model of strings is refused with a reason, or has
// exactly the elements of its shape, and that its answer is JSON.
func FuzzStrings(f *testing.F) {
	f.Add("/", "", []byte(`{"instances":[["a",{"b64":"/w=="}]]}`))
	f.Add("/v2/models/words/infer", "", []byte(`{"inputs":[{"name":"s","shape":[1,2],"datatype":"BYTES","data":["\ud800","é"]}]}`))
	f.Add("/", "89", []byte(`{"inputs":[{"name":"s","shape":[1,1],"datatype":"BYTES","parameters":{"binary_data_size":5}}]}`+stringsData("\xff")))
	f.Fuzz(func(t *testing.T, path, length string, body []byte) {
		r := frame.Request{Method: http.MethodPost, Path: path, Header: http.Header{}, Body: body}
		if length != "" {
			r.Header.Set(lengthHeader, length)
		}
		call, response := words.Decode(r)
		if call == nil {
			if response.Status < 200 || len(response.Body) == 0 {
				t.Fatalf("no answer: %d %q", response.Status, response.Body)
			}
			return
		}
		in := call.Inputs[0]
		n, err := tensor.Elements(in.Shape)
		if err == nil {
			err = tensor.CheckStrings(in.Data, n)
		}
		if err != nil {
			t.Fatalf("%v: %v", in.Shape, err)
		}
		answer := call.Respond([]tensor.Tensor{{Name: "text", Type: tensor.Bytes, Shape: in.Shape, Data: in.Data}})
		if answer.Header.Get(lengthHeader) == "" && !json.Valid(answer.Body) || answer.Status > 400 {
			t.Fatalf("answer %d %q", answer.Status, answer.Body)
		}
	})
}
