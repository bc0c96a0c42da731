package strangers

import (
	"bufio"
	"context"
	_ "embed" // the reference's program
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/faas-infer/faas-infer/e2e/graphs"
	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/model/tensor"
)

//go:embed reference.py
var program string

// Answer is ONNX Runtime's answer to one request, or why there is none.
type Answer struct {
	Outputs []graphs.Want `json:"outputs"`
	Error   string        `json:"error"`
}

// Reference is ONNX Runtime in a Python process. If a model ends the process, the next one
// gets another.
type Reference struct {
	python  string
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

// NewReference makes the environment with ONNX Runtime, if it is not there. The caller closes
// the reference.
func NewReference(ctx context.Context) (*Reference, error) {
	env, err := environment.Ensure(ctx, "quantise", "")
	if err != nil {
		return nil, fmt.Errorf("make the Python environment of ONNX Runtime: %w", err)
	}
	return &Reference{python: env.Python}, nil
}

func (r *Reference) start(ctx context.Context) (err error) {
	r.command = exec.CommandContext(ctx, r.python, "-c", program)
	if r.in, err = r.command.StdinPipe(); err != nil {
		return err
	}
	out, err := r.command.StdoutPipe()
	if err != nil {
		return err
	}
	r.out = bufio.NewReader(out)
	return r.command.Start()
}

// Close ends the process.
func (r *Reference) Close() error {
	if r.command == nil {
		return nil
	}
	c := r.command
	r.command = nil
	return errors.Join(r.in.Close(), c.Wait())
}

// refTensor is a tensor as the program reads it.
type refTensor struct {
	Name  string      `json:"name"`
	Type  tensor.Type `json:"type"`
	Shape []int64     `json:"shape"`
	Data  []byte      `json:"data"`
}

// Run runs each request of a model's file. refused says why ONNX Runtime does not run the
// model, "" if it does.
func (r *Reference) Run(ctx context.Context, file string, requests [][]tensor.Tensor) (answers []Answer, refused string, err error) {
	question := struct {
		Model    string        `json:"model"`
		Requests [][]refTensor `json:"requests"`
	}{Model: file}
	for _, request := range requests {
		var all []refTensor
		for _, t := range request {
			all = append(all, refTensor(t))
		}
		question.Requests = append(question.Requests, all)
	}
	text, err := json.Marshal(question)
	if err != nil {
		return nil, "", err
	}
	if r.command == nil {
		if err := r.start(ctx); err != nil {
			return nil, "", fmt.Errorf("start the reference: %w", err)
		}
	}
	_, err = r.in.Write(append(text, '\n'))
	var line []byte
	if err == nil {
		line, err = r.out.ReadBytes('\n')
	}
	if err != nil {
		died := r.Close()
		if ctx.Err() != nil {
			return nil, "", ctx.Err()
		}
		return nil, fmt.Sprintf("it ends ONNX Runtime's process: %v", died), nil
	}
	var found struct {
		Error   string   `json:"error"`
		Answers []Answer `json:"answers"`
	}
	if err := json.Unmarshal(line, &found); err != nil {
		return nil, "", fmt.Errorf("read the reference's answer: %w", err)
	}
	if found.Error != "" {
		return nil, found.Error, nil
	}
	if len(found.Answers) != len(requests) {
		return nil, "", fmt.Errorf("the reference answers %d of %d requests", len(found.Answers), len(requests))
	}
	for _, a := range found.Answers {
		if a.Error != "" && refused == "" {
			refused = strings.TrimSpace(a.Error)
		}
	}
	return found.Answers, refused, nil
}
