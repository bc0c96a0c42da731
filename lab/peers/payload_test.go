package peers

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/faas-infer/faas-infer/model/tensor"
)

func vector(name string, values ...float32) tensor.Tensor {
	t := tensor.Tensor{Name: name, Type: tensor.FP32, Shape: []int64{1, int64(len(values))}}
	for _, v := range values {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t
}

func TestBodiesAreWhatServersRead(t *testing.T) {
	two := []tensor.Tensor{vector("a", 1, 2.5), vector("b", 3)}
	for _, c := range []struct {
		way  Way
		want string
	}{
		{v2JSONWay, `{"inputs":[{"name":"a","shape":[1,2],"datatype":"FP32","data":[1,2.5]},{"name":"b","shape":[1,1],"datatype":"FP32","data":[3]}]}`},
		{namedWay, `{"a":[[1,2.5]],"b":[[3]]}`},
		{rowWay, `{"x":[[1,2.5,3]]}`},
	} {
		body, header, err := c.way.Encode("m", two)
		if err != nil || string(body) != c.want || !json.Valid(body) || header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s, %v, %v", c.way.Name, body, header, err)
		}
	}
	body, _, err := rawWay.Encode("m", two)
	if got, e := floats(body); err != nil || e != nil || fmt.Sprint(got) != "[1 2.5 3]" {
		t.Errorf("bytes: %v, %v, %v", got, err, e)
	}
	body, header, err := fileWay.Encode("m", two)
	if err != nil {
		t.Fatal(err)
	}
	_, boundary, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	part, err := multipart.NewReader(strings.NewReader(string(body)), boundary["boundary"]).NextPart()
	if err != nil || part.FormName() != "x" || part.FileName() == "" {
		t.Fatalf("%v, %v", part, err)
	}
	if data, err := io.ReadAll(part); err != nil || len(data) != 12 {
		t.Errorf("the file has %d bytes, %v", len(data), err)
	}
}

func TestAnswersAreRead(t *testing.T) {
	y := vector("y", 0.5, -2).Data
	v2 := `{"outputs":[{"name":"y","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}]}`
	message := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "model")
	message = protowire.AppendBytes(protowire.AppendTag(message, responseRaw, protowire.BytesType), y)
	for name, c := range map[string]struct {
		decode func([]byte) ([]float32, error)
		body   string
		wrong  []string
	}{
		"v2 binary": {decodeV2, v2 + string(y), []string{v2, v2 + "123", "", "{}", `{"outputs":[]}`}},
		"v2 JSON":   {decodeV2, `{"outputs":[{"data":[[0.5,-2]]}]}`, []string{`{"outputs":[{"data":[0.5,}]}`, `{"outputs":[{}]}`}},
		"numbers":   {decodeNumbers, `{"y":[[0.5],[-2.0]]}` + "\n", []string{"", "[]", `[0.5,`, `{"error":"no"}`, "[1e999]"}},
		"message":   {decodeMessage, string(message), []string{"", "\x32", "\x32\x7f", string(message) + string(message)}},
	} {
		if got, err := c.decode([]byte(c.body)); err != nil || fmt.Sprint(got) != "[0.5 -2]" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		for _, body := range c.wrong {
			if got, err := c.decode([]byte(body)); err == nil {
				t.Errorf("%s: %q is taken for %v", name, body, got)
			}
		}
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"outputs":[{"parameters":{"binary_data_size":4}}]}1234`))
	f.Add([]byte("\x32\x04abcd"))
	f.Fuzz(func(_ *testing.T, body []byte) {
		for _, decode := range []func([]byte) ([]float32, error){decodeV2, decodeNumbers, decodeMessage, floats} {
			_, _ = decode(body)
		}
	})
}

func TestEqual(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		got, want []float32
		equal     bool
	}{
		{[]float32{1, 1e-7}, []float32{1.0005, 0}, true},
		{[]float32{1}, []float32{1.01}, false},
		{[]float32{1}, []float32{1, 2}, false},
		{[]float32{nan}, []float32{1}, false},
		{[]float32{1}, []float32{nan}, false},
	} {
		if err := equal(c.got, c.want, absolute, relative); (err == nil) != c.equal {
			t.Errorf("%v and %v: %v", c.got, c.want, err)
		}
	}
}

// grpcServer answers every message with the same, or with a status, as gRPC does.
func grpcServer(t *testing.T, status, text string) *httptest.Server {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ProtoMajor != 2 || r.Header.Get("Content-Type") != "application/grpc" || r.Header.Get("Te") != "trailers" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.Header().Set("Content-Type", "application/grpc")
		if status == "0" {
			_, _ = w.Write(body)
		}
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", status)
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", text)
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func TestMessagesOverHTTP2(t *testing.T) {
	c := newCaller(grpcServer(t, "0", "").URL)
	defer c.close()
	status, answer, err := c.send(t.Context(), []byte("hello"))
	if status != http.StatusOK || string(answer) != "hello" || err != nil {
		t.Errorf("%d, %q, %v", status, answer, err)
	}
	refuses := newCaller(grpcServer(t, "8", "too much").URL)
	defer refuses.close()
	if _, _, err := refuses.send(t.Context(), nil); err == nil || err.Error() != "gRPC status 8: too much" {
		t.Errorf("%v", err)
	}
}
