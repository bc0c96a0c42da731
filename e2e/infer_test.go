package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// width is the number of values in a request to identity.
const width = 8

// payload returns request i's input. All requests have different inputs.
func payload(i int) []byte {
	var b []byte
	for j := range width {
		// Whole numbers below 2^24 are exact.
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32((i+j*131)%(1<<24))))
	}
	return b
}

// identityTarget returns a load of distinct requests on an identity function. Each answer
// must be its own request's.
func identityTarget(url string, rate float64) load.Target {
	_, length := identityBody(0)
	return load.Target{
		Name: "identity", URL: url, Rate: rate, Arrivals: load.Poisson,
		Header: http.Header{"Content-Type": {"application/octet-stream"}, load.HeaderLength: {strconv.Itoa(length)}},
		Body:   func(i int) []byte { b, _ := identityBody(i); return b },
		Verify: func(i int, body []byte) error {
			if !bytes.HasSuffix(body, payload(i)) {
				return fmt.Errorf("request %d got another's answer: %q", i, body)
			}
			return nil
		},
	}
}

// beside runs a load while the test continues, and returns a channel for its results. The
// load ends before the test.
func beside(t *testing.T, o load.Options) <-chan []load.TargetResult {
	done := make(chan []load.TargetResult, 1)
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	running.Go(func() {
		result, err := load.Run(t.Context(), o)
		if err != nil {
			t.Error(err)
			result = &load.Result{Targets: make([]load.TargetResult, len(o.Targets))}
		}
		done <- result.Targets
	})
	return done
}

// identityBody returns request i as binary tensors. Its JSON part has the same length for
// every i.
func identityBody(i int) (body []byte, length int) {
	body, length, err := load.EncodeBinary([]tensor.Tensor{{Name: "input", Type: tensor.FP32, Shape: []int64{1, width}, Data: payload(i)}})
	if err != nil {
		panic(err) // The encoding of a constant shape.
	}
	return body, length
}

// invokeIdentity sends request i and returns an error unless the answer is its
// own.
func invokeIdentity(c *http.Client, url string, i int) error {
	body, length := identityBody(i)
	a, err := try(c, http.MethodPost, url, body, load.HeaderLength, strconv.Itoa(length))
	switch {
	case err != nil:
		return err
	case a.status != http.StatusOK:
		return fmt.Errorf("request %d: %d %s", i, a.status, a.body)
	case !bytes.HasSuffix([]byte(a.body), payload(i)):
		return fmt.Errorf("request %d got another's answer: %q", i, a.body)
	}
	return nil
}

// protocol is one way to send a request to a model with one FP32 input and one FP32 output.
type protocol func(c *http.Client, url string, in tensor.Tensor) ([]float32, error)

var protocols = map[string]protocol{"v2 binary": askBinary, "v2 JSON": askJSON, "TensorFlow": askTensorFlow}

func askBinary(c *http.Client, url string, in tensor.Tensor) ([]float32, error) {
	body, length, err := load.EncodeBinary([]tensor.Tensor{in})
	if err != nil {
		return nil, err
	}
	a, err := try(c, http.MethodPost, url, body, load.HeaderLength, strconv.Itoa(length))
	if err != nil || a.status != http.StatusOK {
		return nil, errors.Join(err, fmt.Errorf("%d %s", a.status, a.body))
	}
	at, err := strconv.Atoi(a.header.Get(load.HeaderLength))
	if err != nil || at > len(a.body) {
		return nil, fmt.Errorf("the answer's header length is %q: %w", a.header.Get(load.HeaderLength), err)
	}
	return floats([]byte(a.body[at:])), nil
}

func askJSON(c *http.Client, url string, in tensor.Tensor) ([]float32, error) {
	var reply struct {
		Outputs []struct {
			Data []float32 `json:"data"`
		} `json:"outputs"`
	}
	input := map[string]any{"name": in.Name, "shape": in.Shape, "datatype": in.Type, "data": floats(in.Data)}
	if err := askWith(c, url, map[string]any{"inputs": []any{input}}, &reply); err != nil {
		return nil, err
	}
	if len(reply.Outputs) != 1 {
		return nil, fmt.Errorf("%d outputs", len(reply.Outputs))
	}
	return reply.Outputs[0].Data, nil
}

func askTensorFlow(c *http.Client, url string, in tensor.Tensor) ([]float32, error) {
	var reply struct {
		Predictions [][]float32 `json:"predictions"`
	}
	if err := askWith(c, url, map[string]any{"instances": []any{nested(floats(in.Data), in.Shape[1:])}}, &reply); err != nil {
		return nil, err
	}
	if len(reply.Predictions) != 1 {
		return nil, fmt.Errorf("%d predictions", len(reply.Predictions))
	}
	return reply.Predictions[0], nil
}

func askWith(c *http.Client, url string, request, reply any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	a, err := try(c, http.MethodPost, url, body, "Content-Type", "application/json")
	if err != nil || a.status != http.StatusOK {
		return errors.Join(err, fmt.Errorf("%d %s", a.status, a.body))
	}
	return json.Unmarshal([]byte(a.body), reply)
}

// nested returns a list of lists of numbers with the given shape.
func nested(data []float32, shape []int64) any {
	if len(shape) == 1 {
		return data
	}
	n := int64(len(data)) / shape[0]
	var out []any
	for i := range shape[0] {
		out = append(out, nested(data[i*n:(i+1)*n], shape[1:]))
	}
	return out
}

func floats(data []byte) []float32 {
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out
}
