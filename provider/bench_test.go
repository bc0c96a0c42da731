package provider

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/instance/frame"
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

var (
	jsonType = []string{"application/json"}
	agent    = []string{"faas-infer-load"}
	zeros    = make([]byte, 1<<20)
)
