package instance

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// counter is a model that takes images and answers with their first values.
type counter struct {
	input tensor.Info
	runs  []int
}

func (c *counter) Inputs() []tensor.Info { return []tensor.Info{c.input} }
func (c *counter) Outputs() []tensor.Info {
	return []tensor.Info{{Name: "y", Type: c.input.Type, Shape: []int64{-1}}}
}
func (c *counter) Close() error { return nil }

func (c *counter) Run(_ context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	c.runs = append(c.runs, rows)
	y := tensor.Tensor{Name: "y", Type: c.input.Type, Shape: []int64{int64(rows)}}
	each, size := len(inputs[0].Data)/rows, c.input.Type.Size()
	for row := range rows {
		y.Data = append(y.Data, inputs[0].Data[row*each:row*each+size]...)
	}
	return []tensor.Tensor{y}, nil
}

// TestSmallBodiesWithLargeInputs checks that a batch with large decoded inputs runs in parts,
// however short its bodies are.
func TestSmallBodiesWithLargeInputs(t *testing.T) {
	const size = 24 << 20
	c := &counter{input: tensor.Info{Name: "x", Type: tensor.Uint8, Shape: []int64{-1, size}}}
	s, err := NewServer(c, Options{Name: "m", MaxBatch: 8, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	body, _ := protocol.Compress(protocol.Gzip, make([]byte, size))
	r := frame.Request{Method: http.MethodPost, Path: "/", Body: body,
		Header: http.Header{"Content-Type": {"application/octet-stream"}, "Content-Encoding": {"gzip"}}}
	responses, _ := s.HandleBatch(t.Context(), []frame.Request{r, r, r, r, r})
	for i, response := range responses {
		if response.Status != http.StatusOK || string(response.Body) != `{"predictions":[0]}` {
			t.Errorf("request %d: %d %s", i, response.Status, response.Body)
		}
	}
	if !slices.Equal(c.runs, []int{3, 2}) {
		t.Errorf("runs of %v rows, want 3 and 2", c.runs)
	}
}

// TestImagesCountAsTheModelsTime checks that decoding counts as execution time, by which the
// provider predicts latency.
func TestImagesCountAsTheModelsTime(t *testing.T) {
	form, err := model.ParseImageForm("64x64 range=0..255")
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{input: tensor.Info{Name: "image", Type: tensor.FP32, Shape: []int64{-1, 3, 64, 64}}}
	s, err := NewServer(c, Options{Name: "m", MaxBatch: 8, Images: &form, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	white := image.NewGray(image.Rect(0, 0, 2000, 1000))
	for i := range white.Pix {
		white.Pix[i] = 255
	}
	var file bytes.Buffer
	if err := png.Encode(&file, white); err != nil {
		t.Fatal(err)
	}
	good := invoke(file.String())
	bad := invoke(file.String()[:100])
	responses, spent := s.HandleBatch(t.Context(), []frame.Request{good, bad, good})
	for i, want := range []string{`{"predictions":[255]}`, `{"error":"the image`, `{"predictions":[255]}`} {
		if !strings.HasPrefix(string(responses[i].Body), want) {
			t.Errorf("request %d: %d %s, want %s", i, responses[i].Status, responses[i].Body, want)
		}
	}
	if !slices.Equal(c.runs, []int{2}) {
		t.Errorf("runs of %v rows, want one of 2", c.runs)
	}
	// Two images of two megapixels take milliseconds, the engine takes none.
	if spent.Exec.Microseconds() < 500 {
		t.Errorf("the batch is said to have taken %v", spent.Exec)
	}
}

func TestImagesMustFitTheModel(t *testing.T) {
	form, err := model.ParseImageForm("32x32")
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{input: tensor.Info{Name: "image", Type: tensor.FP32, Shape: []int64{-1, 3, 64, 64}}}
	if _, err := NewServer(c, Options{Name: "m", MaxBatch: 8, Images: &form, Logger: zerolog.Nop()}); err == nil ||
		!strings.Contains(err.Error(), "com.openfaas.infer.image") || !strings.Contains(err.Error(), `input "image" has the shape [-1 3 64 64]`) {
		t.Errorf("got %v", err)
	}
}
