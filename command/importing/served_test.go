package importing

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/logtest"
	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// A model of MLServer's: a matrix in a file of its directory, multiplied by a row.
const (
	scoreSettings = `{"name": "score", "implementation": "runtime.Score", "max_batch_size": 4, "max_batch_time": 0.01,
"parameters": {"uri": "./weights.txt", "version": "v2"},
"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}], "outputs": [{"name": "score", "datatype": "FP32", "shape": [-1, 3]}]}`
	scoreRuntime = `
import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse
from mlserver.utils import get_model_uri


class Score(MLModel):
    async def load(self):
        self.weights = np.loadtxt(await get_model_uri(self.settings)).astype(np.float32)
        return True

    async def predict(self, payload):
        x = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("score", x @ self.weights)])
`
)

// An imported model of MLServer's answers as MLServer answers with the model's own directory.
func TestServedAsByMLServer(t *testing.T) {
	dir := place(t, map[string]string{
		"model-settings.json": scoreSettings, "runtime.py": scoreRuntime, "weights.txt": "1 2 3\n0.5 0.25 -1\n",
		"settings.json": `{"parallel_workers": 0, "metrics_endpoint": null, "host": "127.0.0.1"}`,
	})
	im := read(t, Options{}, dir)
	write(t, im)
	if m := one(t, im); m.State != Ready {
		t.Fatal(describe(im))
	}
	into, err := upstream.Prepare(t.Context(), filepath.Join(im.options.Out, "score", "bundle.yaml"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := upstream.Read(into)
	if err != nil {
		t.Fatal(err)
	}
	log := &logtest.Log{}
	ours, err := upstream.Open(context.Background(),
		upstream.Options{Prepared: prepared, Threads: 1, MaxBatch: 8, Log: log, Logger: zerolog.New(log)})
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	t.Cleanup(func() {
		if err := ours.Close(); err != nil {
			t.Error(err)
		}
	})
	theirs := startMLServer(t, prepared.Python, dir, "score")
	for rows := range 4 {
		var data []byte
		for i := range 2 * (rows + 1) {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i)-1.75))
		}
		in := []tensor.Tensor{{Name: "x", Type: tensor.FP32, Shape: []int64{int64(rows + 1), 2}, Data: data}}
		want, err := theirs.Infer(t.Context(), rows+1, in, ours.Outputs())
		if err != nil {
			t.Fatal(err)
		}
		got, err := ours.Run(t.Context(), rows+1, in)
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		if !reflect.DeepEqual(got[0].Data, want[0].Data) || len(got[0].Data) != 12*(rows+1) {
			t.Errorf("%d rows: %v, and MLServer says %v", rows+1, got, want)
		}
	}
}

// startMLServer serves a directory as MLServer's users do, until the test ends.
func startMLServer(t *testing.T, python, dir, name string) *upstream.OpenInference {
	t.Helper()
	var ports [2]int
	var held []net.Listener
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = l.Addr().(*net.TCPAddr).Port
		held = append(held, l)
	}
	for _, l := range held {
		l.Close()
	}
	said, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	c := exec.Command(python, "-c",
		"import sys; sys.argv = ['mlserver', 'start', '.']; from mlserver.cli import main; main()")
	c.Dir, c.Stdout, c.Stderr = dir, said, said
	c.Env = append(os.Environ(), fmt.Sprintf("MLSERVER_HTTP_PORT=%d", ports[0]),
		fmt.Sprintf("MLSERVER_GRPC_PORT=%d", ports[1]))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	server := upstream.NewOpenInference(fmt.Sprintf("http://127.0.0.1:%d", ports[0]), name)
	t.Cleanup(func() {
		server.Close()
		_ = c.Process.Kill() // It may have ended.
		<-ended
	})
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := server.Ready(t.Context())
		if err == nil {
			break
		}
		exited := false
		select {
		case waited := <-ended:
			exited, err = true, waited
			ended <- waited
		default:
		}
		if exited || time.Now().After(deadline) {
			text, _ := os.ReadFile(said.Name())
			t.Fatalf("%v\n%s", err, text)
		}
	}
	if _, _, err := server.Signature(t.Context()); err != nil {
		t.Fatal(err)
	}
	return server
}
