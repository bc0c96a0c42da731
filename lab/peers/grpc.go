package peers

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// ModelInfer is the path of the Open Inference Protocol's method in gRPC.
const ModelInfer = "/inference.GRPCInferenceService/ModelInfer"

// The fields of the Open Inference Protocol's messages in gRPC.
const (
	requestModel, requestInput, requestRaw = 1, 5, 7
	inputName, inputType, inputShape       = 1, 2, 3
	responseRaw                            = 6
)

// EncodeMessage writes a ModelInferRequest with raw contents. It has no header, and no error.
func EncodeMessage(model string, inputs []tensor.Tensor) ([]byte, http.Header, error) {
	m := protowire.AppendTag(nil, requestModel, protowire.BytesType)
	m = protowire.AppendString(m, model)
	for _, in := range inputs {
		var shape []byte
		for _, n := range in.Shape {
			shape = protowire.AppendVarint(shape, uint64(n))
		}
		var t []byte
		t = protowire.AppendString(protowire.AppendTag(t, inputName, protowire.BytesType), in.Name)
		t = protowire.AppendString(protowire.AppendTag(t, inputType, protowire.BytesType), string(in.Type))
		t = protowire.AppendBytes(protowire.AppendTag(t, inputShape, protowire.BytesType), shape)
		m = protowire.AppendBytes(protowire.AppendTag(m, requestInput, protowire.BytesType), t)
	}
	for _, in := range inputs {
		m = protowire.AppendBytes(protowire.AppendTag(m, requestRaw, protowire.BytesType), in.Data)
	}
	return m, nil, nil
}

// decodeMessage reads the one output of a ModelInferResponse with raw contents.
func decodeMessage(m []byte) ([]float32, error) {
	var raw [][]byte
	for len(m) > 0 {
		number, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		m = m[n:]
		if number == responseRaw && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(m)
			raw = append(raw, value)
		}
		if n = protowire.ConsumeFieldValue(number, kind, m); n < 0 {
			return nil, protowire.ParseError(n)
		}
		m = m[n:]
	}
	if len(raw) != 1 {
		return nil, fmt.Errorf("%d raw outputs, not one", len(raw))
	}
	return floats(raw[0])
}

// prefix is the length in bytes of a message's prefix: one byte for compression, four for
// the message's length.
const prefix = 5

// caller sends messages over gRPC with net/http's HTTP/2 without TLS. Requests share
// connections, as those of gRPC's clients do.
type caller struct {
	client *http.Client
	url    string
}

func newCaller(url string) *caller {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &caller{client: &http.Client{Transport: &http.Transport{Protocols: protocols, DisableCompression: true}}, url: url}
}

func (c *caller) close() { c.client.CloseIdleConnections() }

// send implements load.Target.Send. It sends one message and returns that of the answer.
func (c *caller) send(ctx context.Context, message []byte) (status int, answer []byte, err error) {
	framed := make([]byte, prefix, prefix+len(message))
	binary.BigEndian.PutUint32(framed[1:], uint32(len(message)))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(append(framed, message...)))
	if err != nil {
		return 0, nil, err
	}
	r.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	response, err := c.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, err
	}
	if err := grpcStatus(response); err != nil {
		return 0, nil, err
	}
	if len(body) < prefix || body[0] != 0 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-prefix {
		return 0, nil, errors.New("the answer must be one message without compression")
	}
	return response.StatusCode, body[prefix:], nil
}

// grpcStatus returns the error in an answer that was read to its end, nil if there is none.
func grpcStatus(r *http.Response) error {
	code, message := r.Trailer.Get("Grpc-Status"), r.Trailer.Get("Grpc-Message")
	if code == "" {
		code, message = r.Header.Get("Grpc-Status"), r.Header.Get("Grpc-Message")
	}
	if n, err := strconv.Atoi(code); err != nil || n != 0 {
		return fmt.Errorf("gRPC status %s: %s", code, message)
	}
	return nil
}
