package load

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"testing"

	"github.com/faas-infer/faas-infer/model/tensor"
)

func TestBinaryBody(t *testing.T) {
	inputs := []tensor.Info{
		{Name: "image", Type: tensor.FP32, Shape: []int64{-1, 2, 3}},
		{Name: "ids", Type: tensor.Int64, Shape: []int64{-1, -1}},
		{Name: "half", Type: tensor.FP16, Shape: []int64{-1, 64}},
	}
	body, headerLength, err := BinaryBody(inputs, 4, 1)
	if err != nil {
		t.Fatal(err)
	}
	var header inferRequest
	if err := json.Unmarshal(body[:headerLength], &header); err != nil {
		t.Fatal(err)
	}
	if len(header.Inputs) != 3 || header.Parameters["binary_data_output"] != true {
		t.Fatalf("header %s", body[:headerLength])
	}
	data := body[headerLength:]
	next := func(i int, elements, size int) []byte {
		if n := header.Inputs[i].Parameters["binary_data_size"]; n != float64(elements*size) {
			t.Fatalf("input %d has %v bytes, want %d", i, n, elements*size)
		}
		d := data[:elements*size]
		data = data[elements*size:]
		return d
	}
	image := next(0, 4*2*3, 4)
	for i := 0; i < len(image); i += 4 {
		if f := math.Float32frombits(binary.LittleEndian.Uint32(image[i:])); !(f >= 0 && f < 1) {
			t.Errorf("float %v outside [0, 1)", f)
		}
	}
	ids := next(1, 4*1, 8)
	for i := 0; i < len(ids); i += 8 {
		if n := binary.LittleEndian.Uint64(ids[i:]); n > 1 {
			t.Errorf("integer %d is neither 0 nor 1", n)
		}
	}
	half := next(2, 4*64, 2)
	for i := 0; i < len(half); i += 2 {
		if h := binary.LittleEndian.Uint16(half[i:]); h < 0x3800 || h >= 0x3c00 {
			t.Errorf("half float %#x outside [0.5, 1)", h)
		}
	}
	if len(data) != 0 {
		t.Errorf("%d bytes are left", len(data))
	}
	again, _, _ := BinaryBody(inputs, 4, 1)
	other, _, _ := BinaryBody(inputs, 4, 2)
	if !bytes.Equal(body, again) || bytes.Equal(body, other) {
		t.Error("bodies do not follow the seed")
	}
}

func TestBinaryBodyRefuses(t *testing.T) {
	for name, in := range map[string]tensor.Info{
		"strings":  {Name: "s", Type: "BYTES", Shape: []int64{-1}},
		"too much": {Name: "x", Type: tensor.FP32, Shape: []int64{-1, 1 << 30}},
	} {
		if _, _, err := BinaryBody([]tensor.Info{in}, 1, 0); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestMetadata(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/function/mnist.dev/v2/models/mnist":
			w.Write([]byte(`{"name":"mnist","platform":"onnxruntime_onnx","inputs":[{"name":"x","datatype":"FP32","shape":[-1,784]}],"outputs":[]}`))
		case "/function/empty/v2/models/empty":
			w.Write([]byte(`{}`))
		default:
			http.NotFound(w, r)
		}
	})
	at := s.URL + "/function/mnist.dev"
	name, err := ModelName(at)
	if err != nil || name != "mnist" {
		t.Fatalf("model %q, %v", name, err)
	}
	inputs, err := Metadata(t.Context(), s.Client(), at, name)
	if err != nil || len(inputs) != 1 || inputs[0].Name != "x" || inputs[0].Type != tensor.FP32 || inputs[0].Shape[1] != 784 {
		t.Errorf("inputs %+v, %v", inputs, err)
	}
	for _, bad := range []string{"empty", "absent"} {
		if _, err := Metadata(t.Context(), s.Client(), s.URL+"/function/"+bad, bad); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
	if name, err := ModelName("http://127.0.0.1:8080/"); err == nil {
		t.Errorf("a URL without a function names the model %q", name)
	}
}
