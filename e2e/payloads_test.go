package e2e

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// TestPayloads sends requests to a function that takes images, with requests, NumPy and
// Triton's Python client. It sends JSON, tensors, .npy files,
// JPEG and PNG, compressed both ways. The model answers an image with itself.
func TestPayloads(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.bundle(t, "same:latest", edited(t, func(g *onnxpb.GraphProto) {
		in, out := g.Input[0], g.Output[0]
		for _, v := range []*onnxpb.ValueInfoProto{in, out} {
			shape := v.Type.GetTensorType().Shape
			for len(shape.Dim) < 4 {
				shape.Dim = append(shape.Dim, new(onnxpb.TensorShapeProto_Dimension))
			}
			for i, d := range []int{3, 32, 32} {
				fix(v, i+1, d)
			}
		}
		in.Name, out.Name = proto.String("image"), proto.String("same")
		g.Node[0].Input[0], g.Node[0].Output[0] = "image", "same"
	}))
	s := p.up(t)
	deploy(t, s.faas, scaled(function("photos", "same:latest", "2s", "infer.image", "32x32"), "1", "1"))
	python := clientsPython(t)
	out, err := p.network.run(exec.Command(python, filepath.Join("..", "command", "testdata", "clients.py"), s.through("photos"), "photos"))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)

	status, err := s.faas.Deploy(t.Context(), function("wrong", "same:latest", "2s", "infer.image", "32"))
	if err == nil || status != http.StatusBadRequest {
		t.Fatalf("a wrong annotation: %d, %v", status, err)
	}
	wantWords(t, err.Error(), "com.openfaas.infer.image", `"32"`, "width and height", "224x224")

	// What does not fit the model is told to whoever asks the function, or for it.
	const why = "com.openfaas.infer.image does not fit the model"
	deploy(t, s.faas, scaled(function("large", "same:latest", "2s", "infer.image", "64x64"), "1", "1"))
	s.await(t, patience, "why no instance starts", func() bool {
		a := do(t, s.http, http.MethodPost, s.through("large"), []byte("{}"))
		return a.status == http.StatusServiceUnavailable && strings.Contains(a.body, why)
	})
	s.faasCLI(t, s.password, "login", "--password-stdin")
	wantWords(t, s.faasCLI(t, "", "describe", "large"), "com.openfaas.infer.problem", why)
	s.stop(t)
}
