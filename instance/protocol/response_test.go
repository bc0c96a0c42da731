package protocol

import (
	"encoding/binary"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// outputs of model two, two rows.
func scores() []tensor.Tensor {
	return []tensor.Tensor{
		{Name: "score", Type: tensor.FP32, Shape: []int64{2}, Data: floats(0.5, 0.25)},
		{Name: "class", Type: tensor.Int32, Shape: []int64{2, 1}, Data: []byte{7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}},
	}
}

const twoInputs = `"inputs":[{"name":"mask","shape":[2],"datatype":"BOOL","data":[true,true]},` +
	`{"name":"ids","shape":[2,1],"datatype":"INT64","data":[1,2]}]`

func TestResponses(t *testing.T) {
	for name, c := range map[string]struct {
		request, want string
	}{
		"v2": {`{"id":"a\"b",` + twoInputs + `}`, `{"model_name":"two","model_version":"1","id":"a\"b","outputs":[` +
			`{"name":"score","datatype":"FP32","shape":[2],"data":[0.5,0.25]},` +
			`{"name":"class","datatype":"INT32","shape":[2,1],"data":[7,-1]}]}`},
		"v2, chosen outputs": {`{` + twoInputs + `,"outputs":[{"name":"class"}]}`, `{"model_name":"two","model_version":"1","outputs":[` +
			`{"name":"class","datatype":"INT32","shape":[2,1],"data":[7,-1]}]}`},
		"rows":    {`{"instances":[{"ids":[1],"mask":true},{"ids":[1],"mask":true}]}`, `{"predictions":[{"score":0.5,"class":[7]},{"score":0.25,"class":[-1]}]}`},
		"columns": {`{"inputs":{"ids":[[1],[2]],"mask":[true,true]}}`, `{"outputs":{"score":[0.5,0.25],"class":[[7],[-1]]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			call, refused := two.Decode(post("/", c.request))
			if call == nil {
				t.Fatalf("refused: %s", refused.Body)
			}
			response := call.Respond(scores())
			if response.Status != http.StatusOK || string(response.Body) != c.want {
				t.Errorf("got %d %s\nwant %s", response.Status, response.Body, c.want)
			}
		})
	}
}

func TestOneOutputNeedsNoName(t *testing.T) {
	y := []tensor.Tensor{{Name: "y", Type: tensor.FP32, Shape: []int64{1, 2}, Data: floats(1, 2)}}
	for request, want := range map[string]string{
		`{"instances":[[1,2]]}`: `{"predictions":[[1,2]]}`,
		`{"inputs":[[1,2]]}`:    `{"outputs":[[1,2]]}`,
	} {
		call, _ := one.Decode(post("/", request))
		if got := string(call.Respond(y).Body); got != want {
			t.Errorf("%s: got %s, want %s", request, got, want)
		}
	}
}

func TestBinaryOutputs(t *testing.T) {
	const score = `{"name":"score","datatype":"FP32","shape":[2],"parameters":{"binary_data_size":8}}`
	const class = `{"name":"class","datatype":"INT32","shape":[2,1],"data":[7,-1]}`
	const classBinary = `{"name":"class","datatype":"INT32","shape":[2,1],"parameters":{"binary_data_size":8}}`
	out := scores()
	for name, c := range map[string]struct{ request, text, binary string }{
		"all": {`{"parameters":{"binary_data_output":true},` + twoInputs + `}`,
			`{"model_name":"two","model_version":"1","outputs":[` + score + `,` + classBinary + `]}`, string(out[0].Data) + string(out[1].Data)},
		"one": {`{` + twoInputs + `,"outputs":[{"name":"score","parameters":{"binary_data":true}},{"name":"class"}]}`,
			`{"model_name":"two","model_version":"1","outputs":[` + score + `,` + class + `]}`, string(out[0].Data)},
		"all but one": {`{"parameters":{"binary_data_output":true},` + twoInputs + `,"outputs":[{"name":"score"},{"name":"class","parameters":{"binary_data":false}}]}`,
			`{"model_name":"two","model_version":"1","outputs":[` + score + `,` + class + `]}`, string(out[0].Data)},
	} {
		t.Run(name, func(t *testing.T) {
			call, refused := two.Decode(post("/v2/models/two/infer", c.request))
			if call == nil {
				t.Fatalf("refused: %s", refused.Body)
			}
			response := call.Respond(scores())
			if string(response.Body) != c.text+c.binary {
				t.Errorf("got %q\nwant %q", response.Body, c.text+c.binary)
			}
			if got := response.Header.Get(lengthHeader); got != strconv.Itoa(len(c.text)) {
				t.Errorf("%s is %s, want %d", lengthHeader, got, len(c.text))
			}
		})
	}
}

// TestOutputsThatAreNotNumbers checks that NaN and infinities are words for clients of TensorFlow
// Serving, whose API has these. In the Open Inference Protocol they fail their own request, with an
// error that names the alternative.
func TestOutputsThatAreNotNumbers(t *testing.T) {
	y := []tensor.Tensor{{Name: "y", Type: tensor.FP32, Shape: []int64{1, 2}, Data: floats(1, float32(math.NaN()))}}
	call, _ := one.Decode(post("/", `{"instances":[[1,2]]}`))
	response := call.Respond(y)
	if want := `{"predictions":[[1,NaN]]}`; response.Status != 200 || string(response.Body) != want {
		t.Errorf("got %d %s", response.Status, response.Body)
	}
	call, _ = one.Decode(post("/v2/models/one/infer", `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}`))
	response = call.Respond(y)
	if want := `{"error":"output \"y\": it holds NaN: JSON cannot represent it; request binary data"}` + "\n"; response.Status != 400 || string(response.Body) != want {
		t.Errorf("got %d %s", response.Status, response.Body)
	}
}

func TestMetadata(t *testing.T) {
	for path, want := range map[string]string{
		"/v2":              `{"name":"faas-infer","version":"2","extensions":["binary_tensor_data","classification","model_configuration","statistics"]}` + "\n",
		"/v2/health/live":  `{"live":true}`,
		"/v2/health/ready": `{"ready":true}`,
		"/v2/models/one":   `{"name":"one.openfaas-fn","versions":["1"],"platform":"onnxruntime_onnx","inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]}],"outputs":[{"name":"y","datatype":"FP32","shape":[-1,2]}]}` + "\n",
		"/v2/models/one/config": `{"input":[{"data_type":"TYPE_FP32","dims":[-1,2],"format":"FORMAT_NONE","name":"x"}],"max_batch_size":0,` +
			`"name":"one.openfaas-fn","output":[{"data_type":"TYPE_FP32","dims":[-1,2],"name":"y"}],"platform":"onnxruntime_onnx","version_policy":{"latest":{"num_versions":1}}}` + "\n",
		"/v2/models/one/ready": `{"name":"one.openfaas-fn","ready":true}` + "\n",
		"/v1/models/one": `{"model_version_status":[{"version":"1","state":"AVAILABLE","status":{"error_code":"OK","error_message":""}}],` +
			`"id":"one.openfaas-fn","object":"model","created":0,"owned_by":"faas-infer"}` + "\n",
		"/v1/models/one/metadata": `{"metadata":{"signature_def":{"signature_def":{"serving_default":{` +
			`"inputs":{"x":{"dtype":"DT_FLOAT","name":"x","tensor_shape":{"dim":[{"name":"","size":"-1"},{"name":"","size":"2"}],"unknown_rank":false}}},` +
			`"method_name":"tensorflow/serving/predict",` +
			`"outputs":{"y":{"dtype":"DT_FLOAT","name":"y","tensor_shape":{"dim":[{"name":"","size":"-1"},{"name":"","size":"2"}],"unknown_rank":false}}}}}}},` +
			`"model_spec":{"name":"one.openfaas-fn","signature_name":"","version":"1"}}` + "\n",
	} {
		call, response := one.Decode(frame.Request{Method: http.MethodGet, Path: path})
		if call != nil || response.Status != http.StatusOK || string(response.Body) != want {
			t.Errorf("GET %s: got %d %s\nwant %s", path, response.Status, response.Body, want)
		}
	}
}

// Answers call the model what the request calls it. A provider tells an instance, which knows the
// function's name only, in a header.
func TestModelsHaveTheNameThatWasAsked(t *testing.T) {
	asked := http.Header{frame.ModelHeader: {"resnet50"}}
	for path, want := range map[string]string{
		"/v2/models/two": `{"name":"resnet50",`, "/v2/models/two/ready": `{"name":"resnet50",`, "/v1/models/two/metadata": `"model_spec":{"name":"resnet50",`,
		"/v2/models/two/versions/2": `model \"resnet50\" has only`, "/v1/models/two/versions/2": `model \"resnet50\" has only`,
	} {
		if _, response := two.Decode(frame.Request{Method: http.MethodGet, Path: path, Header: asked}); !strings.Contains(string(response.Body), want) {
			t.Errorf("GET %s: %s", path, response.Body)
		}
	}
	y := []tensor.Tensor{{Name: "y", Type: tensor.FP32, Shape: []int64{1, 2}, Data: floats(1, 2)}}
	for _, x := range []struct {
		model   *Model
		request frame.Request
		outputs []tensor.Tensor
	}{
		{two, post("/v2/models/two/infer", `{`+twoInputs+`}`), scores()},
		{two, post("/", `{`+twoInputs+`}`), scores()},
		{one, with(post("/v2/models/one/infer", string(floats(1, 2))), lengthHeader, "0"), y},
	} {
		call, refused := x.model.Decode(with(x.request, frame.ModelHeader, "resnet50"))
		if call == nil {
			t.Fatalf("%s: %s", x.request.Path, refused.Body)
		}
		if body := string(call.Respond(x.outputs).Body); !strings.HasPrefix(body, `{"model_name":"resnet50","model_version"`) {
			t.Errorf("%s: %s", x.request.Path, body)
		}
	}
}

// FuzzDecode checks that every request is refused with a reason or has exactly the model's
// inputs.
func FuzzDecode(f *testing.F) {
	f.Add("/", "", []byte(`{"instances":[{"ids":[1],"mask":true}]}`))
	f.Add("/", "", []byte(`{"inputs":{"ids":[[1]],"mask":[true]}}`))
	f.Add("/v2/models/two/infer", "", []byte(`{`+twoInputs+`}`))
	f.Add("/", "91", []byte(`{"inputs":[{"name":"mask","shape":[1],"datatype":"BOOL","parameters":{"binary_data_size":1}}]}1`))
	f.Add("/v1/models/two:predict", "", []byte(`{"instances":[[1]]}`))
	f.Fuzz(func(t *testing.T, path, length string, body []byte) {
		r := frame.Request{Method: http.MethodPost, Path: path, Header: http.Header{}, Body: body}
		if length != "" {
			r.Header.Set(lengthHeader, length)
		}
		call, response := two.Decode(r)
		if call == nil {
			if response.Status < 200 || len(response.Body) == 0 {
				t.Fatalf("no answer: %d %q", response.Status, response.Body)
			}
			return
		}
		for i, in := range call.Inputs {
			n, err := tensor.Elements(in.Shape)
			if err != nil || in.Shape[0] != int64(call.Rows) || call.Rows < 1 || n*int64(in.Type.Size()) != int64(len(in.Data)) || in.Type != two.Inputs[i].Type {
				t.Fatalf("input %d is %s %v with %d bytes for %d rows", i, in.Type, in.Shape, len(in.Data), call.Rows)
			}
		}
	})
}

func floats(of ...float32) []byte {
	var out []byte
	for _, f := range of {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(f))
	}
	return out
}
