package provider

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	security "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/faas-infer/faas-infer/instance/duplex"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/provider/web"
)

// inferService is the service of the Open Inference Protocol.
const inferService = "inference.GRPCInferenceService"

// copying is a function's model that answers with its inputs, as outputs of the same types.
func copying(function string, types ...tensor.Type) dispatcherFunc {
	m := &protocol.Model{Name: function + ".openfaas-fn"}
	for _, kind := range types {
		m.Inputs = append(m.Inputs, tensor.Info{Name: "in_" + string(kind), Type: kind, Shape: []int64{-1, 2}})
		m.Outputs = append(m.Outputs, tensor.Info{Name: "out_" + string(kind), Type: kind, Shape: []int64{-1, 2}})
	}
	return func(_ context.Context, req *frame.Request) (*frame.Response, error) {
		call, answer := m.Decode(*req)
		if call != nil {
			outputs := make([]tensor.Tensor, len(call.Inputs))
			for i, in := range call.Inputs {
				outputs[i] = tensor.Tensor{Name: m.Outputs[i].Name, Type: in.Type, Shape: in.Shape, Data: in.Data}
			}
			answer = call.Respond(outputs)
		}
		return &answer, nil
	}
}

// serveHTTP2 serves a rig as the program does, with TLS if secure.
func serveHTTP2(t testing.TB, r *rig, limit time.Duration, secure bool) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	bounds := web.NewConnections(web.ConnectionOptions{Max: 100, MaxHeads: 16 << 20, AnswerTimeout: limit})
	server.Config = web.NewServer(r.Handler(), bounds)
	server.Listener = duplex.LimitStalls(bounds.Listen(server.Listener), limit)
	server.EnableHTTP2 = true
	if secure {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return server
}

// caller is a client of gRPC whose messages are written as text.
type caller struct {
	*grpc.ClientConn
	files *protoregistry.Files
}

// dialGRPC returns a client of a server.
func dialGRPC(t testing.TB, server *httptest.Server) caller {
	t.Helper()
	text, err := os.ReadFile("grpc/protocols.binpb")
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(text, &set); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatal(err)
	}
	secrecy := insecure.NewCredentials()
	if server.TLS != nil {
		secrecy = security.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	conn, err := grpc.NewClient(server.Listener.Addr().String(), grpc.WithTransportCredentials(secrecy),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)), grpc.WithDisableRetry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return caller{conn, files}
}

// method returns the description of a service's method.
func (c caller) method(t testing.TB, service, name string) protoreflect.MethodDescriptor {
	t.Helper()
	found, err := c.files.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		t.Fatal(err)
	}
	return found.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name))
}

// parse returns a message from its text.
func parse(t testing.TB, kind protoreflect.MessageDescriptor, text string) *dynamicpb.Message {
	t.Helper()
	m := dynamicpb.NewMessage(kind)
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

// call calls a unary method and returns the answer.
func (c caller) call(t testing.TB, ctx context.Context, service, name, text string, options ...grpc.CallOption) (*dynamicpb.Message, error) {
	t.Helper()
	m := c.method(t, service, name)
	answer := dynamicpb.NewMessage(m.Output())
	return answer, c.Invoke(ctx, "/"+service+"/"+name, parse(t, m.Input(), text), answer, options...)
}

// wantAnswer fails unless a call has the answer.
func (c caller) wantAnswer(t testing.TB, service, name, text, want string) {
	t.Helper()
	got, err := c.call(t, t.Context(), service, name, text)
	if err != nil {
		t.Errorf("%s of %s: %v", name, text, err)
		return
	}
	if wanted := parse(t, got.Descriptor(), want); !proto.Equal(got, wanted) {
		t.Errorf("%s of %s answers\n%v, want\n%v", name, text, got, wanted)
	}
}

// wantStatus fails unless a call ends with a code and all words.
func (c caller) wantStatus(t testing.TB, name, text string, code codes.Code, words ...string) metadata.MD {
	t.Helper()
	var trailer metadata.MD
	_, err := c.call(t, t.Context(), inferService, name, text, grpc.Trailer(&trailer))
	wantCode(t, err, code, words...)
	return trailer
}

// stream begins a call of streams.
func (c caller) stream(t testing.TB, ctx context.Context, service, name string) grpc.ClientStream {
	t.Helper()
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/"+service+"/"+name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inferText is a request for one row of two numbers.
const inferText = `model_name: "mnist" inputs { name: "in_FP32" datatype: "FP32" shape: [1, 2] }
	raw_input_contents: "\000\000\200?\000\000\000@"`

// wantCode fails unless err has a code and all words.
func wantCode(t testing.TB, err error, code codes.Code, words ...string) {
	t.Helper()
	s := status.Convert(err)
	if s.Code() != code {
		t.Errorf("the call ends with %v %q, want %v", s.Code(), s.Message(), code)
	}
	for _, word := range words {
		if !strings.Contains(s.Message(), word) {
			t.Errorf("the sentence %q does not say %q", s.Message(), word)
		}
	}
}

// programFunc is the forwarder of an ordinary function.
type programFunc struct {
	dispatcherFunc
	serve http.HandlerFunc
}

func (p programFunc) Forward(w http.ResponseWriter, r *http.Request, path string, _ time.Duration, _ func(int64) error) int {
	r.URL.Path = path
	p.serve(w, r)
	return http.StatusOK
}
