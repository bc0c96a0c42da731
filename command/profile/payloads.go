package profile

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
)

// payloadRuns is the maximum number of requests for one figure, payloadTime their maximum
// total time.
const (
	payloadRuns = 20
	payloadTime = 30 * time.Millisecond
)

// measurePayloads measures the CPU time of an instance's server for a request with one row,
// without an engine. It returns nil if the model's inputs cannot be encoded.
func measurePayloads(ctx context.Context, s Signature) *profiler.Payloads {
	server, err := instance.NewServer(noEngine{s}, instance.Options{Name: "model", MaxBatch: 1, Threads: 1, Logger: zerolog.Nop()})
	if err != nil {
		return nil
	}
	inputs := python.Sample(s.Inputs, 1, 1)
	binary, length, err := load.EncodeBinary(inputs)
	if err != nil {
		return nil
	}
	text, err := protocol.EncodeJSON(inputs)
	if err != nil {
		return nil
	}
	var p profiler.Payloads
	for _, way := range []struct {
		cost   *float64
		header http.Header
		body   []byte
	}{
		{&p.Binary, http.Header{"Content-Type": {"application/octet-stream"}, load.HeaderLength: {strconv.Itoa(length)}}, binary},
		{&p.JSON, http.Header{"Content-Type": {"application/json"}}, text},
	} {
		least, began := math.Inf(1), time.Now()
		for i := 0; i < payloadRuns && (i < 2 || time.Since(began) < payloadTime); i++ {
			before := processorTime()
			answers, _ := server.HandleBatch(ctx, []frame.Request{{
				Method: http.MethodPost, Path: "/v2/models/model/infer", Header: way.header.Clone(), Body: way.body,
			}})
			if answers[0].Status != http.StatusOK {
				return nil
			}
			least = min(least, float64(processorTime()-before)/float64(time.Microsecond))
		}
		*way.cost = least
	}
	return &p
}

// noEngine is an engine that returns zeros at once.
type noEngine struct{ Signature }

func (e noEngine) Inputs() []tensor.Info  { return e.Signature.Inputs }
func (e noEngine) Outputs() []tensor.Info { return e.Signature.Outputs }
func (e noEngine) Close() error           { return nil }

// Run implements instance.Engine.
func (e noEngine) Run(_ context.Context, rows int, _ []tensor.Tensor) ([]tensor.Tensor, error) {
	outputs := python.Sample(e.Signature.Outputs, rows, 1)
	for i := range outputs {
		clear(outputs[i].Data)
	}
	return outputs, nil
}
