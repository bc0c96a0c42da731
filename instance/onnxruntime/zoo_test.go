package onnxruntime

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"testing"

	"github.com/faas-infer/faas-infer/model"
)

// The models of AsyFunc Table 2 that no other test runs answer each image of a batch with
// finite numbers of its own.
func TestAsyFuncModelsRun(t *testing.T) {
	for _, name := range []string{"inception-v3", "efficientnet-b5", "ssd300", "yolov8x"} {
		if testing.Short() && name != "inception-v3" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			path := zooFile(t, name)
			defer os.Remove(path)
			m, err := model.ReadOutline(path)
			if err != nil {
				t.Fatal(err)
			}
			inputs, err := m.SampleInputs(2, 1)
			if err != nil {
				t.Fatal(err)
			}
			e := mustOpen(t, Options{Model: path, Threads: 2})
			outputs, err := e.Run(context.Background(), 2, inputs)
			if err != nil {
				t.Fatal(err)
			}
			for _, out := range outputs {
				if out.Shape[0] != 2 {
					t.Errorf("%s is %v", out.Name, out.Shape)
				}
				rows := [2][]byte{out.Data[:len(out.Data)/2], out.Data[len(out.Data)/2:]}
				if string(rows[0]) == string(rows[1]) {
					t.Errorf("%s is the same for both images", out.Name)
				}
				for b := rows[0]; len(b) > 0; b = b[4:] {
					if x := float64(math.Float32frombits(binary.LittleEndian.Uint32(b))); math.IsNaN(x) || math.IsInf(x, 0) {
						t.Fatalf("%s has %g", out.Name, x)
					}
				}
			}
		})
	}
}
