package forward

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/duplex"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

// The function gets the client's request unchanged, and the client the function's answer.
func TestARequestArrivesAsItWasSent(t *testing.T) {
	r := newRig(t, Options{})
	var got *http.Request
	var body []byte
	r.up(start(t, "a", func(w http.ResponseWriter, q *http.Request) {
		got, body = q, nil
		body, _ = io.ReadAll(q.Body)
		w.Header()["X-Many"] = []string{"1", "2"}
		w.Header().Set("X-Call-Id", "function's")
		w.Header().Set("Location", "https://example.com/")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.WriteHeader(http.StatusFound)
		io.WriteString(w, "answer")
	}))
	q, err := http.NewRequest("PATCH", r.url+"/a%2Fb//c?x=%zz&y=1;z=2", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	q.Header["X-Given"] = []string{"1", "2"}
	q.Header.Set("Connection", "X-Private")
	q.Header.Set("X-Private", "secret")
	q.Header.Set("Te", "trailers")
	q.Host = "functions.example.com"
	resp, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 302 || string(answer) != "answer" || resp.ContentLength != 6 || len(resp.Header["X-Many"]) != 2 || resp.Header.Get("Keep-Alive") != "" ||
		fmt.Sprint(resp.Header["X-Call-Id"]) != "[function's]" || resp.Header.Get("Location") != "https://example.com/" || resp.Header.Get("Content-Encoding") != "" {
		t.Errorf("answer %v %q", resp, answer)
	}
	if got.Method != "PATCH" || got.RequestURI != "/a%2Fb//c?x=%zz&y=1;z=2" || string(body) != "body" || got.ContentLength != 4 || got.Host != "functions.example.com" {
		t.Errorf("request %s %s, body %q", got.Method, got.RequestURI, body)
	}
	if len(got.Header["X-Given"]) != 2 || got.Header.Get("X-Private") != "" || got.Header.Get("X-Forwarded-Host") != "functions.example.com" ||
		!strings.HasPrefix(got.Header.Get("X-Forwarded-For"), "127.0.0.1:") || got.Header.Get("User-Agent") != "Go-http-client/1.1" || got.Header.Get("Accept-Encoding") != "" {
		t.Errorf("headers %v", got.Header)
	}
	// Headers of an earlier proxy stay as they are.
	q, _ = http.NewRequest("GET", r.url+"/", nil)
	q.Header.Set("X-Forwarded-For", "1.2.3.4")
	q.Header.Set("X-Forwarded-Host", "there")
	q.Header.Set("X-Forwarded-Proto", "https")
	resp, err = client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got.Header.Get("X-Forwarded-For") != "1.2.3.4" || got.Header.Get("X-Forwarded-Host") != "there" || got.Header.Get("X-Forwarded-Proto") != "https" {
		t.Errorf("headers %v", got.Header)
	}
}

// An answer without a status that can be written is the function's failure, and no panic.
func TestAnswerWithoutStatus(t *testing.T) {
	r := newRig(t, Options{})
	r.up(start(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 000 Nothing\r\nContent-Length: 0\r\n\r\n")
	}))
	r.answers(http.StatusBadGateway, "status 000")
	if _, err := r.invoke(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "status 000") {
		t.Errorf("error %v", err)
	}
}

// What the provider says of a request stays in its answer after interim ones.
func TestInterimAnswers(t *testing.T) {
	r := newRig(t, Options{})
	r.up(start(t, "a", func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		if q.Method == http.MethodDelete {
			panic(http.ErrAbortHandler)
		}
	}))
	for method, code := range map[string]int{http.MethodGet: 200, http.MethodDelete: 502} {
		q, _ := http.NewRequest(method, r.url+"/", nil)
		resp, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != code || resp.Header.Get("X-Call-Id") != "ours" || resp.Header.Get("Link") != "" {
			t.Errorf("%s: %s %v", method, resp.Status, resp.Header)
		}
	}
}

func TestInvoke(t *testing.T) {
	r := newRig(t, Options{})
	var got *http.Request
	r.up(start(t, "a", func(w http.ResponseWriter, q *http.Request) {
		got = q
		w.Header().Set("X-Mine", "yes")
		w.WriteHeader(http.StatusTeapot)
		echo(w, q)
	}))
	resp, err := r.Invoke(t.Context(), &frame.Request{Method: "PUT", Path: "/x%20y", Query: "a=%zz", Header: http.Header{"X-Given": {"1"}}, Body: []byte("body")})
	if err != nil || resp.Status != http.StatusTeapot || resp.Header.Get("X-Mine") != "yes" || string(resp.Body) != "body" {
		t.Errorf("%v, %v", resp, err)
	}
	if got.Method != "PUT" || got.RequestURI != "/x%20y?a=%zz" || got.ContentLength != 4 || got.Header.Get("X-Given") != "1" || got.UserAgent() != "" {
		t.Errorf("%+v", got)
	}
	if _, err := r.Invoke(t.Context(), &frame.Request{Method: "GET", Path: "/%zz"}); err == nil || err.(*web.Error).HTTPStatus() != 400 {
		t.Errorf("a path of nonsense: %v", err)
	}
	if resp, err := r.Invoke(t.Context(), &frame.Request{Method: "GET", Path: "/"}); err != nil || len(resp.Body) != 0 || got.ContentLength != 0 {
		t.Errorf("without a body: %v, %v", resp, err)
	}
}

// An answer in memory has a maximum size.
func TestAnswerTooLargeToHold(t *testing.T) {
	r := newRig(t, Options{})
	r.up(start(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 1<<20)
		for range maxAnswer>>20 + 1 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	if _, err := r.invoke(t.Context(), "x"); !errors.Is(err, ErrAnswerTooLarge) {
		t.Errorf("error %v", err)
	}
	r.settled()
}

// The head of an answer has a maximum size and number of fields, because its memory counts for nobody.
func TestAnswerWithALargeHead(t *testing.T) {
	r := newRig(t, Options{})
	r.up(start(t, "a", func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		size, fields := 0, 0
		fmt.Sscan(string(body), &size, &fields)
		w.Header().Set("X-Long", strings.Repeat("x", size))
		for i := range fields {
			w.Header().Set(fmt.Sprint("X-", i), "")
		}
	}))
	for sent, code := range map[string]int{
		"1000 250": 200, "60000 0": 200,
		fmt.Sprint(duplex.MaxAnswerHead+8<<10, " 0"): 502, fmt.Sprint("0 ", duplex.MaxFields+watchdogFields): 502,
	} {
		if got, text, _ := r.post(sent); got != code {
			t.Errorf("%s: %d %q, want %d", sent, got, text, code)
		}
		if _, err := r.invoke(t.Context(), sent); (err == nil) != (code == 200) {
			t.Errorf("%s: %v", sent, err)
		}
	}
	r.settled()
}

// Both bodies stream at once: each part is answered before the next is sent.
func TestStreaming(t *testing.T) {
	r := newRig(t, Options{})
	r.up(start(t, "a", func(w http.ResponseWriter, q *http.Request) {
		control := http.NewResponseController(w)
		control.EnableFullDuplex()
		lines := bufio.NewScanner(q.Body)
		for lines.Scan() {
			fmt.Fprintln(w, "got", lines.Text())
			control.Flush()
		}
		w.Header().Set(http.TrailerPrefix+"X-End", "yes")
	}))
	reader, writer := io.Pipe()
	q, err := http.NewRequest("POST", r.url+"/", reader)
	if err != nil {
		t.Fatal(err)
	}
	go fmt.Fprintln(writer, 0)
	resp, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answers := bufio.NewReader(resp.Body)
	for i := range 5 {
		if line, err := answers.ReadString('\n'); line != fmt.Sprintf("got %d\n", i) {
			t.Fatalf("answer %d is %q, %v", i, line, err)
		}
		if i < 4 {
			fmt.Fprintln(writer, i+1)
		}
	}
	writer.Close()
	if rest, err := io.ReadAll(answers); err != nil || len(rest) != 0 || resp.Trailer.Get("X-End") != "yes" {
		t.Errorf("at the end: %q, %v, trailer %v", rest, err, resp.Trailer)
	}
}

// An answer before the end of the request does not hang.
func TestEarlyAnswer(t *testing.T) {
	r := newRig(t, Options{})
	r.up(start(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		http.Error(w, "too much", http.StatusRequestEntityTooLarge)
	}))
	reader, writer := io.Pipe()
	defer writer.Close()
	q, _ := http.NewRequest("POST", r.url+"/", reader)
	go writer.Write(make([]byte, 100<<10))
	resp, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusRequestEntityTooLarge || string(text) != "too much\n" {
		t.Errorf("%d %q", resp.StatusCode, text)
	}
	r.settled()
}

func TestLargeBodies(t *testing.T) {
	r := newRig(t, Options{})
	r.up(start(t, "a", func(w http.ResponseWriter, q *http.Request) { io.Copy(w, q.Body) }))
	large := strings.Repeat("0123456789abcdef", 1<<18)
	if code, text, _ := r.post(large); code != 200 || text != large {
		t.Errorf("%d, %d bytes", code, len(text))
	}
	if text, err := r.invoke(t.Context(), large); err != nil || text != large {
		t.Errorf("%v, %d bytes", err, len(text))
	}
}

func TestProtocolSwitch(t *testing.T) {
	r := newRig(t, Options{})
	in := start(t, "a", func(w http.ResponseWriter, q *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+q.Header.Get("Upgrade")+"\r\n\r\n")
		io.Copy(conn, buffered)
	})
	r.up(in)
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(r.url, "http://"), "/f"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /f/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("%v, %v", resp, err)
	}
	for _, text := range []string{"one\n", "two\n"} {
		io.WriteString(conn, text)
		if got, err := reader.ReadString('\n'); got != text {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if s := r.Stats(); s.InFlight != 1 {
		t.Errorf("%d in flight", s.InFlight)
	}
	conn.Close()
	r.settled()
}

// busy answers like a watchdog with its maximum number of requests.
func busy(w http.ResponseWriter, q *http.Request) {
	io.CopyN(io.Discard, q.Body, 10)
	w.Header().Set("X-OpenFaaS-Internal", "watchdog")
	http.Error(w, "enough", http.StatusTooManyRequests)
}

// If one instance is busy, another gets the request, with the same body.
func TestABusyInstance(t *testing.T) {
	r := newRig(t, Options{})
	full := start(t, "full", busy)
	r.up(full)
	r.answers(429, "enough")
	r.up(start(t, "b", echo))
	body := strings.Repeat("x", duplex.MaxReplay/2)
	for range 4 {
		if code, text, _ := r.post(body); code != 200 || text != body {
			t.Errorf("%d, %d bytes", code, len(text))
		}
		if text, err := r.invoke(t.Context(), body); err != nil || text != body {
			t.Errorf("%v", err)
		}
	}
	if full.seen.Load() < 2 {
		t.Error("the full one was never asked")
	}
	// A 429 of the function itself is its answer.
	own := newRig(t, Options{})
	own.up(start(t, "own", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "mine", http.StatusTooManyRequests) }))
	own.up(start(t, "own2", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "mine", http.StatusTooManyRequests) }))
	own.answers(429, "mine")
	if s := own.Stats(); s.Arrivals != 1 {
		t.Errorf("%+v", s)
	}
	// All are busy, and one of them exits meanwhile.
	gone := start(t, "gone", busy)
	gone.kill()
	none := newRig(t, Options{})
	none.up(start(t, "full", busy))
	none.up(gone)
	for range 3 {
		none.answers(429, "")
	}
	none.settled()
}

// A body that was streamed cannot be sent again.
func TestABusyInstanceAndALargeBody(t *testing.T) {
	r := newRig(t, Options{})
	for _, id := range []string{"a", "b"} {
		r.up(start(t, id, func(w http.ResponseWriter, q *http.Request) {
			io.CopyN(io.Discard, q.Body, 2*duplex.MaxReplay)
			busy(w, q)
		}))
	}
	if code, text, _ := r.post(strings.Repeat("x", 3*duplex.MaxReplay)); code != 429 || text != "enough\n" {
		t.Errorf("%d %q", code, text)
	}
	r.settled()
}

// If an instance dies with a request, the request is not sent again, even if another
// instance is ready.
func TestInstanceThatDies(t *testing.T) {
	r := newRig(t, Options{})
	var executed atomic.Int64
	die := func(http.ResponseWriter, *http.Request) {
		executed.Add(1)
		panic(http.ErrAbortHandler)
	}
	r.up(start(t, "a", die))
	r.up(start(t, "b", die))
	code, text, header := r.post("x")
	if code != 502 || !strings.Contains(text, "broke the connection off") || header.Get("X-Openfaas-Internal") != "provider" {
		t.Errorf("%d %q", code, text)
	}
	if _, err := r.invoke(t.Context(), "x"); !errors.Is(err, ErrInstanceLost) {
		t.Errorf("error %v", err)
	}
	if executed.Load() != 2 || r.record.drops[metrics.InstanceLost] != 2 {
		t.Errorf("%d executions, drops %v", executed.Load(), r.record.drops)
	}
	r.settled()
}

// If it dies in the middle of its answer, the client sees that the answer is incomplete.
func TestInstanceThatDiesWhileItAnswers(t *testing.T) {
	r := newRig(t, Options{})
	r.up(start(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "some")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	resp, err := client.Post(r.url+"/", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the answer %q seems to be whole", text)
	}
	if _, err := r.invoke(t.Context(), "x"); !errors.Is(err, ErrInstanceLost) {
		t.Errorf("error %v", err)
	}
	r.settled()
	if n := r.record.drops[metrics.InstanceLost]; n != 2 {
		t.Errorf("%d instances are counted as lost", n)
	}
}

// A client that hangs up in the middle of the answer does no harm.
func TestAClientThatHangsUpWhileItIsAnswered(t *testing.T) {
	r := newRig(t, Options{})
	in := start(t, "a", func(w http.ResponseWriter, q *http.Request) {
		chunk := make([]byte, 1<<20)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	r.up(in)
	codes := make(chan int, 1)
	r.codes = codes
	resp, err := client.Post(r.url+"/", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	io.CopyN(io.Discard, resp.Body, 1<<20)
	resp.Body.Close()
	if code := <-codes; code != hungUp {
		t.Errorf("status %d", code)
	}
	r.settled()
}

// A client that hangs up ends its request on the instance, too.
func TestAClientThatHangsUp(t *testing.T) {
	r := newRig(t, Options{})
	ended := make(chan struct{})
	in := start(t, "a", func(w http.ResponseWriter, q *http.Request) {
		io.Copy(io.Discard, q.Body)
		<-q.Context().Done()
		close(ended)
	})
	r.up(in)
	ctx, hangUp := context.WithCancel(t.Context())
	q, _ := http.NewRequestWithContext(ctx, "POST", r.url+"/", strings.NewReader("x"))
	go func() {
		waitFor(t, func() bool { return in.seen.Load() == 1 })
		hangUp()
	}()
	if _, err := client.Do(q); err == nil {
		t.Error("answered")
	}
	<-ended
	r.settled()
}

// A body that cannot be read is the client's fault.
func TestABrokenBody(t *testing.T) {
	r := newRig(t, Options{})
	r.up(start(t, "a", echo))
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(r.url, "http://"), "/f"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST /f/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != 400 || !bytes.Contains(text, []byte("the request body could not be read")) {
		t.Errorf("%d %q", resp.StatusCode, text)
	}
}

// A kept connection that the watchdog has closed meanwhile loses no request.
func TestConnectionsThatAreClosedMeanwhile(t *testing.T) {
	r := newRig(t, Options{})
	r.up(startServer(t, "a", &http.Server{IdleTimeout: 20 * time.Millisecond}, echo))
	for range 10 {
		r.answers(200, "x")
		time.Sleep(100 * time.Millisecond)
	}
	if r.lost.Load() != 0 {
		t.Error("the instance counts as lost")
	}
}

// The buffer under a request's body is not read after Invoke has returned.
func TestTheBodyIsLeftAlone(t *testing.T) {
	r := newRig(t, Options{})
	r.up(start(t, "a", func(w http.ResponseWriter, q *http.Request) {
		io.CopyN(io.Discard, q.Body, 1)
		io.WriteString(w, "early")
	}))
	body := make([]byte, 16<<20)
	for i := range 20 {
		if resp, err := r.Invoke(t.Context(), &frame.Request{Method: "POST", Path: "/", Body: body}); err == nil && string(resp.Body) != "early" {
			t.Errorf("%v", resp)
		}
		clear(body) // The race detector watches.
		body[0] = byte(i)
	}
}
