package instance

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// TestABatchOfLargestRequestsIsTaken checks that the server takes every batch whose requests
// are each within the limits, however large it is with its heads.
func TestABatchOfLargestRequestsIsTaken(t *testing.T) {
	s := newTestServer(t, &doubler{maxBatch: 4, width: 1})
	requests := make([]frame.Request, 4)
	for i := range requests {
		requests[i] = invoke(`{"instances":[[1]]}` + strings.Repeat(" ", 1000-19))
		requests[i].Header.Set("X-Long", strings.Repeat("x", frame.MaxHead-100))
	}
	var body bytes.Buffer
	buffers, length := frame.EncodeRequests(requests)
	if _, err := buffers.WriteTo(&body); err != nil {
		t.Fatal(err)
	}
	// As if the bodies took all that they may together.
	s.frameLimit = s.frameLimit - frameBodies + 4000
	if length > s.frameLimit {
		t.Fatalf("a frame of %d bytes, the limit is %d", length, s.frameLimit)
	}
	response := do(t, s, http.MethodPost, frame.Path, frame.ContentType, &body)
	members, err := frame.DecodeResponses([]byte(bodyOf(t, response)))
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range members {
		if m.Status != http.StatusOK {
			t.Errorf("member %d: got %d %s", i, m.Status, m.Body)
		}
	}
}

func TestFrameLimit(t *testing.T) {
	for body, want := range map[int64]int64{0: 64 << 20, 1000: 64 << 20, 256 << 20: 256 << 20} {
		s, err := NewServer(&doubler{width: 1}, Options{Name: "m", MaxBatch: 32, BodyLimit: body})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.frameLimit - frame.Overhead(32); got != want {
			t.Errorf("with bodies of %d bytes: %d bytes of bodies in a frame, want %d", body, got, want)
		}
	}
}

// TestRefusedForItsSize checks that a client that reads only after it has written everything
// gets the reason and can use the connection further.
func TestRefusedForItsSize(t *testing.T) {
	s := newTestServer(t, &doubler{maxBatch: 4, width: 1})
	s.frameLimit = 1 << 20
	listener, err := Listen(context.Background(), "unix://"+filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: s}}
	server.Start()
	defer server.Close()
	connection, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	answers := bufio.NewReader(connection)
	body := strings.Repeat("x", 3<<20)
	for range 2 {
		_, err := fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: i\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
			frame.Path, frame.ContentType, len(body), body)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := bodyOf(t, response); response.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(got, "limit of 1048576 bytes") {
			t.Errorf("got %d %s", response.StatusCode, got)
		}
	}
}

// reads counts what is read from a body.
type reads struct {
	io.Reader
	bytes int
}

func (r *reads) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.bytes += n
	return n, err
}

// TestNotEverythingIsDrained checks that a client gets its answer at once if it announces far
// too much, or sends Expect.
func TestNotEverythingIsDrained(t *testing.T) {
	s := newTestServer(t, &doubler{maxBatch: 4, width: 1})
	for name, c := range map[string]struct {
		length int64
		expect string
	}{"far too much": {length: 4001}, "asks first": {1001, "100-continue"}} {
		body := &reads{Reader: strings.NewReader(strings.Repeat(" ", int(c.length)))}
		r := httptest.NewRequest(http.MethodPost, "/", body)
		r.ContentLength = c.length
		if c.expect != "" {
			r.Header.Set("Expect", c.expect)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusRequestEntityTooLarge || body.bytes != 0 {
			t.Errorf("%s: got %d after %d bytes", name, w.Code, body.bytes)
		}
	}
}

// TestManyRowsAreRefused checks that one request cannot occupy the engine for many runs.
func TestManyRowsAreRefused(t *testing.T) {
	for maxBatch, rows := range map[int]int{1: 32, 32: 32, 64: 64} {
		d := &doubler{maxBatch: maxBatch, width: 1}
		s := newTestServer(t, d)
		elements := make([]float32, rows+1)
		responses, _ := s.HandleBatch(context.Background(), []frame.Request{binaryInvoke(elements...), binaryInvoke(elements[:rows]...)})
		if want := fmt.Sprintf("has %d rows; at most %d in one request", rows+1, rows); responses[0].Status != 400 || !strings.Contains(string(responses[0].Body), want) {
			t.Errorf("batches of %d: got %d %s, want %s", maxBatch, responses[0].Status, responses[0].Body, want)
		}
		if responses[1].Status != 200 || len(d.runs) != rows/maxBatch {
			t.Errorf("batches of %d: got %d %s after runs of %v rows", maxBatch, responses[1].Status, responses[1].Body, d.runs)
		}
	}
}

// fragile is a doubler that panics at poison and declares a wrong output type.
type fragile struct {
	doubler
	kind tensor.Type
}

func (f *fragile) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	outputs, err := f.doubler.Run(ctx, rows, inputs)
	if err != nil {
		panic(err)
	}
	outputs[0].Type = f.kind
	return outputs, nil
}

// TestAPanicIsOneMembersOwn checks that a panic gives only its own request 500, and is
// logged.
func TestAPanicIsOneMembersOwn(t *testing.T) {
	poisoned := invoke(fmt.Sprintf(`{"instances":[[%d]]}`, poison))
	wantBinary := binaryInvoke(1)
	wantBinary.Body = []byte(`{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}],"parameters":{"binary_data_output":true}}`)
	wantBinary.Header.Del("Inference-Header-Content-Length")
	noShape := invoke(`{"inputs":[{"name":"x","shape":[],"datatype":"FP32","data":[1]}]}`)
	for name, c := range map[string]struct {
		kind     tensor.Type
		noShape  bool
		requests []frame.Request
		logged   string
	}{
		// Elements without a size cannot be written as JSON, but copied.
		"encoding": {kind: "NONE", requests: []frame.Request{invoke(`{"instances":[[1]]}`), wantBinary}, logged: "sizeOf"},
		"decoding": {kind: tensor.FP32, noShape: true, requests: []frame.Request{noShape, {Method: http.MethodGet, Path: "/v2"}}, logged: "checkShape"},
		"running":  {kind: tensor.FP32, requests: []frame.Request{poisoned, wantBinary}, logged: "Run"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			engine := &fragile{doubler: doubler{t: t, maxBatch: 4, width: 1}, kind: c.kind}
			s, err := NewServer(engine, Options{Name: "m", MaxBatch: 4, Logger: zerolog.New(&log)})
			if err != nil {
				t.Fatal(err)
			}
			if c.noShape {
				s.model.Inputs[0].Shape = nil
			}
			responses, _ := s.HandleBatch(context.Background(), c.requests)
			if responses[0].Status != 500 || !strings.Contains(string(responses[0].Body), "the instance failed on this request") || responses[1].Status != 200 {
				t.Errorf("got %d %s and %d %s", responses[0].Status, responses[0].Body, responses[1].Status, responses[1].Body)
			}
			if !strings.Contains(log.String(), `"stack":"`) || !strings.Contains(log.String(), c.logged) {
				t.Errorf("it logged %s", log.String())
			}
			if len(s.turn) != 0 {
				t.Error("the engine's turn was not given back")
			}
		})
	}
}
