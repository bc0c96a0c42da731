package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// payloadFiles writes the files that docs/payloads.md sends.
const payloadFiles = `import json, numpy
from PIL import Image
batch = numpy.random.default_rng(1).random((2, 3, 32, 32), numpy.float32)
numpy.save("batch.npy", batch)
batch.tofile("batch.raw")
json.dump({"instances": batch.tolist()}, open("request.json", "w"))
image = Image.fromarray((batch[0] * 255).astype(numpy.uint8).transpose(1, 2, 0)).resize((64, 48))
image.save("cat.jpg")
image.save("dog.png")
`

// payloads deploys the function photos, which answers images with themselves, and provides
// the page's files and Python clients.
func (d *desk) payloads(t *testing.T) {
	t.Helper()
	d.bundle(t, "photos:latest", edited(t, func(g *onnxpb.GraphProto) {
		g.Input[0].Name, g.Node[0].Input[0] = proto.String("image"), "image"
		for _, v := range []*onnxpb.ValueInfoProto{g.Input[0], g.Output[0]} {
			shape := v.Type.GetTensorType().Shape
			shape.Dim = shape.Dim[:1]
			for i, n := range []int{3, 32, 32} {
				shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{})
				fix(v, i+1, n)
			}
		}
	}))
	s := d.up(t, "--listen", "127.0.0.1:8080")
	d.end = func() { s.stop(t) }
	deploy(t, s.faas, function("photos", "photos:latest", "5s", "infer.image", "32x32"))
	python := clientsPython(t)
	d.onPath(filepath.Dir(python))
	c := exec.Command(python, "-c", payloadFiles)
	c.Dir = d.work
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// clientsPython returns the Python that has users' client libraries.
func clientsPython(t *testing.T) string {
	t.Helper()
	return pythonWith(t, "../command/testdata/clients.txt")
}

// pythonWith returns the Python that has the packages of a file of requirements.
func pythonWith(t *testing.T, requirements string) string {
	t.Helper()
	file, err := filepath.Abs(requirements)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("../scripts/python.sh", "python", file)
	c.Stderr = os.Stderr
	python, err := c.Output()
	if err != nil {
		t.Fatal(fmt.Errorf("the Python environment of %s: %w", requirements, err))
	}
	return strings.TrimSpace(string(python))
}
