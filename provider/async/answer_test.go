package async

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/async/retry"
	"github.com/faas-infer/faas-infer/provider/web"
)

// streams answers each request with as many bytes as its body says, a piece at a time.
func streams(sizes map[string]int64, took func(error)) invokerFunc {
	return func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		_, err := io.CopyN(r.Sink, zeros{}, sizes[string(r.Body)])
		took(err)
		return &frame.Response{Status: 200, Header: http.Header{}}, err
	}
}

// zeros is an endless answer.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func sumOf(n int64) (sum [sha256.Size]byte) {
	h := sha256.New()
	_, _ = io.CopyN(h, zeros{}, n)
	copy(sum[:], h.Sum(nil))
	return sum
}

// Nothing of an answer is kept that nobody is called back with, whatever its size.
func TestAnswerWithoutCallbackIsDiscarded(t *testing.T) {
	done := make(chan error, 1)
	r := start(t, streams(map[string]int64{"endless": 2 * maxKept}, func(err error) { done <- err }), nil)
	if w := r.do("POST", "/async-function/echo", "endless"); w.Code != 202 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// An answer without an end is not read for ever where nobody is called back with it: its request is
// given up, and not executed again.
func TestEndlessAnswerWithoutCallback(t *testing.T) {
	tried := counts{}
	r := start(t, func(_ context.Context, _ string, f *frame.Request) (*frame.Response, error) {
		tried.add("endless")
		large := make([]byte, 32<<20)
		for {
			if _, err := f.Sink.Write(large); err != nil {
				return nil, err
			}
		}
	}, nil)
	if w := r.do("POST", "/async-function/echo", "x"); w.Code != 202 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	letter := r.letters(t, 1)[0]
	if letter.Reason != retry.Failed || letter.Detail != errEndlessAnswer.Text || tried.add("endless") != 2 {
		t.Errorf("%+v, executed %d times", letter, tried.add("endless")-2)
	}
}

// An answer reaches its callback whole, from memory or from a file, and what it held is given
// back. One that is too large is told to the callback, and its request is not executed again.
func TestAnswerUntilItsCallback(t *testing.T) {
	const mib = 1 << 20
	sizes := map[string]int64{"none": 0, "small": 1000, "large": 3*mib + 1, "larger": maxKept, "toolarge": maxKept + 1}
	type call struct {
		size   int64
		sum    [sha256.Size]byte
		status string
	}
	var mu sync.Mutex
	got, failed, tried := map[string]call{}, map[string]bool{}, counts{}
	to := recorder(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		first := !failed[r.URL.Path]
		failed[r.URL.Path] = true
		mu.Unlock()
		if first { // The second try gets the whole answer, too.
			http.Error(w, "later", 503)
			return
		}
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		got[r.URL.Path[1:]] = call{n, [sha256.Size]byte(h.Sum(nil)), r.Header.Get("X-Function-Status")}
	})
	stream := streams(sizes, func(error) {})
	r := start(t, func(ctx context.Context, name string, f *frame.Request) (*frame.Response, error) {
		tried.add(string(f.Body))
		return stream(ctx, name, f)
	}, nil)
	for name := range sizes {
		if w := r.do("POST", "/async-function/echo", name, "X-Callback-Url", to+"/"+name); w.Code != 202 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	until(t, "all callbacks", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) == len(sizes)
	})
	for name, size := range sizes {
		want := call{size, sumOf(size), "200"}
		if size > maxKept {
			text := errAnswerTooLarge.Text + "\n"
			want = call{int64(len(text)), sha256.Sum256([]byte(text)), "507"}
		}
		if got[name] != want {
			t.Errorf("%s: %d bytes, status %s, want %d, %s", name, got[name].size, got[name].status, want.size, want.status)
		}
		if n := tried.by[name]; n != 1 {
			t.Errorf("%s was executed %d times", name, n)
		}
	}
	until(t, "nothing is held", func() bool {
		return r.executor.spool.held.Held() == 0 && len(r.stats()) == 0
	})
	if left, _ := filepath.Glob(filepath.Join(r.options.Dir, "answer-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Answers beyond the budget are in files, and beyond their bound the request is put off.
func TestAnswersAreBound(t *testing.T) {
	const n, size = 24, 512 << 10
	var held, files []int64
	release := make(chan struct{})
	var mu sync.Mutex
	var all sync.WaitGroup
	all.Add(n)
	r := start(t, func(_ context.Context, _ string, f *frame.Request) (*frame.Response, error) {
		if _, err := io.CopyN(f.Sink, zeros{}, size); err != nil {
			t.Error(err)
		}
		a := f.Sink.(*answer)
		mu.Lock()
		held, files = append(held, int64(cap(a.memory))), append(files, a.charge.Held())
		mu.Unlock()
		all.Done()
		<-release
		return &frame.Response{Status: 200, Header: http.Header{}}, nil
	}, func(o *Options) { o.MaxHeld = 1 }) // The pool raises it to twice the largest message.
	to := recorder(t, func(http.ResponseWriter, *http.Request) {})
	for range n {
		if w := r.do("POST", "/async-function/echo", "x", "X-Callback-Url", to); w.Code != 202 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	all.Wait()
	memory, disk := int64(0), int64(0)
	for i := range held {
		memory, disk = memory+held[i], disk+files[i]
	}
	if most := int64(2*(queue.MaxPayload+4<<10)) / 4; memory > most || memory == 0 {
		t.Errorf("one function's answers hold %d bytes of memory, a quarter of the budget is %d", memory, most)
	}
	if got := r.executor.spool.held.Held(); got != disk {
		t.Errorf("files hold %d, counted are %d", disk, got)
	}
	close(release)
	// No room in any file.
	a := &answer{spool: &spool{t.TempDir(), web.NewBudget(web.BudgetOptions{Limit: spoolStep, Full: errNoRoom, FunctionShare: errNoRoom})}, m: nil, name: "f"}
	_, err := io.Copy(a, bytes.NewReader(make([]byte, spoolStep+1)))
	if !errors.Is(err, errNoRoom) || errNoRoom.HTTPStatus() != 503 {
		t.Errorf("beyond the bound: %v", err)
	}
	a.end()
	if got := a.spool.held.Held(); got != 0 {
		t.Errorf("%d bytes are held at the end", got)
	}
}

// A file says which executions have ended with the provider, and which have only ended.
func TestExecutingIsRemembered(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1, 0)
	message := func(n uint64) *queue.Message { return &queue.Message{Sequence: n, Stored: now} }
	open := func() *executing {
		t.Helper()
		e, err := openExecuting(dir, now)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	want := func(e *executing, deaths ...int) {
		t.Helper()
		for n, d := range deaths {
			if got := e.deaths(message(uint64(n + 1))); got != d {
				t.Errorf("request %d: %d deaths, want %d", n+1, got, d)
			}
		}
	}
	do := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	e := open()
	do(e.begin(message(1)), e.begin(message(2)), e.end(message(2)), e.forget(message(2)), e.begin(message(3)))
	do(e.Close()) // As if it were killed.
	e = open()
	want(e, 1, 0, 1)
	do(e.begin(message(1)), e.begin(message(3)), e.end(message(3)))
	do(e.Close())
	e = open()
	want(e, 2, 0, 1)
	do(e.forget(message(1)), e.forget(message(3)))
	do(e.Close())
	e = open()
	want(e, 0, 0, 0)
	for n := range 1000 { // It does not grow with the number of requests.
		do(e.begin(message(uint64(n+1))), e.end(message(uint64(n+1))))
	}
	if info, err := os.Stat(filepath.Join(dir, "executing")); err != nil || info.Size() > slotSize {
		t.Errorf("%v, %v", info, err)
	}
	do(e.begin(message(1)), e.Close())
	later, err := openExecuting(dir, now.Add(2*forgotten))
	do(err)
	want(later, 0)
	do(later.Close())
}

// A request that ends the provider is executed three times. Then it is a dead letter, and the other
// requests are executed.
func TestRequestThatEndsTheProvider(t *testing.T) {
	dir := t.TempDir()
	store, log, address := filepath.Join(dir, "nats"), filepath.Join(dir, "executed"), freeAddress(t)
	c := spawn(t, "provider", "CHILD_DIR="+store, "CHILD_LISTEN="+address, "CHILD_LOG="+log)
	listens(t, address)
	g := gateway(t, "nats://"+address, 5*time.Second) // A busy machine takes a while, and the last one waits for so long.
	for _, body := range []string{"1", "2", fatal} {
		// The provider may end before it acknowledges the last one.
		if err := g.Publish("faas-request", request("echo", body)); err != nil && body != fatal {
			t.Fatal(err)
		}
	}
	for range retry.MaxDeaths {
		<-c.done
		c.start()
	}
	listens(t, address)
	until(t, "another request is executed", func() bool {
		return g.Publish("faas-request", request("echo", "3")) == nil
	})
	until(t, "the others are executed", func() bool {
		done := lines(t, log)
		return done["1"] > 0 && done["2"] > 0 && done["3"] > 0
	})
	c.kill()
	<-c.done
	if n := lines(t, log)[fatal]; n != retry.MaxDeaths {
		t.Errorf("it was executed %d times, want %d", n, retry.MaxDeaths)
	}
	r := start(t, func(_ context.Context, _ string, _ *frame.Request) (*frame.Response, error) {
		return respond(200, ""), nil
	}, func(o *Options) { o.Dir, o.Listen = store, "127.0.0.1:0" })
	if all := r.letters(t, 1); all[0].Reason != "crashed" || all[0].CallID != "call-"+fatal {
		t.Errorf("%+v", all)
	}
}
