package faults

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// The three functions: a model of the zoo, a handler in Python, and an ordinary one, which
// gives back what it is sent.
const (
	modelName    = "model"
	handlerName  = "handler"
	ordinaryName = "ordinary"
	// zooModel is the model's architecture.
	zooModel = "mnist"
)

// handlerProgram adds one.
const handlerProgram = `import numpy as np

inputs = {"x": ("float64", [1])}
outputs = {"y": ("float64", [1])}


def handle(batch):
    rows = np.concatenate([request["x"] for request in batch]) + 1
    ends = np.cumsum([len(request["x"]) for request in batch])
    return [{"y": y} for y in np.split(rows, ends[:-1])]
`

// function is what can be asked, and what is right.
type function struct {
	name       string
	deployment types.FunctionDeployment
	header     http.Header
	// body is what request n is sent with, want the hash of the right answer to it.
	body func(n int) []byte
	want func(n int) Hash
	// hash is that of an answer: equally right ones have the same.
	hash func(body []byte) Hash
}

// makeFunctions makes the bundles and describes the functions. Those that are models have
// the objective; the model's right answers are not known yet.
func makeFunctions(d *rig.Deployed, dir string, slo time.Duration, seed uint64) ([]*function, *digits, error) {
	s, err := rig.NewSubject(zooModel)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	if err := d.Bundle(s, modelName+":latest"); err != nil {
		return nil, nil, err
	}
	known := &digits{}
	model, err := known.function(s, seed)
	if err != nil {
		return nil, nil, err
	}
	if err := pythonBundle(d, dir, handlerName, handlerProgram); err != nil {
		return nil, nil, err
	}
	ordinary := types.FunctionDeployment{Service: ordinaryName, Image: "functions/alpine:latest", EnvProcess: "cat"}
	// Only this bounds an ordinary function's answers.
	ordinary.EnvVars = map[string]string{"exec_timeout": (slo + beyond/2).String()}
	echo := func(n int) []byte { return fmt.Appendf(nil, "request %d of seed %d", n, seed) }
	functions := []*function{model, adder(), {
		name: ordinaryName, deployment: ordinary, body: echo, hash: hashOf,
		want: func(n int) Hash { return hashOf(echo(n)) },
	}}
	for _, f := range functions[:2] {
		f.deployment = rig.Function(f.name, f.name+":latest", map[string]string{"com.openfaas.slo.latency": slo.String()})
	}
	return functions, known, nil
}

// pythonBundle gives the provider a handler as the image NAME:latest.
func pythonBundle(d *rig.Deployed, dir, name, program string) error {
	s := &rig.Subject{Name: name, Dir: filepath.Join(dir, "bundle-"+name)}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	defer s.Close()
	for file, text := range map[string]string{"bundle.yaml": "engine: python\nhandler: handler.py\n", "handler.py": program} {
		if err := os.WriteFile(filepath.Join(s.Dir, file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return d.Bundle(s, name+":latest")
}

// adder is the handler. Each request has a number of its own.
func adder() *function {
	number := func(x float64) []byte { return binary.LittleEndian.AppendUint64(nil, math.Float64bits(x)) }
	encode := func(n int) (body []byte, length int) {
		body, length, _ = load.EncodeBinary([]tensor.Tensor{{Name: "x", Type: tensor.FP64, Shape: []int64{1, 1}, Data: number(float64(n))}})
		return body, length
	}
	_, length := encode(0) // That of every request: the number is not in the header.
	return &function{
		name: handlerName, header: binaryHeader(length),
		body: func(n int) []byte { body, _ := encode(n); return body },
		want: func(n int) Hash { return hashOf(number(float64(n) + 1)) },
		hash: func(body []byte) Hash { return hashOf(tensors(body)) },
	}
}

func binaryHeader(length int) http.Header {
	return http.Header{"Content-Type": {"application/octet-stream"}, load.HeaderLength: {strconv.Itoa(length)}}
}

// tensors are the bytes behind the JSON of an answer in binary form, all of what is none.
func tensors(body []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(body))
	var head json.RawMessage
	if err := d.Decode(&head); err != nil {
		return body
	}
	return body[d.InputOffset():]
}

// digits are the model's inputs and its answers to them. The engine's answer to the same
// input differs in its last bits with the batch that it was in, so an answer stands for
// the known one that it is nearest to, if it is near enough.
type digits struct {
	bodies  [][]byte
	answers [][]float32
	// apart is the least distance of two known answers.
	apart float64
}

// samples is from how many inputs those are taken whose answers differ, different how many.
const (
	samples   = 256
	different = 32
)

// function describes the model's function.
func (k *digits) function(s *rig.Subject, seed uint64) (*function, error) {
	f := &function{
		name: modelName,
		body: func(n int) []byte { return k.bodies[n%len(k.bodies)] },
		want: func(n int) Hash { return Hash(n % len(k.bodies)) },
		hash: k.hash,
	}
	for i := range uint64(samples) {
		inputs, err := s.Samples(seed + i)
		if err != nil {
			return nil, err
		}
		body, length, err := load.EncodeBinary(inputs)
		if err != nil {
			return nil, err
		}
		k.bodies, f.header = append(k.bodies, body), binaryHeader(length)
	}
	return f, nil
}

// learn asks for the right answers and keeps the inputs whose answers can be told apart.
func (k *digits) learn(ctx context.Context, ask func(ctx context.Context, body []byte) ([]byte, error)) error {
	var answers [][]float32
	for _, body := range k.bodies {
		answer, err := ask(ctx, body)
		if err != nil {
			return fmt.Errorf("the model's answers: %w", err)
		}
		answers = append(answers, floats(tensors(answer)))
	}
	return k.choose(answers)
}

// choose keeps inputs whose answers are far from each other.
func (k *digits) choose(answers [][]float32) error {
	bodies := k.bodies
	k.bodies, k.answers, k.apart = nil, nil, math.Inf(1)
	// Each time the one that is farthest from all that were chosen.
	distance := slices.Repeat([]float64{math.Inf(1)}, len(answers))
	for range min(different, len(answers)) {
		best := 0
		for i := range answers {
			if distance[i] > distance[best] {
				best = i
			}
		}
		const enough = 1e-5
		if len(answers[best]) == 0 || distance[best] < enough {
			break
		}
		k.apart = min(k.apart, distance[best])
		k.bodies, k.answers = append(k.bodies, bodies[best]), append(k.answers, answers[best])
		for i := range answers {
			distance[i] = min(distance[i], apart(answers[i], answers[best]))
		}
	}
	if len(k.answers) < 2 {
		return fmt.Errorf("%s answers alike to all inputs, so that a wrong answer could not be told", zooModel)
	}
	return nil
}

// hash is the index of the known answer, or one that is none.
func (k *digits) hash(body []byte) Hash {
	got := floats(tensors(body))
	best := 0
	for i := range k.answers {
		if apart(got, k.answers[i]) < apart(got, k.answers[best]) {
			best = i
		}
	}
	if apart(got, k.answers[best]) < k.apart/4 {
		return Hash(best)
	}
	return cmp.Or(hashOf(body), math.MaxUint64) | 1<<63 // No index.
}

// apart is the largest difference of two answers' numbers.
func apart(a, b []float32) (d float64) {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	for i := range a {
		d = max(d, math.Abs(float64(a[i])-float64(b[i])))
	}
	return d
}

func floats(b []byte) []float32 {
	out := make([]float32, 0, len(b)/4)
	for ; len(b) >= 4; b = b[4:] {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return out
}
