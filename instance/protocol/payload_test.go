package protocol

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/pixels"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// photos takes images of 2x1 pixels as bytes, red, green, blue.
func photos(t testing.TB) *Model {
	form, err := model.ParseImageForm("2x1")
	if err != nil {
		t.Fatal(err)
	}
	m := &Model{Name: "photos", MaxRows: 3,
		Inputs:  []tensor.Info{{Name: "image", Type: tensor.Uint8, Shape: []int64{-1, 1, 2, 3}}},
		Outputs: []tensor.Info{{Name: "score", Type: tensor.FP32, Shape: []int64{-1}}}}
	if m.Images, err = pixels.New(form, m.Inputs); err != nil {
		t.Fatal(err)
	}
	return m
}

// dots is an image of two pixels.
func dots(t testing.TB, left, right byte) []byte {
	img := image.NewRGBA(image.Rect(0, 0, 2, 1))
	img.Set(0, 0, color.RGBA{left, 0, 0, 255})
	img.Set(1, 0, color.RGBA{0, 0, right, 255})
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func with(r frame.Request, headers ...string) frame.Request {
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func array(t testing.TB, kind tensor.Type, data []byte, shape ...int64) string {
	out, err := AppendNPY(nil, tensor.Tensor{Type: kind, Shape: shape, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func base64Of(file []byte) string { return base64.StdEncoding.EncodeToString(file) }

// files encodes files as BYTES in the binary extension.
func files(of ...[]byte) []byte {
	var out []byte
	for _, f := range of {
		out = append(binary.LittleEndian.AppendUint32(out, uint32(len(f))), f...)
	}
	return out
}

func bytesInput(size, rows int) string {
	return fmt.Sprintf(`{"inputs":[{"name":"image","shape":[%d],"datatype":"BYTES","parameters":{"binary_data_size":%d}}]}`, rows, size)
}

// TestPayloadsThatAreTaken: whatever form a body has, the model gets the same.
func TestPayloadsThatAreTaken(t *testing.T) {
	m := photos(t)
	a, b := dots(t, 10, 20), dots(t, 30, 40)
	rowA, rowB := []byte{10, 0, 0, 0, 0, 20}, []byte{30, 0, 0, 0, 0, 40}
	both := append(bytes.Clone(rowA), rowB...)
	two := files(a, b)
	const infer = "/v2/models/photos/infer"
	for name, c := range map[string]struct {
		request frame.Request
		want    []byte
	}{
		"a file":              {post("/", string(a)), rowA},
		"a file by its type":  {with(post("/", string(a)), "Content-Type", "image/png"), rowA},
		"bare elements":       {with(post("/", string(both)), "Content-Type", "application/octet-stream"), both},
		"npy":                 {post("/", array(t, tensor.Uint8, both, 2, 1, 2, 3)), both},
		"npy by its type":     {with(post("/", array(t, tensor.Uint8, rowA, 1, 1, 2, 3)), "Content-Type", "application/x-npy; charset=binary"), rowA},
		"numbers":             {post("/", `{"instances":[[[[10,0,0],[0,0,20]]]]}`), rowA},
		"b64":                 {post("/", `{"instances":[{"b64":"`+base64Of(a)+`"},{"b64":"`+base64Of(b)+`"}]}`), both},
		"b64 by name":         {post("/v1/models/photos:predict", `{"signature_name":"serving_default","instances":[{"image":{"b64":"`+base64Of(a)+`"}}]}`), rowA},
		"b64 column":          {post("/", `{"inputs":[{"b64":"`+base64Of(a)+`"},{"b64":"`+base64Of(b)+`"}]}`), both},
		"b64 column by name":  {post("/v1/models/photos:predict", `{"inputs":{"image":[{"b64":"`+base64Of(a)+`"},{"b64":"`+base64Of(b)+`"}]}}`), both},
		"v2 bytes":            {binaryPost(infer, bytesInput(len(two), 2), two), both},
		"v2 bytes as columns": {binaryPost(infer, strings.Replace(bytesInput(len(two), 2), "[2]", "[2,1]", 1), two), both},
		"v2 bytes as JSON":    {post(infer, `{"inputs":[{"name":"image","shape":[1],"datatype":"BYTES","data":["`+base64Of(a)+`"]}]}`), rowA},
		"v2 without JSON":     {with(post(infer, string(both)), lengthHeader, "0"), both},
	} {
		for _, compress := range []string{"", Gzip, Deflate} {
			t.Run(name+" "+compress, func(t *testing.T) {
				r := c.request
				if compress != "" {
					r.Header = r.Header.Clone()
					r.Header.Set("Content-Encoding", compress)
					r.Body, _ = Compress(compress, append(bytes.Clone(r.Body), ""...))
				}
				call, refused := m.Decode(r)
				if call == nil {
					t.Fatalf("refused: %d %s", refused.Status, refused.Body)
				}
				if got := call.Inputs[0]; call.Rows*6 != len(c.want) || !bytes.Equal(got.Data, c.want) || got.Name != "image" {
					t.Errorf("%d rows %v, want %v", call.Rows, got, c.want)
				}
				scores := tensor.Tensor{Name: "score", Type: tensor.FP32, Shape: []int64{int64(call.Rows)}, Data: make([]byte, 4*call.Rows)}
				if response := call.Respond([]tensor.Tensor{scores}); response.Status != http.StatusOK {
					t.Errorf("answered with %d %s", response.Status, response.Body)
				}
			})
		}
	}
}

// TestPayloadsThatAreRefused checks that every refusal has the reason and the fix.
func TestPayloadsThatAreRefused(t *testing.T) {
	m, small := photos(t), photos(t)
	small.MaxBody = 10
	a := dots(t, 10, 20)
	list := func(n int) string { return strings.TrimSuffix(strings.Repeat(`{"b64":"`+base64Of(a)+`"},`, n), ",") }
	const infer = "/v2/models/photos/infer"
	bomb, _ := Compress(Gzip, make([]byte, 33<<20))
	for name, c := range map[string]struct {
		model   *Model
		request frame.Request
		status  int
		why     string
	}{
		"no images, a file":   {one, post("/", string(a)), 415, "annotation com.openfaas.infer.image"},
		"no images, by type":  {one, with(post("/", "GIF"), "Content-Type", "image/gif"), 415, "annotation com.openfaas.infer.image"},
		"no images, b64":      {one, post("/", `{"instances":[{"b64":"AA=="}]}`), 415, "annotation com.openfaas.infer.image"},
		"no images, v2":       {one, post("/v2/models/one/infer", `{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","data":["AA=="]}]}`), 400, "annotation com.openfaas.infer.image"},
		"another image":       {m, with(post("/", "<svg/>"), "Content-Type", "image/svg+xml"), 400, "not a JPEG, PNG, GIF, WebP, BMP or TIFF"},
		"a broken image":      {m, post("/", string(a[:40])), 400, "image"},
		"bare, half a row":    {m, with(post("/", "12345"), "Content-Type", "application/octet-stream"), 400, `input "image": the body has 5 bytes; a row of image UINT8 [-1,1,2,3] takes 6`},
		"bare, nothing":       {m, with(post("/", ""), "Content-Type", "application/octet-stream"), 400, "the body has 0 bytes"},
		"bare, open shape":    {openShape, with(post("/", "12345678"), "Content-Type", "application/octet-stream"), 400, "raw elements have no shape"},
		"bare, two inputs":    {two, with(post("/", "12345678"), "Content-Type", "application/octet-stream"), 400, "send them as JSON or by the Open Inference Protocol"},
		"bare, too many":      {m, with(post("/", strings.Repeat("123456", 4)), "Content-Type", "application/octet-stream"), 400, "has 4 rows; at most 3"},
		"npy, two inputs":     {two, post("/", array(t, tensor.Bool, []byte{1}, 1)), 400, "the body holds one input"},
		"npy, another type":   {m, post("/", array(t, tensor.FP64, make([]byte, 48), 1, 1, 2, 3)), 400, `input "image" is FP64; the model takes image UINT8`},
		"npy, another shape":  {m, post("/", array(t, tensor.Uint8, make([]byte, 6), 1, 2, 3)), 400, `input "image" has the shape [1,2,3]`},
		"npy, broken":         {m, post("/", "\x93NUMPY"), 400, "not a .npy file"},
		"npy, only its type":  {m, with(post("/", "{}"), "Content-Type", NPYContentType), 400, "not a .npy file"},
		"b64, too many":       {m, post("/", `{"instances":[`+list(4)+`]}`), 400, "instances: image 3: too many rows; at most 3"},
		"b64, too large":      {small, post("/", `{"instances":[`+list(2)+`]}`), 413, "2 images take 12 bytes as an input; at most 10"},
		"b64, broken":         {m, post("/", `{"instances":[{"b64":"%"}]}`), 400, "instances: image 0: b64 is not base64"},
		"b64, a number":       {m, post("/", `{"instances":[{"b64":1}]}`), 400, "b64 is not a string"},
		"b64, no image":       {m, post("/", `{"instances":[{"b64":"AAAA"}]}`), 400, "not a JPEG, PNG, GIF, WebP, BMP or TIFF"},
		"b64, more beside":    {m, post("/", `{"instances":[{"b64":"`+base64Of(a)+`","x":1}]}`), 400, "with no other key"},
		"b64, then numbers":   {m, post("/", `{"instances":[`+list(1)+`,[1]]}`), 400, "instances: image 0"},
		"b64, another name":   {m, post("/", `{"instances":[`+list(1)+`,{"photo":1}]}`), 400, `the model has no input "photo"`},
		"b64, both":           {m, post("/", `{"instances":[`+list(1)+`],"inputs":[`+list(1)+`]}`), 400, "more than one"},
		"v2, a count":         {m, binaryPost(infer, bytesInput(len(files(a)), 2), files(a)), 400, "it has 1 images, but its shape [2] needs 2"},
		"v2, a length":        {m, binaryPost(infer, bytesInput(8, 1), []byte("\xff\xff\xff\xffabcd")), 400, "image 0: an element has a length of 4294967295 bytes, but 4 follow"},
		"v2, cut":             {m, binaryPost(infer, bytesInput(2, 1), []byte("ab")), 400, "image 0: 2 bytes are left where a length of 4 bytes is expected"},
		"v2, a shape":         {m, binaryPost(infer, strings.Replace(bytesInput(4, 1), "[1]", "[1,1,2,3]", 1), files(nil)), 400, "images have the shape [N] or [N,1]"},
		"v2, too many":        {m, binaryPost(infer, bytesInput(4, 4), files(nil)), 400, "too many rows"},
		"v2, no data":         {m, post(infer, `{"inputs":[{"name":"image","shape":[1],"datatype":"BYTES"}]}`), 400, "it has no data"},
		"v2, a size":          {m, binaryPost(infer, bytesInput(99, 1), nil), 400, "binary_data_size of 99"},
		"v2, shared memory":   {m, post(infer, `{"inputs":[{"name":"image","shape":[1],"datatype":"BYTES","parameters":{"shared_memory_region":"x"}}]}`), 400, "shared memory"},
		"v2, no JSON, two":    {two, with(post("/v2/models/two/infer", "1"), lengthHeader, "0"), 400, "the body is one input"},
		"coding, unknown":     {m, with(post("/", "{}"), "Content-Encoding", "br"), 415, "only gzip and deflate are supported"},
		"coding, untrue":      {m, with(post("/", "{}"), "Content-Encoding", "gzip"), 400, "not gzip"},
		"coding, a bomb":      {m, with(post("/", string(bomb)), "Content-Encoding", "gzip"), 413, "the limit is 33554432 bytes"},
		"accept, two outputs": {two, with(post("/", `{"inputs":{"ids":[[1]],"mask":[true]}}`), "Accept", NPYContentType), 406, "?output=score"},
		"accept, no output":   {two, with(query(post("/", `{"inputs":{"ids":[[1]],"mask":[true]}}`), "output=z"), "Accept", NPYContentType), 400, `no output "z"`},
		"accept, a bad query": {two, with(query(post("/", `{"inputs":{"ids":[[1]],"mask":[true]}}`), "output=%"), "Accept", NPYContentType), 400, "query"},
	} {
		t.Run(name, func(t *testing.T) {
			call, response := c.model.Decode(c.request)
			if call != nil {
				t.Fatal("taken")
			}
			if response.Status != c.status || !strings.Contains(unquoted(response.Body), c.why) {
				t.Errorf("got %d %s, want %d with %s", response.Status, response.Body, c.status, c.why)
			}
		})
	}
}

var openShape = &Model{Name: "open", Inputs: []tensor.Info{{Name: "ids", Type: tensor.Int64, Shape: []int64{-1, -1}}}, Outputs: one.Outputs}

func query(r frame.Request, q string) frame.Request {
	r.Query = q
	return r
}

// TestBareAnswers: a client may ask for an output as a file.
func TestBareAnswers(t *testing.T) {
	request := post("/", `{"inputs":{"ids":[[1],[2]],"mask":[true,true]}}`)
	class := scores()[1]
	for name, c := range map[string]struct{ accept, query, kind, body string }{
		"npy":        {"application/x-npy", "output=class", NPYContentType, array(t, class.Type, class.Data, class.Shape...)},
		"elements":   {"application/octet-stream;q=0.9, */*", "output=class", rawContent, string(class.Data)},
		"anything":   {"*/*", "", "application/json", `{"outputs":{"score":[0.5,0.25],"class":[[7],[-1]]}}`},
		"JSON first": {"application/json, application/x-npy", "", "application/json", `{"outputs":{"score":[0.5,0.25],"class":[[7],[-1]]}}`},
		"a browser":  {"text/html, image/webp", "", "application/json", `{"outputs":{"score":[0.5,0.25],"class":[[7],[-1]]}}`},
	} {
		r := with(query(request, c.query), "Accept", c.accept)
		call, refused := two.Decode(r)
		if call == nil {
			t.Fatalf("%s: refused: %s", name, refused.Body)
		}
		response := call.Respond(scores())
		if response.Status != 200 || response.Header.Get("Content-Type") != c.kind || string(response.Body) != c.body {
			t.Errorf("%s: got %d %q %q, want %q %q", name, response.Status, response.Header.Get("Content-Type"), response.Body, c.kind, c.body)
		}
	}
}

// TestCompressedAnswers checks that an answer is compressed only if it is long, the client
// accepts it, and it becomes shorter.
func TestCompressedAnswers(t *testing.T) {
	m := &Model{Name: "m", Inputs: one.Inputs, Outputs: one.Outputs}
	long := []tensor.Tensor{{Name: "y", Type: tensor.FP32, Shape: []int64{1, 8192}, Data: make([]byte, 4*8192)}}
	short := []tensor.Tensor{{Name: "y", Type: tensor.FP32, Shape: []int64{1, 2}, Data: make([]byte, 8)}}
	asJSON := post("/", `{"instances":[[1,2]]}`)
	const infer = `{"parameters":{"binary_data_output":true},"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}`
	packed, _ := Compress(Gzip, []byte(infer+strings.Repeat(" ", 100)))
	for name, c := range map[string]struct {
		request frame.Request
		outputs []tensor.Tensor
		coding  string
	}{
		"not asked for":        {asJSON, long, ""},
		"gzip":                 {with(post("/", string(asJSON.Body)), "Accept-Encoding", "gzip, deflate"), long, "gzip"},
		"deflate":              {with(post("/", string(asJSON.Body)), "Accept-Encoding", "deflate"), long, "deflate"},
		"short":                {with(post("/", string(asJSON.Body)), "Accept-Encoding", "gzip"), short, ""},
		"unknown":              {with(post("/", string(asJSON.Body)), "Accept-Encoding", "br"), long, ""},
		"tensors":              {with(post("/", infer), "Accept-Encoding", "gzip"), long, ""},
		"tensors, as the body": {with(post("/", string(packed)), "Accept-Encoding", "gzip", "Content-Encoding", "gzip"), long, "gzip"},
	} {
		call, refused := m.Decode(c.request)
		if call == nil {
			t.Fatalf("%s: refused: %s", name, refused.Body)
		}
		response := call.Respond(c.outputs)
		if got := response.Header.Get("Content-Encoding"); got != c.coding {
			t.Errorf("%s: Content-Encoding is %q, want %q", name, got, c.coding)
		}
		body, err := decompress(c.coding, response.Body, 1<<20)
		if length := response.Header.Get(lengthHeader); length != "" && err == nil {
			n, _ := strconv.Atoi(length)
			body = body[:n]
		}
		if err != nil || body[0] != '{' || body[len(body)-1] != '}' {
			t.Errorf("%s: %q, %v", name, body, err)
		}
	}
}

// FuzzPayload checks that a model that takes images gets complete rows or nothing, whatever
// the request.
func FuzzPayload(f *testing.F) {
	m, a := photos(f), dots(f, 1, 2)
	f.Add("", "", "", a)
	f.Add("image/png", "", "", a)
	f.Add("application/octet-stream", "", "", []byte("123456"))
	f.Add("", "", "", []byte(array(f, tensor.Uint8, make([]byte, 6), 1, 1, 2, 3)))
	f.Add("", "", "", []byte(`{"instances":[{"b64":"`+base64Of(a)+`"}]}`))
	f.Add("", "", "", []byte(`{"inputs":{"image":[{"b64":"`+base64Of(a)+`"}]}}`))
	text := bytesInput(len(files(a)), 1)
	f.Add("", "", strconv.Itoa(len(text)), append([]byte(text), files(a)...))
	f.Add("", "", "0", []byte("123456"))
	packed, _ := Compress(Gzip, make([]byte, 600))
	f.Add("application/octet-stream", "gzip", "", packed)
	f.Fuzz(func(t *testing.T, kind, encoding, length string, body []byte) {
		r := frame.Request{Method: http.MethodPost, Path: "/", Header: http.Header{}, Body: body}
		for name, value := range map[string]string{"Content-Type": kind, "Content-Encoding": encoding, lengthHeader: length} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		call, response := m.Decode(r)
		switch {
		case call == nil && (response.Status < 400 || response.Status > 499 || len(response.Body) == 0):
			t.Fatalf("no reason: %d %q", response.Status, response.Body)
		case call != nil && (call.Rows < 1 || call.Rows > m.MaxRows || len(call.Inputs[0].Data) != 6*call.Rows):
			t.Fatalf("%d rows with %d bytes", call.Rows, len(call.Inputs[0].Data))
		}
	})
}
