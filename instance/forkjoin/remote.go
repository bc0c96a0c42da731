package forkjoin

import (
	"context"

	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Remote is a worker in another process: an instance that serves a part as a model of its
// own. Tensors go as bytes, with the Open Inference Protocol's binary extension.
type Remote struct {
	client  *upstream.OpenInference
	outputs []tensor.Info
}

// Connect asks an instance at a URL for its model's signature. The instance must be ready.
func Connect(ctx context.Context, base, model string) (*Remote, error) {
	client := upstream.NewOpenInference(base, model)
	_, outputs, err := client.Signature(ctx)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &Remote{client, outputs}, nil
}

// Run implements [Worker].
func (r *Remote) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	return r.client.Infer(ctx, rows, inputs, r.outputs)
}

// Close closes the connections.
func (r *Remote) Close() error {
	r.client.Close()
	return nil
}
