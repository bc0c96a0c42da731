package async

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// Bodies without a length count as they arrive. So many that arrive at once are all
// accepted, and what is held is given back.
func TestManyBodiesWithoutLength(t *testing.T) {
	var done atomic.Int32
	r := start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		if string(r.Body) != "begin, end" {
			t.Errorf("body %q", r.Body)
		}
		done.Add(1)
		return respond(200, ""), nil
	}, nil)
	const n = 40
	var accepting sync.WaitGroup
	var bodies []*io.PipeWriter
	for range n {
		body, client := io.Pipe()
		bodies = append(bodies, client)
		req := httptest.NewRequest(http.MethodPost, "/async-function/echo", body)
		accepting.Go(func() {
			w := httptest.NewRecorder()
			if err := r.Accept(w, req, "echo", "/"); err != nil || w.Code != 202 {
				t.Errorf("%d %v", w.Code, err)
				body.CloseWithError(err)
			}
		})
		_, _ = io.WriteString(client, "begin, ") // Accept reports an error.
	}
	if held := r.bodies.Held(); held < n || held > n<<20 {
		t.Errorf("%d bytes are held for %d bodies of which 7 bytes have come", held, n)
	}
	for _, client := range bodies {
		_, _ = io.WriteString(client, "end")
		client.Close()
	}
	accepting.Wait()
	if held := r.bodies.Held(); held != 0 {
		t.Errorf("%d bytes are held after all", held)
	}
	if t.Failed() {
		return
	}
	until(t, "all are executed", func() bool { return done.Load() == n })
}

// A body without a length is refused above the limit, and one that ends early is a bad
// request.
func TestBodiesWithoutLengthThatAreRefused(t *testing.T) {
	r := start(t, nil, func(o *Options) { o.MaxBody = 100 })
	broken, client := io.Pipe()
	client.CloseWithError(io.ErrUnexpectedEOF)
	for want, body := range map[string]io.Reader{
		"larger than 100 bytes": io.MultiReader(strings.NewReader(strings.Repeat("x", 101))),
		"ended early":           broken,
	} {
		err := r.Accept(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/async-function/echo", body), "echo", "/")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	if held := r.bodies.Held(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// The function gets the X-Call-Id that the answer 202 names, the client's own or a random one. A request that was
// stored without any gets its ID.
func TestCallIDOfAnAcceptedRequest(t *testing.T) {
	calls := make(chan string, 1)
	r := start(t, func(_ context.Context, _ string, f *frame.Request) (*frame.Response, error) {
		calls <- f.Header.Get("X-Call-Id")
		return respond(200, ""), nil
	}, nil)
	seen := map[string]bool{}
	for _, own := range []string{"", "", "my own"} {
		w := r.do("POST", "/async-function/echo", "x", "X-Call-Id", own)
		id, location := w.Header().Get("X-Call-Id"), w.Header().Get("Location")
		if got := <-calls; got != id || id == "" || own != "" && id != own || seen[id] || location == single+id {
			t.Errorf("the answer has X-Call-Id %q and Location %q, the function gets %q", id, location, got)
		}
		seen[id] = true
	}
	id, err := r.Enqueue(t.Context(), &types.QueueRequest{Function: "echo", Method: "POST"})
	if got := <-calls; err != nil || got != id || id == "" {
		t.Errorf("%v, ID %q, the function gets %q", err, id, got)
	}
}

// A request that its client may ask for waits until it is known whether there are IDs.
func TestRequestsWaitForTheKey(t *testing.T) {
	var looks atomic.Int32
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) {
		if looks.Load() < 3 {
			t.Error("it is executed before that is known")
		}
		return respond(200, ""), nil
	}, nil)
	r.executor.states.settled = func() bool { return looks.Add(1) >= 3 }
	r.reaches(t, r.send(t, "echo", "x"), Done)
}
