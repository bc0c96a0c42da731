package upstream_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// said is what a server answers at a path; status 0 is 200.
type said struct {
	status int
	header map[string]string
	body   string
}

// server returns the given answers and keeps the last request's body and headers.
func server(t *testing.T, answers map[string]said) (url string, body *string, header *http.Header) {
	t.Helper()
	body, header = new(string), new(http.Header)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		*body, *header = string(text), r.Header
		a, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		for name, value := range a.header {
			w.Header().Set(name, value)
		}
		if a.status != 0 {
			w.WriteHeader(a.status)
		}
		_, _ = io.WriteString(w, a.body)
	}))
	t.Cleanup(s.Close)
	return s.URL, body, header
}

func rawFloats(values ...float32) []byte {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

var (
	x     = []tensor.Tensor{{Name: "x", Type: tensor.FP32, Shape: []int64{2, 1}, Data: rawFloats(1, 0.5)}}
	y     = []tensor.Info{{Name: "y", Type: tensor.FP32, Shape: []int64{-1, 1}}}
	model = `{"name":"m","inputs":[{"name":"x","datatype":"FP32","shape":[-1,1]}],"outputs":[{"name":"y","datatype":"FP32","shape":[-1,1]}]}`
)

func TestOpenInferenceInBytes(t *testing.T) {
	text := `{"outputs":[{"name":"z","datatype":"INT8","shape":[2],"parameters":{"binary_data_size":2}},{"name":"y","datatype":"FP32","shape":[2,1],"parameters":{"binary_data_size":8}}]}`
	answers := map[string]said{
		"GET /v2": {body: `{"extensions":["classification","binary_tensor_data"]}`}, "GET /v2/models/m": {body: model}, "GET /v2/models/m/ready": {},
		"POST /v2/models/m/infer": {header: map[string]string{"Inference-Header-Content-Length": strconv.Itoa(len(text))}, body: text + "\x01\x02" + string(rawFloats(3, 4))},
	}
	url, body, header := server(t, answers)
	s := upstream.NewOpenInference(url+"/", "m")
	defer s.Close()
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	inputs, outputs, err := s.Signature(t.Context())
	if err != nil || fmt.Sprint(inputs, outputs) != "[{x FP32 [-1 1]}] [{y FP32 [-1 1]}]" {
		t.Fatalf("%v, %v, %v", inputs, outputs, err)
	}
	got, err := s.Infer(t.Context(), 2, x, outputs)
	if err != nil || len(got) != 1 || string(got[0].Data) != string(rawFloats(3, 4)) {
		t.Fatalf("%v, %v", got, err)
	}
	want := `{"inputs":[{"name":"x","datatype":"FP32","shape":[2,1],"parameters":{"binary_data_size":8}}],"parameters":{"binary_data_output":true}}`
	if *body != want+string(x[0].Data) || header.Get("Inference-Header-Content-Length") != strconv.Itoa(len(want)) || (*header)["Idempotency-Key"] != nil {
		t.Errorf("the request is %q with %v", *body, *header)
	}
}

func TestOpenInferenceInJSON(t *testing.T) {
	url, body, _ := server(t, map[string]said{
		"GET /v2": {body: `{"extensions":[]}`}, "GET /v2/models/a%20b": {body: model}, "GET /v2/models/a b": {body: model},
		"POST /v2/models/a b/infer": {body: `{"outputs":[{"name":"y","datatype":"FP32","shape":[2,1],"data":[[3],[4]]}]}`},
	})
	s := upstream.NewOpenInference(url, "a b")
	defer s.Close()
	_, outputs, err := s.Signature(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Infer(t.Context(), 2, x, outputs)
	if err != nil || string(got[0].Data) != string(rawFloats(3, 4)) || *body != `{"inputs":[{"name":"x","datatype":"FP32","shape":[2,1],"data":[1,0.5]}]}` {
		t.Errorf("%v, %v for %s", got, err, *body)
	}
}

// Strings go both ways, and lengths that lie are refused.
func TestOpenInferenceOfStrings(t *testing.T) {
	words := []tensor.Info{{Name: "y", Type: tensor.Bytes, Shape: []int64{-1}}}
	in := []tensor.Tensor{{Name: "x", Type: tensor.Bytes, Shape: []int64{2}, Data: []byte("\x01\x00\x00\x00a\x00\x00\x00\x00")}}
	text := `{"outputs":[{"name":"y","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":9}}]}`
	for _, c := range []struct{ answer, length, want, wrong string }{
		{text + "\x00\x00\x00\x00\x01\x00\x00\x00\xff", strconv.Itoa(len(text)), "\x00\x00\x00\x00\x01\x00\x00\x00\xff", ""},
		{`{"outputs":[{"name":"y","datatype":"BYTES","shape":[2],"data":["","b"]}]}`, "", "\x00\x00\x00\x00\x01\x00\x00\x00b", ""},
		{text + "\x00\x00\x00\x00\x09\x00\x00\x00\xff", strconv.Itoa(len(text)), "", "a length of 9 bytes, but 1 follow"},
	} {
		header := map[string]string{}
		if c.length != "" {
			header["Inference-Header-Content-Length"] = c.length
		}
		url, _, _ := server(t, map[string]said{"POST /v2/models/m/infer": {header: header, body: c.answer}})
		s := upstream.NewOpenInference(url, "m")
		got, err := s.Infer(t.Context(), 2, in, words)
		if c.wrong == "" && (err != nil || string(got[0].Data) != c.want) || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%q: %v, %v", c.answer, got, err)
		}
		s.Close()
	}
}

// An invalid answer gives an error that names the fault. It does not count as a lost server.
func TestAnswersThatMakeNoSense(t *testing.T) {
	for answer, want := range map[string]string{
		`{"outputs":[]}`: `the model returned no output "y"`,
		`{"outputs":[{"name":"y","datatype":"FP64","shape":[2,1],"data":[1,2]}]}`:                         "as FP64; its signature says FP32",
		`{"outputs":[{"name":"y","datatype":"FP32","shape":[1,1],"data":[1]}]}`:                           "shape [1 1] for 2 rows",
		`{"outputs":[{"name":"y","datatype":"FP32","shape":[2,2],"data":[1]}]}`:                           "shape [2 2] and 4 bytes",
		`{"outputs":[{"name":"y","datatype":"FP32","shape":[-2],"data":[1]}]}`:                            "negative dimension",
		`{"outputs":[{"name":"y","datatype":"FP32","shape":[2,1],"data":["a"]}]}`:                         "is not a number",
		`{"outputs":[{"name":"y","datatype":"FP32","shape":[2,1]}]}`:                                      `output "y"`,
		`{"outputs":[{"name":"y","datatype":"FP32","shape":[2,1],"parameters":{"binary_data_size":8}}]}`:  "a binary_data_size of 8, but 0 bytes are left",
		`{"outputs":[{"name":"y","datatype":"FP32","shape":[2,1],"parameters":{"binary_data_size":-8}}]}`: "a binary_data_size of -8, but 0 bytes are left",
		`<html>`: "invalid character",
	} {
		url, _, _ := server(t, map[string]said{"POST /v2/models/m/infer": {body: answer}})
		s := upstream.NewOpenInference(url, "m")
		if _, err := s.Infer(t.Context(), 2, x, y); err == nil || errors.Is(err, upstream.ErrNoAnswer) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", answer, err, want)
		}
		s.Close()
	}
	url, _, _ := server(t, map[string]said{"POST /v2/models/m/infer": {header: map[string]string{"Inference-Header-Content-Length": "99"}, body: "{}"}})
	s := upstream.NewOpenInference(url, "m")
	defer s.Close()
	if _, err := s.Infer(t.Context(), 2, x, y); err == nil || !strings.Contains(err.Error(), `is "99", but the body has 2 bytes`) {
		t.Errorf("a wrong length: %v", err)
	}
}

func TestRefusalsAndSilence(t *testing.T) {
	url, _, _ := server(t, map[string]said{
		"POST /v2/models/m/infer": {status: 400, body: `{"error":"no such input"}`}, "GET /v2": {status: 503, body: "busy"},
	})
	s := upstream.NewOpenInference(url, "m")
	defer s.Close()
	_, err := s.Infer(t.Context(), 2, x, y)
	var refused *upstream.Error
	if !errors.As(err, &refused) || refused.Status != 400 || refused.Text != "the model server answered 400: no such input" {
		t.Errorf("refused: %v", err)
	}
	if _, _, err := s.Signature(t.Context()); err == nil || err.Error() != "the model server answered 503: busy" {
		t.Errorf("busy: %v", err)
	}
	if err := s.Ready(t.Context()); err == nil || err.Error() != "the model server answered 404: Not Found" {
		t.Errorf("no such path: %v", err)
	}
	url, _, _ = server(t, map[string]said{
		"POST /v1/models/m:predict": {status: 302, header: map[string]string{"Location": "http://127.0.0.1:1/"}},
		"GET /v1/models/m":          {status: 500, body: "Traceback (most recent call last):\n  File \"model.py\"\nValueError: no such thing\n"},
	})
	p := upstream.NewPredict(url, "m")
	defer p.Close()
	if err := p.Ready(t.Context()); err == nil || err.Error() != "the model server answered 500: ValueError: no such thing" {
		t.Errorf("a traceback: %v", err)
	}
	if _, err := p.Infer(t.Context(), 2, x, y); err == nil || err.Error() != "the model server answered 302: Found" {
		t.Errorf("sent elsewhere: %v", err)
	}
	gone := upstream.NewPredict("http://127.0.0.1:1", "m")
	defer gone.Close()
	if _, err := gone.Infer(t.Context(), 2, x, y); !errors.Is(err, upstream.ErrNoAnswer) {
		t.Errorf("nobody there: %v", err)
	}
}

func TestPredict(t *testing.T) {
	metadata := `{"metadata":{"signature_def":{"signature_def":{"__saved_model_init_op":{},"serving_default":{
		"inputs":{"x":{"dtype":"DT_FLOAT","tensor_shape":{"dim":[{"size":"-1","name":""},{"size":"1","name":""}],"unknown_rank":false}}},
		"outputs":{"y":{"dtype":"DT_FLOAT","tensor_shape":{"dim":[{"size":"-1"},{"size":"1"}],"unknown_rank":false}}}}}}}}`
	url, body, _ := server(t, map[string]said{
		"GET /v1/models/m":          {body: `{"model_version_status":[{"version":"1","state":"UNLOADING"},{"version":"2","state":"AVAILABLE"}]}`},
		"GET /v1/models/n":          {body: `{"model_version_status":[{"version":"1","state":"END","status":{"error_code":"INTERNAL","error_message":"no such op"}}]}`},
		"GET /v1/models/m/metadata": {body: metadata},
		"POST /v1/models/m:predict": {body: "{\n  \"outputs\": [[3.0], [4e0]]\n}"},
	})
	s := upstream.NewPredict(url, "m")
	defer s.Close()
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := upstream.NewPredict(url, "n")
	defer n.Close()
	if err := n.Ready(t.Context()); err == nil || err.Error() != "the model server has no version of the model available: no such op" {
		t.Errorf("one that could not be loaded: %v", err)
	}
	inputs, outputs, err := s.Signature(t.Context())
	if err != nil || fmt.Sprint(inputs, outputs) != "[{x FP32 [-1 1]}] [{y FP32 [-1 1]}]" {
		t.Fatalf("%v, %v, %v", inputs, outputs, err)
	}
	got, err := s.Infer(t.Context(), 2, x, outputs)
	if err != nil || string(got[0].Data) != string(rawFloats(3, 4)) || *body != `{"signature_name":"serving_default","inputs":{"x":[[1],[0.5]]}}` {
		t.Errorf("%v, %v for %s", got, err, *body)
	}
	two := append(outputs, tensor.Info{Name: "z", Type: tensor.FP32, Shape: []int64{-1}})
	if _, err := s.Infer(t.Context(), 2, x, two); err == nil || !strings.Contains(err.Error(), "it has one output, but the model has 2") {
		t.Errorf("one of two outputs: %v", err)
	}
}

func TestSignaturesThatCannotBeServed(t *testing.T) {
	info := func(kind, dims, unknown string) string {
		return `{"x":{"dtype":"` + kind + `","tensor_shape":{"dim":[` + dims + `],"unknown_rank":` + unknown + `}}}`
	}
	good := info("DT_FLOAT", `{"size":"-1"}`, "false")
	for want, c := range map[string]struct{ name, inputs, outputs string }{
		`input "x" has elements of the type DT_QINT8`:                                {"serving_default", info("DT_QINT8", `{"size":"-1"}`, "false"), good},
		`output "x" has elements of the type DT_HALF`:                                {"serving_default", good, info("DT_HALF", `{"size":"-1"}`, "false")},
		`input "x" has no shape in the model's signature; export the model with one`: {"serving_default", info("DT_FLOAT", "", "true"), good},
		`input "x" has the shape [3 2]; its first dimension must be open`:            {"serving_default", info("DT_FLOAT", `{"size":"3"},{"size":"2"}`, "false"), good},
		`output "x" has the shape []; its first dimension must be open`:              {"serving_default", good, info("DT_FLOAT", "", "false")},
		`the model has no signature "serving_default", but ["other"]`:                {"other", good, good},
		`dimension "many"`: {"serving_default", info("DT_FLOAT", `{"size":"many"}`, "false"), good},
	} {
		url, _, _ := server(t, map[string]said{"GET /v1/models/m/metadata": {
			body: `{"metadata":{"signature_def":{"signature_def":{"` + c.name + `":{"inputs":` + c.inputs + `,"outputs":` + c.outputs + `}}}}}`,
		}})
		s := upstream.NewPredict(url, "m")
		if _, _, err := s.Signature(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		s.Close()
	}
}
