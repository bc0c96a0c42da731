package provider

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/web"
)

// A request has raw or typed contents of all types, and its answer has the same form.
func TestGRPCInfer(t *testing.T) {
	r := invoker(t, copying("mnist", tensor.FP32), nil)
	c := dialGRPC(t, serveHTTP2(t, r, time.Minute, false))
	c.wantAnswer(t, inferService, "ModelInfer", inferText+` id: "a\"b" parameters { key: "x" value { string_param: "y" } }
		parameters { key: "f" value { double_param: 0.5 } } outputs { name: "out_FP32" }`,
		`model_name: "mnist.openfaas-fn" model_version: "1" id: "a\"b" outputs { name: "out_FP32" datatype: "FP32" shape: [1, 2] }
		raw_output_contents: "\000\000\200?\000\000\000@"`)
	for _, k := range []struct {
		kind          tensor.Type
		field, values string
		raw           string
	}{
		{tensor.Bool, "bool_contents", "[true, false]", `\001\000`},
		{tensor.Int8, "int_contents", "[-1, 127]", `\377\177`},
		{tensor.Int16, "int_contents", "[-2, 300]", `\376\377\054\001`},
		{tensor.Int32, "int_contents", "[-3, 70000]", `\375\377\377\377\160\021\001\000`},
		{tensor.Int64, "int64_contents", "[-4, 5]", `\374\377\377\377\377\377\377\377\005\000\000\000\000\000\000\000`},
		{tensor.Uint8, "uint_contents", "[0, 255]", `\000\377`},
		{tensor.Uint16, "uint_contents", "[1, 65535]", `\001\000\377\377`},
		{tensor.Uint32, "uint_contents", "[2, 4294967295]", `\002\000\000\000\377\377\377\377`},
		{tensor.Uint64, "uint64_contents", "[3, 18446744073709551615]", `\003\000\000\000\000\000\000\000\377\377\377\377\377\377\377\377`},
		{tensor.FP32, "fp32_contents", "[1, 2]", `\000\000\200?\000\000\000@`},
		{tensor.FP64, "fp64_contents", "[1, 2]", `\000\000\000\000\000\000\360?\000\000\000\000\000\000\000@`},
		{tensor.Bytes, "bytes_contents", `["", "two"]`, `\000\000\000\000\003\000\000\000two`},
	} {
		name := strings.ToLower(string(k.kind))
		r.controller.dispatcher = copying(name, k.kind)
		r.deploy(t, func(d *types.FunctionDeployment) { d.Service = name })
		request := func(contents, raw string) string {
			return fmt.Sprintf(`model_name: %q inputs { name: "in_%s" datatype: %q shape: [1, 2] %s } %s`,
				name, k.kind, k.kind, contents, raw)
		}
		answer := func(contents, raw string) string {
			return fmt.Sprintf(`model_name: "%s.openfaas-fn" model_version: "1"
				outputs { name: "out_%s" datatype: %q shape: [1, 2] %s } %s`, name, k.kind, k.kind, contents, raw)
		}
		typed := fmt.Sprintf("contents { %s: %s }", k.field, k.values)
		c.wantAnswer(t, inferService, "ModelInfer", request(typed, ""), answer(typed, ""))
		c.wantAnswer(t, inferService, "ModelInfer", request("", `raw_input_contents: "`+k.raw+`"`), answer("", `raw_output_contents: "`+k.raw+`"`))
	}
	// FP16 has no typed contents, so all outputs are raw.
	r.controller.dispatcher = copying("two", tensor.FP32, tensor.FP16)
	r.deploy(t, func(d *types.FunctionDeployment) { d.Service = "two" })
	two := strings.Replace(inferText, `"mnist"`, `"two"`, 1) + ` inputs { name: "in_FP16" datatype: "FP16" shape: [1, 2] } raw_input_contents: "abcd"`
	c.wantAnswer(t, inferService, "ModelInfer", two, `model_name: "two.openfaas-fn" model_version: "1"
		outputs { name: "out_FP32" datatype: "FP32" shape: [1, 2] } outputs { name: "out_FP16" datatype: "FP16" shape: [1, 2] }
		raw_output_contents: "\000\000\200?\000\000\000@" raw_output_contents: "abcd"`)
	if got, err := c.call(t, t.Context(), inferService, "ModelInfer", inferText, grpc.UseCompressor(gzip.Name)); err != nil {
		t.Errorf("a compressed message: %v, %v", got, err)
	}
	if held := r.bodies.Held(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// A call is refused for the reasons of an invocation, with the same sentences.
func TestGRPCRefusals(t *testing.T) {
	r := invoker(t, copying("mnist", tensor.FP32), func(o *Options) { o.Bodies = web.NewBodyReader(4096, DefaultBodyTimeout, DefaultMaxHeld) })
	c := dialGRPC(t, serveHTTP2(t, r, time.Minute, false))
	input := func(datatype, contents string) string {
		return fmt.Sprintf(`model_name: "mnist" inputs { name: "in_FP32" datatype: %q shape: [1, 2] contents { %s } }`, datatype, contents)
	}
	for text, want := range map[string]struct {
		code codes.Code
		word string
	}{
		strings.Replace(inferText, "mnist", "absent", 1):                               {codes.NotFound, `there is no function "absent"`},
		strings.Replace(inferText, "mnist", "mnist.absent", 1):                         {codes.NotFound, `namespace "absent"`},
		strings.Replace(inferText, "mnist", "../x", 1):                                 {codes.NotFound, `no function`},
		strings.Replace(inferText, "mnist", "", 1):                                     {codes.InvalidArgument, "model_name is empty"},
		inferText + ` model_version: "2"`:                                              {codes.NotFound, "version"},
		inferText + ` raw_input_contents: "x"`:                                         {codes.InvalidArgument, "1 inputs and 2 raw_input_contents"},
		strings.Replace(inferText, "] }", "] contents { fp32_contents: [1, 2] } }", 1): {codes.InvalidArgument, "contents beside raw_input_contents"},
		strings.Replace(inferText, "[1, 2]", "[1, 3]", 1):                              {codes.InvalidArgument, "shape"},
		strings.Replace(inferText, "@", "@abcd", 1):                                    {codes.InvalidArgument, "elements"},
		strings.Replace(inferText, "@", "@a", 1):                                       {codes.InvalidArgument, "whole elements"},
		`model_name: "mnist" raw_input_contents: ""`:                                   {codes.InvalidArgument, "0 inputs"},
		`model_name: "mnist"`:                                                          {codes.InvalidArgument, "missing"},
		input("FP32", "fp32_contents: [1]"):                                            {codes.InvalidArgument, "elements"},
		input("FP32", "int_contents: [1, 2]"):                                          {codes.InvalidArgument, "another type"},
		input("FP16", "fp32_contents: [1, 2]"):                                         {codes.InvalidArgument, "raw_input_contents"},
		input("INT8", "int_contents: [1, 128]"):                                        {codes.InvalidArgument, "INT8 cannot have"},
		input("UINT8", "uint_contents: [1, 256]"):                                      {codes.InvalidArgument, "UINT8 cannot have"},
		inferText + ` parameters { key: "x" value { double_param: nan } }`:             {codes.InvalidArgument, "finite"},
		inferText + ` id: "` + strings.Repeat("x", 5000) + `"`:                         {codes.ResourceExhausted, "4096"},
		input("INT64", "int64_contents: ["+strings.Repeat("1, ", 1000)+"1]"):           {codes.ResourceExhausted, "4096 bytes"},
	} {
		c.wantStatus(t, "ModelInfer", text, want.code, want.word)
	}
	long := strings.Repeat("x", 254)
	for _, name := range []string{"ModelReady", "ModelMetadata"} {
		c.wantStatus(t, name, `name: "`+long+`"`, codes.InvalidArgument, "254 bytes")
		c.wantStatus(t, name, `name: "mnist" version: "`+long+`"`, codes.InvalidArgument, "254 bytes")
	}
	c.wantStatus(t, "ModelInfer", `model_name: "`+long+`"`, codes.InvalidArgument, "254 bytes")
	m := dynamicpb.NewMessage(c.method(t, inferService, "ServerLive").Input())
	wantCode(t, c.Invoke(t.Context(), "/inference.GRPCInferenceService/Absent", m, m), codes.Unimplemented, "Absent")
	c.wantStatus(t, "ModelMetadata", `name: "absent"`, codes.NotFound, "no function")
	c.wantStatus(t, "ModelMetadata", ``, codes.InvalidArgument, "name is empty")
	if held := r.bodies.Held(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// Errors have gRPC's codes, the sentence, and the time until another try.
func TestGRPCCodes(t *testing.T) {
	var told error
	r := invoker(t, func(context.Context, *frame.Request) (*frame.Response, error) { return nil, told }, nil)
	c := dialGRPC(t, serveHTTP2(t, r, time.Minute, false))
	for status, code := range map[int]codes.Code{400: codes.InvalidArgument, 401: codes.Unauthenticated, 403: codes.PermissionDenied,
		404: codes.NotFound, 413: codes.ResourceExhausted, 422: codes.InvalidArgument, 429: codes.ResourceExhausted, 500: codes.Internal,
		502: codes.Unavailable, 503: codes.Unavailable, 504: codes.DeadlineExceeded, 507: codes.Internal} {
		told = &web.Error{Status: status, After: 1500 * time.Millisecond, Text: "a sentence, 100 % ‘quoted’"}
		trailer := c.wantStatus(t, "ModelInfer", inferText, code, "a sentence, 100 % ‘quoted’")
		if after := trailer.Get("retry-after"); !slices.Equal(after, []string{"2"}) {
			t.Errorf("status %d: another try after %q", status, after)
		}
	}
	for _, status := range []int{204, 302, 418} {
		r.controller.dispatcher = dispatcherFunc(func(context.Context, *frame.Request) (*frame.Response, error) {
			return &frame.Response{Status: status, Header: http.Header{}, Body: []byte("a teapot")}, nil
		})
		r.deploy(t, func(d *types.FunctionDeployment) { d.Labels = &map[string]string{"status": fmt.Sprint(status)} })
		_, err := c.call(t, t.Context(), inferService, "ModelInfer", inferText)
		if err == nil {
			t.Errorf("status %d is an answer", status)
		}
	}
}

// A call above a function's rate says when another one may succeed, and one below it how many may follow.
func TestGRPCRates(t *testing.T) {
	r := newRig(t, nil)
	r.controller.dispatcher = copying("mnist", tensor.FP32)
	r.deploy(t, annotated(annotation.InferRate, "1/m"))
	c := dialGRPC(t, serveHTTP2(t, r, time.Minute, false))
	var header metadata.MD
	if _, err := c.call(t, t.Context(), inferService, "ModelInfer", inferText, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	if left := header.Get("ratelimit-remaining"); !slices.Equal(left, []string{"0"}) {
		t.Errorf("%q are left", left)
	}
	trailer := c.wantStatus(t, "ModelInfer", inferText, codes.ResourceExhausted, "1/m")
	for name, want := range map[string]string{"retry-after": "60", "ratelimit-limit": "1", "ratelimit-remaining": "0", "ratelimit-reset": "60"} {
		if got := trailer.Get(name); !slices.Equal(got, []string{want}) {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
}

// The call's deadline and its cancellation are those of the request.
func TestGRPCDeadlines(t *testing.T) {
	reached, ended := make(chan struct{}), make(chan error)
	r := invoker(t, func(ctx context.Context, _ *frame.Request) (*frame.Response, error) {
		close(reached)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}, nil)
	server := serveHTTP2(t, r, time.Minute, false)
	c := dialGRPC(t, server)
	// gRPC's own client would end such calls itself.
	wantEnd(t, server, "0n", codes.DeadlineExceeded)
	wantEnd(t, server, "5x", codes.InvalidArgument)
	late := make(chan struct{})
	go func() {
		defer close(late)
		wantEnd(t, server, "50m", codes.DeadlineExceeded)
	}()
	<-reached
	if err := <-ended; err != context.DeadlineExceeded {
		t.Errorf("the dispatcher's context ends with %v", err)
	}
	<-late
	ctx, cancel := context.WithCancel(t.Context())
	reached = make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		_, err := c.call(t, ctx, inferService, "ModelInfer", inferText)
		failed <- err
	}()
	<-reached
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Errorf("the dispatcher's context ends with %v", err)
	}
	wantCode(t, <-failed, codes.Canceled)
}

// wantEnd fails unless a call with a timeout ends with a code.
func wantEnd(t *testing.T, server *httptest.Server, timeout string, code codes.Code) {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	message := "\x00\x00\x00\x00\x07\x0a\x05mnist"
	r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/"+inferService+"/ModelInfer", strings.NewReader(message))
	if err != nil {
		t.Error(err)
		return
	}
	r.Header = http.Header{"Content-Type": {"application/grpc"}, "Grpc-Timeout": {timeout}}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if got := resp.Trailer.Get("Grpc-Status"); got != fmt.Sprint(int(code)) {
		t.Errorf("with the timeout %s a call ends with %q %q, want %d", timeout, got, resp.Trailer.Get("Grpc-Message"), code)
	}
}

// Requests of a stream run at once and are answered in their order. A bad one does not end the stream.
func TestGRPCStream(t *testing.T) {
	const together = 8
	model, arrived, proceed := copying("mnist", tensor.FP32), make(chan struct{}, together), make(chan struct{})
	r := invoker(t, func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
		arrived <- struct{}{}
		<-proceed
		return model(ctx, req)
	}, nil)
	c := dialGRPC(t, serveHTTP2(t, r, time.Minute, true))
	s := c.stream(t, t.Context(), inferService, "ModelStreamInfer")
	m := c.method(t, inferService, "ModelStreamInfer")
	for i := range together {
		if err := s.SendMsg(parse(t, m.Input(), fmt.Sprintf("%s id: '%d'", inferText, i))); err != nil {
			t.Fatal(err)
		}
	}
	for range together {
		<-arrived
	}
	if err := s.SendMsg(parse(t, m.Input(), `model_name: "absent" id: "bad"`)); err != nil {
		t.Fatal(err)
	}
	last := inferText + ` id: "last" parameters { key: "triton_enable_empty_final_response" value { bool_param: true } }`
	if err := s.SendMsg(parse(t, m.Input(), last)); err != nil {
		t.Fatal(err)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	close(proceed)
	next := func() string {
		got := dynamicpb.NewMessage(m.Output())
		if err := s.RecvMsg(got); err != nil {
			return err.Error()
		}
		return strings.Join(strings.Fields(got.String()), " ")
	}
	for i := range together {
		if got := next(); !strings.Contains(got, fmt.Sprintf(`id:"%d"`, i)) || strings.Contains(got, "error") {
			t.Errorf("answer %d is %s", i, got)
		}
	}
	if got := next(); !strings.Contains(got, `no function \"absent\"`) || !strings.Contains(got, `id:"bad"`) {
		t.Errorf("the bad request's answer is %s", got)
	}
	if got := next(); !strings.Contains(got, `id:"last"`) || !strings.Contains(got, "triton_final_response") {
		t.Errorf("the last answer is %s", got)
	}
	if got := next(); got != io.EOF.Error() {
		t.Errorf("after the last answer: %s", got)
	}
}

// What the protocol says of the server and of models, over TLS.
func TestGRPCMetadata(t *testing.T) {
	r := invoker(t, copying("mnist", tensor.FP32), nil)
	c := dialGRPC(t, serveHTTP2(t, r, time.Minute, true))
	c.wantAnswer(t, inferService, "ServerLive", "", "live: true")
	c.wantAnswer(t, inferService, "ServerReady", "", "ready: true")
	c.wantAnswer(t, inferService, "ServerMetadata", "", `name: "faas-infer" version: "0.1.0" extensions: "classification"`)
	c.wantAnswer(t, inferService, "ModelReady", `name: "mnist"`, "ready: true")
	c.wantAnswer(t, inferService, "ModelReady", `name: "absent"`, "")
	c.wantAnswer(t, inferService, "ModelMetadata", `name: "mnist.openfaas-fn" version: "1"`, `name: "mnist.openfaas-fn" versions: "1"
		platform: "onnxruntime_onnx" inputs { name: "in_FP32" datatype: "FP32" shape: [-1, 2] } outputs { name: "out_FP32" datatype: "FP32" shape: [-1, 2] }`)
	c.wantAnswer(t, "grpc.health.v1.Health", "Check", "", "status: SERVING")
	_, err := c.call(t, t.Context(), "grpc.health.v1.Health", "Check", `service: "absent"`)
	wantCode(t, err, codes.NotFound)
}

// A client may ask which methods there are, and for their messages.
func TestGRPCReflection(t *testing.T) {
	c := dialGRPC(t, serveHTTP2(t, invoker(t, echo, nil), time.Minute, false))
	m := c.method(t, "grpc.reflection.v1.ServerReflection", "ServerReflectionInfo")
	for _, version := range []string{"v1", "v1alpha"} {
		s := c.stream(t, t.Context(), "grpc.reflection."+version+".ServerReflection", "ServerReflectionInfo")
		for question, word := range map[string]string{
			`list_services: ""`: inferService,
			`file_containing_symbol: "inference.GRPCInferenceService.ModelInfer"`: "ModelInferRequest",
			`file_containing_symbol: "inference.InferParameter"`:                  "ModelInferRequest",
			`file_by_filename: "grpc/health/v1/health.proto"`:                     "HealthCheckRequest",
			`file_containing_symbol: "inference.Absent"`:                          "error_code:5",
			`all_extension_numbers_of_type: "x"`:                                  "error_code:5",
			``:                                                                    "error_code:12",
		} {
			if err := s.SendMsg(parse(t, m.Input(), question)); err != nil {
				t.Fatal(err)
			}
			got := dynamicpb.NewMessage(m.Output())
			if err := s.RecvMsg(got); err != nil || !strings.Contains(got.String(), word) {
				t.Errorf("%s %s is answered with %v %v", version, question, got, err)
			}
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(dynamicpb.NewMessage(m.Output())); err != io.EOF {
			t.Errorf("the stream ends with %v", err)
		}
	}
}

// At shutdown streams end after the answers to what has come, and health checks say so.
func TestGRPCDrains(t *testing.T) {
	r := invoker(t, copying("mnist", tensor.FP32), nil)
	c := dialGRPC(t, serveHTTP2(t, r, time.Minute, false))
	s := c.stream(t, t.Context(), inferService, "ModelStreamInfer")
	m := c.method(t, inferService, "ModelStreamInfer")
	watch := c.stream(t, t.Context(), "grpc.health.v1.Health", "Watch")
	health := c.method(t, "grpc.health.v1.Health", "Watch")
	if err := watch.SendMsg(parse(t, health.Input(), "")); err != nil {
		t.Fatal(err)
	}
	status := dynamicpb.NewMessage(health.Output())
	if err := watch.RecvMsg(status); err != nil || !strings.Contains(status.String(), "SERVING") {
		t.Errorf("the health is %v %v", status, err)
	}
	if err := s.SendMsg(parse(t, m.Input(), inferText)); err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(dynamicpb.NewMessage(m.Output())); err != nil {
		t.Fatal(err)
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.RecvMsg(dynamicpb.NewMessage(m.Output())), codes.Unavailable, "shutting down")
	if err := watch.RecvMsg(status); err != nil || !strings.Contains(status.String(), "NOT_SERVING") {
		t.Errorf("the health is %v %v", status, err)
	}
	c.wantStatus(t, "ModelInfer", inferText, codes.Unavailable, "shutting down")
}

// A program that speaks the protocol without its binary extension is called in the same way, and so is one that answers in parts.
func TestGRPCToPrograms(t *testing.T) {
	r := newRig(t, nil)
	r.controller.dispatcher = programFunc{echo, func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil || req.URL.Path != "/v2/models/program/infer" || !bytes.Contains(body, []byte(`"in_FP32"`)) || req.Header.Get("X-Team") != "a" {
			http.Error(w, "not as expected", http.StatusBadRequest)
			return
		}
		for _, part := range []string{`{"model_name":"program","outputs":[{"name":"a","datatype":"INT32","shape":[1,2],"data":[[1,`,
			`-2]]},{"name":"b","datatype":"BYTES","shape":[1],"data":["x"]},{"name":"c","datatype":"BOOL","shape":[1],"data":[true]},`,
			`{"name":"d","datatype":"FP32","shape":[1],"parameters":{"n":7,"s":"t"},"data":[1]}]}`} {
			io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
		}
	}}
	r.deploy(t, func(d *types.FunctionDeployment) { d.Service, d.Annotations = "program", nil })
	c := dialGRPC(t, serveHTTP2(t, r, time.Minute, false))
	text := `model_name: "program" inputs { name: "in_FP32" datatype: "FP32" shape: [1, 2] contents { fp32_contents: [1, 2] } }`
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-team", "a")
	got, err := c.call(t, ctx, inferService, "ModelInfer", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"int_contents:1 int_contents:-2", `bytes_contents:"x"`, "bool_contents:true", "fp32_contents:1", "int64_param:7", `string_param:"t"`} {
		if plain := strings.Join(strings.Fields(got.String()), " "); !strings.Contains(plain, part) {
			t.Errorf("the answer %s lacks %s", plain, part)
		}
	}
	_, err = c.call(t, t.Context(), inferService, "ModelInfer", text)
	wantCode(t, err, codes.InvalidArgument, "not as expected")
}

// A program without a model is not ready as a model, whatever it answers, and one that speaks the protocol is.
func TestGRPCReadyOfPrograms(t *testing.T) {
	model := `{"name":"program","inputs":[],"outputs":[]}`
	r := guarded(t, nil)
	r.secret(t, "POST", "openfaas-fn", "keys", shopKey)
	var code int
	answers := map[string]string{}
	r.controller.dispatcher = programFunc{echo, func(w http.ResponseWriter, req *http.Request) {
		w.WriteHeader(code)
		io.WriteString(w, answers[strings.TrimPrefix(req.URL.Path, "/v2/models/program")])
	}}
	r.deploy(t, func(d *types.FunctionDeployment) {
		d.Service, d.Annotations = "program", &map[string]string{annotation.InferAccess: "keys"}
	})
	c := dialGRPC(t, serveHTTP2(t, r, time.Minute, false))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", shopKey)
	for _, k := range []struct {
		status         int
		ready, whole   string
		answer, itself bool
	}{
		{200, "hello", "hello", false, false}, {200, "", "", false, false}, {200, `{"a":1}`, `{"a":1}`, false, false},
		{200, `{"ready":false}`, model, false, true}, {400, "no", "no", false, false}, {404, "no", "no", false, false}, {500, "no", "no", false, false},
		{200, `{"name":"program","ready":true}`, model, true, true}, {200, "", model, true, true},
	} {
		code, answers["/ready"], answers[""] = k.status, k.ready, k.whole
		got, err := c.call(t, ctx, inferService, "ModelReady", `name: "program"`)
		if err != nil || strings.Contains(got.String(), "true") != k.answer {
			t.Errorf("%+v: ready is %v, %v", k, got, err)
		}
		if _, err := c.call(t, ctx, inferService, "ModelMetadata", `name: "program"`); (err == nil) != k.itself || k.status == 200 && err != nil && status.Code(err) != codes.NotFound {
			t.Errorf("%+v: metadata: %v", k, err)
		}
	}
	c.wantStatus(t, "ModelReady", `name: "program"`, codes.Unauthenticated)
}

// Other requests may come over HTTP/2, too.
func TestHTTP2Routes(t *testing.T) {
	server := serveHTTP2(t, invoker(t, echo, nil), time.Minute, false)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	body := strings.Repeat("0123456789", 100_000)
	for path, kind := range map[string]string{"/function/mnist": "application/grpc", "/function/mnist/a/b": "text/plain", "/healthz": "text/plain"} {
		resp, err := client.Post(server.URL+path, kind, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got := readAll(t, resp.Body)
		resp.Body.Close()
		if resp.ProtoMajor != 2 || (path == "/healthz") != (got != body) {
			t.Errorf("%s: %s over HTTP/%d with %d bytes", path, resp.Status, resp.ProtoMajor, len(got))
		}
	}
}

// A refusal before the end of a long body ends its stream only: the connection serves the next request.
func TestRefusalsOverHTTP2KeepTheConnection(t *testing.T) {
	r := invoker(t, echo, func(o *Options) { o.Bodies = web.NewBodyReader(1<<10, time.Minute, DefaultMaxHeld) })
	server := serveHTTP2(t, r, time.Minute, false)
	dials := 0
	transport := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		dials++
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	body := bytes.Repeat([]byte("x"), 2<<20)
	for path, status := range map[string]int{"/function/mnist": 413, "/function/absent": 404, "/v1/embeddings": 413, "/system/functions": 413, "/nowhere": 404} {
		for _, sized := range []bool{true, false} {
			req, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+path, bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if !sized {
				req.ContentLength = -1
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			text := make([]byte, max(0, resp.ContentLength))
			if _, err := io.ReadFull(resp.Body, text); err != nil || len(text) == 0 || resp.StatusCode != status {
				t.Errorf("%s: %d %q, %v, want %d", path, resp.StatusCode, text, err, status)
			}
			resp.Body.Close()
		}
	}
	if dials != 1 {
		t.Errorf("the client needed %d connections", dials)
	}
}
