package forkjoin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/mutual/mutualtest"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/papers/gillis/forkjoin"
)

// member makes the worker of round 1 of a plan with three members.
func member(t *testing.T) (*forkjoin.Workers, *forkjoin.Member) { return memberOver(t, nil) }

func memberOver(t *testing.T, dial mutual.Dial) (*forkjoin.Workers, *forkjoin.Member) {
	t.Helper()
	p := &cut.Plan{Model: "m", Members: 3, Rounds: []cut.Round{{End: 1, Cut: "whole", On: []int{1}}}}
	w := forkjoin.NewWorkers(p, 1, dial)
	t.Cleanup(func() { w.Close() })
	var out cut.Tensor
	if err := json.Unmarshal([]byte(`{"name":"y","as":"y","type":"UINT8","shape":[97,1],"further":[98,1]}`), &out); err != nil {
		t.Fatal(err)
	}
	return w, w.Member(1, 1, []cut.Tensor{out})
}

// put tells where the workers are and returns the status and the answer.
func put(w *forkjoin.Workers, body string) (int, string) {
	r := httptest.NewRequest(http.MethodPut, forkjoin.WorkersPath, strings.NewReader(body))
	out := httptest.NewRecorder()
	w.ServeHTTP(out, r)
	return out.Code, out.Body.String()
}

// worker is a server at a Unix socket.
type fake struct {
	*http.Server
	path  string
	calls atomic.Int64
	// breaksAt is the number of the call at which it breaks off, 0 for none.
	breaksAt atomic.Int64
}

// serve starts a worker that answers, or does what first says at its first call.
func serve(t *testing.T, path string, first http.HandlerFunc) *fake {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	f := serveAt(t, l, first)
	f.path = path
	return f
}

// serveAt is serve at a listener. With TLS, it answers instances only.
func serveAt(t *testing.T, l net.Listener, first http.HandlerFunc) *fake {
	t.Helper()
	f := &fake{}
	rules := mutual.Rules{Callers: func(string) []string { return []string{mutual.InstanceName} }}
	f.Server = &http.Server{ConnContext: mutual.WithConn, Handler: mutual.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := f.calls.Add(1)
		if n == f.breaksAt.Load() {
			_, _ = io.Copy(io.Discard, r.Body)
			abort(w, r)
		}
		if n == 1 && first != nil {
			first(w, r)
			return
		}
		fmt.Fprint(w, `{"outputs":[{"name":"y","datatype":"UINT8","shape":[1,1],"data":[7]}]}`)
	}), rules)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = f.Serve(l) // It ends with Close.
	}()
	t.Cleanup(func() {
		f.Close()
		<-ended
	})
	return f
}

func at(w *forkjoin.Workers, path string) string {
	var plan struct {
		Plan string `json:"plan"`
	}
	out := httptest.NewRecorder()
	w.ServeHTTP(out, httptest.NewRequest(http.MethodGet, forkjoin.WorkersPath, nil))
	if err := json.Unmarshal(out.Body.Bytes(), &plan); err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"plan":%q,"workers":[{"member":1,"network":"unix","address":%q}]}`, plan.Plan, path)
}

// run computes the part and checks the answer.
func run(ctx context.Context, m *forkjoin.Member) error {
	out, err := m.Run(ctx, 1, []tensor.Tensor{{Name: "x", Type: tensor.Uint8, Shape: []int64{1, 1}, Data: []byte{1}}})
	if err == nil && (len(out) != 1 || string(out[0].Data) != "\x07") {
		err = fmt.Errorf("it answered %+v", out)
	}
	return err
}

func abort(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// A batch waits for a worker's address, and gets its answer once it is told.
func TestABatchWaitsForTheWorkers(t *testing.T) {
	w, m := member(t)
	f := serve(t, filepath.Join(t.TempDir(), "s"), nil)
	done := make(chan error)
	go func() { done <- run(t.Context(), m) }()
	if code, text := put(w, at(w, f.path)); code != http.StatusNoContent || text != "" {
		t.Fatalf("%d %s", code, text)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	out := httptest.NewRecorder()
	w.ServeHTTP(out, httptest.NewRequest(http.MethodGet, forkjoin.WorkersPath, nil))
	if want := at(w, f.path); strings.TrimSpace(out.Body.String()) != want {
		t.Errorf("GET answers %s, want %s", out.Body, want)
	}
}

// A master with a certificate reaches its workers over TLS.
func TestAWorkerWithTLS(t *testing.T) {
	authority, dir := mutualtest.NewAuthority(t, time.Now().Add(time.Hour)), t.TempDir()
	authority.Issue(t, dir, mutualtest.Certificate{Names: []string{mutual.InstanceName}})
	identity, err := mutual.Open(dir, mutual.InstanceName, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := serveAt(t, identity.Listen(l), nil)
	w, m := memberOver(t, identity.Dial)
	place := strings.Replace(at(w, l.Addr().String()), `"unix"`, `"tls"`, 1)
	if code, text := put(w, place); code != http.StatusNoContent {
		t.Fatalf("%d %s", code, text)
	}
	if err := run(t.Context(), m); err != nil || f.calls.Load() != 1 {
		t.Errorf("%d calls, %v", f.calls.Load(), err)
	}
	// Without TLS the worker has nothing for it.
	put(w, strings.Replace(place, `"tls"`, `"tcp"`, 1))
	if err := run(t.Context(), m); err == nil {
		t.Error("a worker answers without TLS")
	}
}

// The part of a worker that breaks off goes to its new address.
func TestAWorkerIsReplaced(t *testing.T) {
	w, m := member(t)
	dir := t.TempDir()
	broke := make(chan struct{})
	var old *fake
	old = serve(t, filepath.Join(dir, "old"), func(http.ResponseWriter, *http.Request) {
		old.Close() // It listens no more, and its connections are cut.
		close(broke)
	})
	put(w, at(w, old.path))
	done := make(chan error)
	go func() { done <- run(t.Context(), m) }()
	<-broke
	next := serve(t, filepath.Join(dir, "new"), nil)
	put(w, at(w, next.path))
	if err := <-done; err != nil || next.calls.Load() != 1 {
		t.Errorf("%v after %d calls", err, next.calls.Load())
	}
}

// A worker that breaks off but still listens gets the part once more after a pause.
func TestAWorkerIsTriedAgain(t *testing.T) {
	w, m := member(t)
	f := serve(t, filepath.Join(t.TempDir(), "s"), abort)
	put(w, at(w, f.path))
	if err := run(t.Context(), m); err != nil || f.calls.Load() != 2 {
		t.Errorf("%v after %d calls", err, f.calls.Load())
	}
}

// If nothing may run twice, a part that a worker may have begun is not sent again, whether the connection
// is new or was used before. One that had no connection is.
func TestAPartThatMustNotRunTwice(t *testing.T) {
	ctx := frame.WithOnce(t.Context())
	for name, earlier := range map[string]int64{"new connection": 0, "used connection": 1} {
		t.Run(name, func(t *testing.T) {
			w, m := member(t)
			f := serve(t, filepath.Join(t.TempDir(), "s"), nil)
			f.breaksAt.Store(earlier + 1)
			put(w, at(w, f.path))
			for range earlier {
				if err := run(ctx, m); err != nil {
					t.Fatal(err)
				}
			}
			err := run(ctx, m)
			var known interface{ HTTPStatus() int }
			if !errors.As(err, &known) || known.HTTPStatus() != http.StatusBadGateway || f.calls.Load() != earlier+1 {
				t.Errorf("%v after %d calls", err, f.calls.Load())
			}
			var lost interface{ Lost() bool }
			if !errors.As(err, &lost) || !lost.Lost() {
				t.Errorf("the batch may run again member by member: %v", err)
			}
		})
	}
	t.Run("unsent", func(t *testing.T) {
		w, m := member(t)
		dir := t.TempDir()
		put(w, at(w, filepath.Join(dir, "gone")))
		done := make(chan error)
		go func() { done <- run(ctx, m) }()
		next := serve(t, filepath.Join(dir, "new"), nil)
		put(w, at(w, next.path))
		if err := <-done; err != nil || next.calls.Load() != 1 {
			t.Errorf("%v after %d calls", err, next.calls.Load())
		}
	})
}

// A second failure is the batch's, which must not run again.
func TestAWorkerBreaksOffTwice(t *testing.T) {
	w, m := member(t)
	dir := t.TempDir()
	second := serve(t, filepath.Join(dir, "2"), abort)
	first := serve(t, filepath.Join(dir, "1"), func(out http.ResponseWriter, r *http.Request) {
		put(w, at(w, second.path))
		abort(out, r)
	})
	put(w, at(w, first.path))
	err := run(t.Context(), m)
	var lost interface{ Lost() bool }
	if !errors.As(err, &lost) || !lost.Lost() || !strings.Contains(err.Error(), "broke off twice") {
		t.Errorf("%v", err)
	}
}

// A worker that refuses is not asked again; its text is the error.
func TestAWorkerRefuses(t *testing.T) {
	w, m := member(t)
	f := serve(t, filepath.Join(t.TempDir(), "s"), func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"error":"the memory is full"}`)
	})
	put(w, at(w, f.path))
	if err := run(t.Context(), m); err == nil || !strings.Contains(err.Error(), "worker 1 at "+f.path) || !strings.Contains(err.Error(), "the memory is full") || f.calls.Load() != 1 {
		t.Errorf("%v after %d calls", err, f.calls.Load())
	}
}

// Whatever a call waits for, it ends with its context, and nothing of it is left.
func TestCallsEndWithTheirContext(t *testing.T) {
	for name, first := range map[string]func(f *fake, r *http.Request){
		"no answer":    func(_ *fake, r *http.Request) { <-r.Context().Done() },
		"no successor": func(f *fake, _ *http.Request) { f.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			w, m := member(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var f *fake
			f = serve(t, filepath.Join(t.TempDir(), "s"), func(_ http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body) // Only then the server sees that the client hangs up.
				time.AfterFunc(10*time.Millisecond, cancel)
				first(f, r)
			})
			put(w, at(w, f.path))
			if err := run(ctx, m); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("no address", func(t *testing.T) {
		_, m := member(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := run(ctx, m); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "worker 1 has no address yet") {
			t.Errorf("%v", err)
		}
	})
}

func TestAddressesThatAreRefused(t *testing.T) {
	w, _ := member(t)
	good := at(w, "/s")
	for wrong, c := range map[string]struct {
		from, to string
		status   int
	}{
		"not JSON":               {`{`, `[`, 400},
		"plan is missing":        {`"plan"`, `"plans"`, 400},
		"of the plan \"0":        {`"plan":"`, `"plan":"0`, 404},
		"member is 0":            {`:1,`, `:0,`, 400},
		"member is 3":            {`:1,`, `:3,`, 400},
		"given twice":            {`[{`, `[{"member":1,"network":"unix","address":"/x"},{`, 400},
		"network is \"udp\"":     {`unix`, `udp`, 400},
		"absolute path":          {`/s`, `s`, 400},
		"of at most 107":         {`/s`, `/` + strings.Repeat("s", 107), 400},
		"give host:port":         {`"unix","address":"/s"`, `"tcp","address":"10.0.0.1"`, 400},
		"\"h:65536\": give":      {`"unix","address":"/s"`, `"tcp","address":"h:65536"`, 400},
		"request body too large": {`{`, strings.Repeat(" ", 256<<10) + `{`, 413},
	} {
		if code, text := put(w, strings.Replace(good, c.from, c.to, 1)); code != c.status || !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), wrong) {
			t.Errorf("%s: %d %s", wrong, code, text)
		}
	}
	out := httptest.NewRecorder()
	w.ServeHTTP(out, httptest.NewRequest(http.MethodPost, forkjoin.WorkersPath, nil))
	if out.Code != http.StatusMethodNotAllowed || out.Header().Get("Allow") != "GET, PUT" {
		t.Errorf("POST: %d", out.Code)
	}
	if code, _ := put(w, strings.Replace(good, `"unix","address":"/s"`, `"tcp","address":"[::1]:80"`, 1)); code != http.StatusNoContent {
		t.Errorf("an address of IPv6: %d", code)
	}
}

func FuzzWorkers(f *testing.F) {
	f.Add(`{"plan":"0123456789abcdef","workers":[{"member":1,"network":"unix","address":"/s"}]}`)
	f.Add(`{"plan":"0123456789abcdef","workers":[{"member":2,"network":"tcp","address":"[::1]:80"}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		w := forkjoin.NewWorkers(&cut.Plan{Model: "m", Members: 3}, 1, nil)
		defer w.Close()
		switch code, text := put(w, body); code {
		case http.StatusNoContent, http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge:
		default:
			t.Errorf("%d %s", code, text)
		}
	})
}

// A worker that broke off is not asked at its old address again because another worker got a new
// one.
func TestAnotherWorkerIsReplaced(t *testing.T) {
	w, m := member(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var old *fake
	old = serve(t, filepath.Join(t.TempDir(), "s"), func(http.ResponseWriter, *http.Request) {
		other := `,{"member":2,"network":"unix","address":"/other"}]}`
		if code, text := put(w, strings.TrimSuffix(at(w, old.path), "]}")+other); code != http.StatusNoContent {
			t.Errorf("%d %s", code, text)
		}
		// It has that long to ask again, however long it took to come here.
		time.AfterFunc(300*time.Millisecond, cancel)
		old.Close()
	})
	put(w, at(w, old.path))
	if err := run(ctx, m); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "was not replaced in time") {
		t.Errorf("it did not wait: %v", err)
	}
}
