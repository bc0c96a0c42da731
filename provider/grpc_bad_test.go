package provider

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// hostile is a client of HTTP/2 that keeps no rule.
type hostile struct {
	*http2.Framer
	conn  net.Conn
	text  bytes.Buffer
	coder *hpack.Encoder
	ended atomic.Int64
}

// attack opens a connection whose streams have a window of some bytes. Frames of the server are counted in ended and otherwise not looked at.
func attack(t *testing.T, server *httptest.Server, window uint32) *hostile {
	t.Helper()
	conn := dialFrom(t, server, "127.0.0.1")
	h := &hostile{Framer: http2.NewFramer(conn, conn), conn: conn}
	h.coder = hpack.NewEncoder(&h.text)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := h.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			f, err := h.ReadFrame()
			if err != nil {
				return
			}
			if _, ok := f.(*http2.RSTStreamFrame); ok {
				h.ended.Add(1)
			}
		}
	})
	t.Cleanup(func() {
		conn.Close()
		reading.Wait()
	})
	return h
}

// open begins the call of a method of inference. Its error means that the server has closed the connection.
func (h *hostile) open(stream uint32, method string) error {
	return h.openPath(stream, "/"+inferService+"/"+method)
}

// openPath is open for the method with a path.
func (h *hostile) openPath(stream uint32, path string) error {
	h.text.Reset()
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "h"}, {":path", path},
		{"content-type", "application/grpc"}, {"te", "trailers"}} {
		if err := h.coder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return err
		}
	}
	return h.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: h.text.Bytes(), EndHeaders: true})
}

// inferMessage is a ModelInferRequest with its prefix, of a function without inputs.
func inferMessage() []byte {
	text := append([]byte{1<<3 | 2, 5}, "mnist"...)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

// largeOutput answers with a tensor of n bytes.
func largeOutput(n int) dispatcherFunc {
	return func(context.Context, *frame.Request) (*frame.Response, error) {
		head := `{"model_name":"mnist","outputs":[{"name":"x","datatype":"UINT8","shape":[` + strconv.Itoa(n) + `],"parameters":{"binary_data_size":` + strconv.Itoa(n) + `}}]}`
		return &frame.Response{Status: 200, Header: map[string][]string{"Inference-Header-Content-Length": {strconv.Itoa(len(head))}},
			Body: append([]byte(head), make([]byte, n)...)}, nil
	}
}

// Typed contents may take ten times their raw elements. They count until the client has taken them.
func TestGRPCTypedOutputsAreHeld(t *testing.T) {
	var size atomic.Int64
	r := invoker(t, func(context.Context, *frame.Request) (*frame.Response, error) {
		n := int(size.Load())
		answer, err := largeOutput(n)(nil, nil)
		head := bytes.Replace(answer.Body[:len(answer.Body)-n], []byte(`"UINT8"`), []byte(` "INT8"`), 1)
		answer.Body = append(head, bytes.Repeat([]byte{0xff}, n)...)
		return answer, err
	}, nil)
	server := serveHTTP2(t, r, time.Minute, false)
	c := dialGRPC(t, server)
	const typed = `model_name: "mnist" inputs { name: "x" datatype: "INT8" shape: [1] contents { int_contents: 1 } }`
	size.Store(7 << 20)
	c.wantStatus(t, "ModelInfer", typed, codes.ResourceExhausted, "67108864 bytes", "raw_input_contents")

	size.Store(1 << 20)
	before := runtime.NumGoroutine()
	h := attack(t, server, 0)
	message, err := proto.Marshal(parse(t, c.method(t, inferService, "ModelInfer").Input(), typed))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.open(1, "ModelInfer"); err != nil {
		t.Fatal(err)
	}
	if err := h.WriteData(1, true, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the message is held", func() bool { return r.bodies.Held() > 10<<20 })
	h.conn.Close()
	size.Store(100)
	wantService(t, r, server, before)
}

// wantService fails unless another client is served, and nothing of the attack is left.
func wantService(t *testing.T, r *rig, server *httptest.Server, before int) {
	t.Helper()
	c := dialGRPC(t, server)
	if _, err := c.call(t, t.Context(), inferService, "ModelInfer", `model_name: "mnist"`); err != nil {
		t.Errorf("another client: %v", err)
	}
	c.Close()
	eventually(t, "nothing is held", func() bool { return r.bodies.Held() == 0 })
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before+10 })
}

// Streams that take nothing of their answers are reset, and their memory is free again. A stream that does is served
// meanwhile.
func TestGRPCStreamsThatDoNotRead(t *testing.T) {
	const size, streams = 1 << 20, 50
	r := invoker(t, largeOutput(size), nil)
	server := serveHTTP2(t, r, 500*time.Millisecond, false)
	before := runtime.NumGoroutine()
	h := attack(t, server, 0)
	for i := range uint32(streams) {
		method := "ModelInfer"
		if i%2 == 1 {
			method = "ModelStreamInfer"
		}
		if err := h.open(2*i+1, method); err != nil {
			t.Fatal(err)
		}
		if err := h.WriteData(2*i+1, i%2 == 0, inferMessage()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "answers are held", func() bool { return r.bodies.Held() > size })
	eventually(t, "the streams are reset", func() bool { return h.ended.Load() >= streams })
	h.conn.Close()
	wantService(t, r, server, before)
}

// A connection with 10,000 streams gets as many as it may have, and the others are refused.
func TestGRPCManyStreams(t *testing.T) {
	r := invoker(t, largeOutput(100), nil)
	server := serveHTTP2(t, r, time.Minute, false)
	before := runtime.NumGoroutine()
	h := attack(t, server, 1<<20)
	most := 0
	for i := range uint32(10_000) {
		if h.open(2*i+1, "ModelStreamInfer") != nil {
			break
		}
		most = max(most, runtime.NumGoroutine()-before)
	}
	eventually(t, "streams are refused", func() bool { return h.ended.Load() > 1000 || h.WritePing(false, [8]byte{}) != nil })
	if most > 3*256+50 {
		t.Errorf("%d goroutines serve one connection", most)
	}
	h.conn.Close()
	wantService(t, r, server, before)
}

// A client that opens and resets streams as fast as it can stops nobody, and leaves nothing behind.
func TestGRPCRapidReset(t *testing.T) {
	var running, most atomic.Int64
	answer := largeOutput(100)
	r := invoker(t, func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
		defer running.Add(-1)
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		return answer(ctx, req)
	}, nil)
	server := serveHTTP2(t, r, time.Minute, false)
	before := runtime.NumGoroutine()
	h := attack(t, server, 1<<20)
	for i := range uint32(10_000) {
		if h.open(2*i+1, "ModelInfer") != nil || h.WriteData(2*i+1, true, inferMessage()) != nil || h.WriteRSTStream(2*i+1, http2.ErrCodeCancel) != nil {
			break
		}
	}
	h.conn.Close()
	wantService(t, r, server, before)
	if most.Load() > 256 {
		t.Errorf("%d requests of one connection ran at once", most.Load())
	}
}

// Questions about the server are short, compressed or not, and stay held until the client has their answers.
func TestGRPCQuestionsAreHeld(t *testing.T) {
	const reflection = "grpc.reflection.v1.ServerReflection"
	r := invoker(t, largeOutput(100), nil)
	server := serveHTTP2(t, r, time.Minute, false)
	c := dialGRPC(t, server)
	long := strings.Repeat("x", 64<<10)
	for _, compressed := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
		_, err := c.call(t, t.Context(), inferService, "ModelReady", `name: "`+long+`"`, compressed...)
		wantCode(t, err, codes.ResourceExhausted)
		_, err = c.call(t, t.Context(), "grpc.health.v1.Health", "Check", `service: "`+long+`"`, compressed...)
		wantCode(t, err, codes.ResourceExhausted)
	}
	s := c.stream(t, t.Context(), reflection, "ServerReflectionInfo")
	m := c.method(t, reflection, "ServerReflectionInfo")
	if err := s.SendMsg(parse(t, m.Input(), `file_by_filename: "`+long+`"`)); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.RecvMsg(dynamicpb.NewMessage(m.Output())), codes.ResourceExhausted)

	const size, streams = 10_000, 20
	before := runtime.NumGoroutine()
	h := attack(t, server, 0)
	question := append(binary.BigEndian.AppendUint32([]byte{0}, size), 1<<3|2, (size-3)&0x7f|0x80, (size-3)>>7)
	question = append(question, make([]byte, size-3)...)
	for i := range uint32(streams) {
		if err := h.openPath(2*i+1, "/"+reflection+"/ServerReflectionInfo"); err != nil {
			t.Fatal(err)
		}
		if err := h.WriteData(2*i+1, false, question); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "questions and their copies are held", func() bool { return r.bodies.Held() >= streams*2*size })
	h.conn.Close()
	wantService(t, r, server, before)
}

// A message that says that it is longer than the limit, or that does not come, takes no memory.
func TestGRPCMessagesThatDoNotCome(t *testing.T) {
	r := invoker(t, largeOutput(100), nil)
	server := serveHTTP2(t, r, time.Minute, false)
	before := runtime.NumGoroutine()
	h := attack(t, server, 1<<20)
	for i, length := range []uint32{1<<32 - 1, DefaultMaxBody + 1, DefaultMaxBody} {
		stream := uint32(2*i + 1)
		if err := h.open(stream, "ModelInfer"); err != nil {
			t.Fatal(err)
		}
		if err := h.WriteData(stream, false, binary.BigEndian.AppendUint32([]byte{0}, length)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the first buffer of the last one is held", func() bool { return r.bodies.Held() > 0 && r.bodies.Held() < 1<<20 })
	h.conn.Close()
	wantService(t, r, server, before)
	c := dialGRPC(t, server)
	c.wantStatus(t, "ModelInfer", `model_name: "mnist" raw_input_contents: "`+strings.Repeat("x", DefaultMaxBody)+`"`, codes.ResourceExhausted, "33554432")
}
