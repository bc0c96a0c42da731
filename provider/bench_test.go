package provider

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

// BenchmarkInvoke measures what the invoke route adds, in time and memory, in
// front of a dispatcher that answers at once.
func BenchmarkInvoke(b *testing.B) {
	answer := []byte(`{"outputs":[]}`)
	for _, size := range []int{0, 3136, 1 << 20} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			r := invoker(b, func(context.Context, *frame.Request) (*frame.Response, error) {
				return &frame.Response{Status: 200, Header: http.Header{}, Body: answer}, nil
			}, nil)
			for i := range 100 {
				r.deploy(b, func(d *types.FunctionDeployment) { d.Service = fmt.Sprintf("other-%d", i) })
			}
			h := r.Handler()
			body := bytes.NewReader(make([]byte, size))
			at := &url.URL{Path: "/function/mnist.openfaas-fn/v2/models/mnist/infer"}
			w := &discard{header: http.Header{}}
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				body.Reset(zeros[:size])
				req := http.Request{Method: "POST", URL: at, Header: http.Header{"Content-Type": jsonType, "User-Agent": agent},
					Host: "127.0.0.1:8081", RemoteAddr: "127.0.0.1:40000", Body: io.NopCloser(body), ContentLength: int64(size)}
				clear(w.header)
				h.ServeHTTP(w, &req)
			}
		})
	}
}

// BenchmarkProtocols measures one request over loopback in the Open Inference Protocol: binary tensors over HTTP/1.1, and
// gRPC with its own client, which takes a part of the time. The dispatcher answers at once with the input.
func BenchmarkProtocols(b *testing.B) {
	for _, rows := range []int{128, 75_000} {
		r := invoker(b, copying("mnist", tensor.FP32), nil)
		server := serveHTTP2(b, r, time.Minute, false)
		raw := zeros[:8*rows]
		body, head, err := load.EncodeBinary([]tensor.Tensor{{Name: "in_FP32", Type: tensor.FP32, Shape: []int64{int64(rows), 2}, Data: raw}})
		if err != nil {
			b.Fatal(err)
		}
		url, length := server.URL+"/function/mnist/v2/models/mnist/infer", []string{strconv.Itoa(head)}
		transport := &http.Transport{MaxIdleConnsPerHost: 64}
		defer transport.CloseIdleConnections()
		overHTTP := func() error {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, bytes.NewReader(body))
			if err != nil {
				return err
			}
			req.Header[load.HeaderLength] = length
			resp, err := transport.RoundTrip(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		}
		c := dialGRPC(b, server)
		method := c.method(b, inferService, "ModelInfer")
		in := parse(b, method.Input(), fmt.Sprintf(`model_name: "mnist" inputs { name: "in_FP32" datatype: "FP32" shape: [%d, 2] }`, rows))
		raws := in.Mutable(method.Input().Fields().ByName("raw_input_contents")).List()
		raws.Append(protoreflect.ValueOfBytes(raw))
		overGRPC := func() error {
			return c.Invoke(b.Context(), "/"+inferService+"/ModelInfer", in, dynamicpb.NewMessage(method.Output()))
		}
		for name, ask := range map[string]func() error{"http": overHTTP, "grpc": overGRPC} {
			if err := ask(); err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%s/%dB/alone", name, len(raw)), func(b *testing.B) {
				for b.Loop() {
					if err := ask(); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(fmt.Sprintf("%s/%dB/together", name, len(raw)), func(b *testing.B) {
				b.SetParallelism(16)
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						if err := ask(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

var (
	jsonType = []string{"application/json"}
	agent    = []string{"faas-infer-load"}
	zeros    = make([]byte, 1<<20)
)
