package watchdog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestHTTPForwards(t *testing.T) {
	i := begin(t, program(t))
	response, body := i.do("POST", "/echo", strings.NewReader("hello"))
	if response.StatusCode != 200 || body != "hello" || response.Header.Get("Got-Length") != "5" || response.Header.Get("X-Duration-Seconds") == "" {
		t.Errorf("%s %v %q", response.Status, response.Header, body)
	}
	_, body = i.do("DELETE", "/about?a=%20b", nil, header("X-Forwarded-For", "10.0.0.1"), header("X-Call-Id", "17"),
		func(r *http.Request) { r.Host = "function.example" })
	if want := "DELETE function.example /about?a=%20b 10.0.0.1 17"; body != want {
		t.Errorf("it got %q, want %q", body, want)
	}
	if response, _ := i.do("GET", "/teapot", nil); response.StatusCode != http.StatusTeapot {
		t.Error(response.Status)
	}
	if response, body := i.do("GET", "/break", nil); response.StatusCode != http.StatusBadGateway || !strings.Contains(body, "did not answer") {
		t.Error(response.Status, body)
	}
	for path, why := range map[string]string{"/long": "headers exceeded", "/fields": "header fields", "/zero": "status 000"} {
		if response, body := i.do("GET", path, nil); response.StatusCode != http.StatusBadGateway || !strings.Contains(body, why) {
			t.Errorf("%s: %s %.200q", path, response.Status, body)
		}
	}
	i.log.Await(t, " stdout: on standard output\n", 1)
	i.log.Await(t, " stderr: on standard error\n", 1)
}

func TestHTTPTimeLimit(t *testing.T) {
	env := program(t)
	env["exec_timeout"] = "100ms"
	i := begin(t, env)
	if response, body := i.do("GET", "/slow", nil); response.StatusCode != http.StatusGatewayTimeout || !strings.Contains(body, "exec_timeout") {
		t.Error(response.Status, body)
	}
}

func TestHTTPBuffersBodies(t *testing.T) {
	env := program(t)
	env["http_buffer_req_body"] = "true"
	i := begin(t, env)
	unknown := io.MultiReader(strings.NewReader("some"), strings.NewReader("thing"))
	if response, body := i.do("POST", "/echo", unknown); body != "something" || response.Header.Get("Got-Length") != "9" {
		t.Errorf("%v %q", response.Header, body)
	}
	others := &i.server.upstream.buffered
	holds := func(want int64) {
		for others.Load() != want { // A request ends after its answer.
			time.Sleep(time.Millisecond)
		}
	}
	holds(0)
	others.Store(maxBufferedByAll - 8)
	response, body := i.do("POST", "/echo", io.MultiReader(strings.NewReader("something")))
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("X-OpenFaaS-Internal") == "" {
		t.Errorf("without room: %s %q", response.Status, body)
	}
	holds(maxBufferedByAll - 8)
}

func TestServerSentEventsComeAtOnce(t *testing.T) {
	i := begin(t, program(t))
	response, err := i.client.Get(i.url + "/events")
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	if err != nil || line != "data: first\n" {
		t.Errorf("%q, %v", line, err)
	}
	_ = response.Body.Close()
}

func TestConnectionsAreUpgraded(t *testing.T) {
	env := program(t)
	env["exec_timeout"] = "1m"
	i := begin(t, env)
	conn, err := net.Dial("tcp", strings.TrimPrefix(i.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", response, err)
	}
	fmt.Fprintln(conn, "hello")
	if line, err := reader.ReadString('\n'); line != "you said hello\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestProgramThatEndsEndsTheWatchdog(t *testing.T) {
	i := begin(t, program(t))
	i.do("GET", "/exit", nil)
	<-i.stopped
	exit := new(ExitError)
	if !errors.As(i.err, &exit) || exit.Code != 3 || !strings.Contains(exit.Error(), "exit status 3") {
		t.Errorf("it said %v", i.err)
	}
}

// A program that closes its port and runs on is lost. Its requests reach another instance. One that
// opens it again stays.
func TestProgramThatClosesItsPort(t *testing.T) {
	i := begin(t, program(t))
	i.client.CloseIdleConnections()
	i.do("GET", "/close?again", nil)
	if response, body := i.do("POST", "/", strings.NewReader("x")); response.StatusCode == http.StatusBadGateway {
		t.Errorf("it listens again, but answers %d %s", response.StatusCode, body)
	}
	i.do("GET", "/close", nil)
	for ended := false; !ended; {
		select {
		case <-i.stopped:
			ended = true
		default:
			request, _ := http.NewRequest("POST", i.url+"/", strings.NewReader("x"))
			response, err := i.client.Do(request)
			if err != nil {
				continue // It ends.
			}
			response.Body.Close()
			kept := response.StatusCode == http.StatusOK // A connection from before.
			if !kept && response.StatusCode != http.StatusTooManyRequests || !kept && response.Header.Get("X-OpenFaaS-Internal") == "" {
				t.Fatalf("answer %d %v", response.StatusCode, response.Header)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	var exit *ExitError
	if !errors.As(i.err, &exit) || exit.ExitCode() == 0 || !strings.Contains(exit.Error(), "not listened") {
		t.Errorf("the watchdog ends with %v", i.err)
	}
}

// A request that may be repeated never fails because the program has just closed the connection on which it was
// sent. Another one is executed at most once.
func TestProgramThatClosesConnections(t *testing.T) {
	i := begin(t, program(t))
	answered, failed := 0, 0
	for n := range 300 {
		method := []string{"GET", "POST", "PUT", "DELETE"}[n%4]
		body := strings.Repeat("x", n)
		response, got := i.do(method, "/brief", strings.NewReader(body))
		switch right := response.StatusCode == http.StatusOK && got == body; {
		case method == "POST" && right:
			answered++
		case method == "POST" && response.StatusCode == http.StatusBadGateway: // The program may have read it.
			failed++
		case !right:
			t.Errorf("%s %d: %d %s", method, n, response.StatusCode, got)
		}
	}
	kept := &i.server.upstream.proxy.Transport.(*resender).bodies
	for deadline := time.Now().Add(time.Minute); kept.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bodies are kept after their requests", kept.Load())
		}
	}
	// One that the program has read is not sent again, though the connection breaks in the same way.
	i.do("GET", "/posts", nil) // Now a connection is kept.
	if response, _ := i.do("POST", "/brief?mute", strings.NewReader("x")); response.StatusCode != http.StatusBadGateway {
		t.Errorf("a request without an answer: %d", response.StatusCode)
	}
	_, got := i.do("GET", "/posts", nil)
	if executed, err := strconv.Atoi(got); err != nil || executed < answered || executed > answered+failed+1 {
		t.Errorf("the program has executed %s POSTs; %d were answered, %d failed", got, answered, failed+1)
	}
}

// The kernel tells whether the program's side has taken anything of a request.
func TestUntouched(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for name, c := range map[string]struct {
		before, after func(theirs net.Conn) // what the program does before and after the request is sent
		silent, want  bool
	}{
		"closed before":          {before: func(theirs net.Conn) { theirs.Close() }, want: true},
		"nothing sent":           {before: func(theirs net.Conn) { theirs.Close() }, silent: true, want: true},
		"read, then closed":      {after: func(theirs net.Conn) { _, _ = io.ReadFull(theirs, make([]byte, 7)); theirs.Close() }},
		"arrived, then closed":   {after: func(theirs net.Conn) { theirs.Close() }},
		"closed for writes only": {before: func(theirs net.Conn) { _ = theirs.(*net.TCPConn).CloseWrite() }},
	} {
		t.Run(name, func(t *testing.T) {
			dialed, err := dialProgram(t.Context(), "tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			theirs, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer theirs.Close()
			ours := dialed.(*programConn)
			if c.before != nil {
				c.before(theirs)
			}
			ours.begin()
			written := make(chan struct{})
			go func() {
				defer close(written)
				if !c.silent {
					_, _ = ours.Write([]byte("request"))
				}
			}()
			if !c.silent {
				<-written
			}
			if c.after != nil {
				for deadline := time.Now().Add(time.Minute); ours.info().Unacked > 0 && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
				c.after(theirs)
			}
			_, _ = io.Copy(io.Discard, ours) // To the end.
			ours.Close()
			if got := ours.untouched(); got != c.want {
				t.Errorf("untouched: %v, %+v, %+v", got, ours.before, ours.after)
			}
		})
	}
}

func TestProgramThatNeverServes(t *testing.T) {
	env := map[string]string{"mode": "http", "fprocess": "sh -c 'echo broken >&2; kill -9 $$'"}
	i := prepare(t, env)
	exit := new(ExitError)
	if err := i.server.Start(t.Context()); !errors.As(err, &exit) || exit.Code != 137 {
		t.Errorf("it said %v", err)
	}
	i.log.Await(t, " stderr: broken\n", 1)
	i.server.Close()
	slow := prepare(t, map[string]string{"mode": "http", "fprocess": "sleep 60"})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := slow.server.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it said %v", err)
	}
}

func TestReadyPath(t *testing.T) {
	env := program(t)
	env["ready_path"] = "/ready"
	began := time.Now()
	i := begin(t, env)
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("ready after %v", took)
	}
	for _, path := range []string{"/_/ready", "/_/health"} {
		if response, _ := i.do("GET", path, nil); response.StatusCode != 200 {
			t.Error(path, response.Status)
		}
	}
}

func TestRequestsInFlight(t *testing.T) {
	i := begin(t, map[string]string{"mode": "classic", "fprocess": "sh -c 'while [ ! -e go ]; do sleep 0.01; done; echo fine'", "max_inflight": "1"})
	answered := make(chan string)
	go func() {
		_, body := i.do("GET", "/", nil)
		answered <- body
	}()
	i.log.Await(t, "Forking", 1)
	for _, path := range []string{"/", "/_/ready"} {
		if response, _ := i.do("GET", path, nil); response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "1" ||
			response.Header.Get("X-OpenFaaS-Internal") == "" {
			t.Errorf("%s: %s %v", path, response.Status, response.Header)
		}
	}
	if _, body := i.do("GET", "/_/metrics", nil); !strings.Contains(body, "http_requests_in_flight 1\n") {
		t.Error(body)
	}
	// What runs is finished at the end, and nothing else taken.
	i.stop()
	for deadline := time.Now().Add(time.Minute); !i.server.stopping.Load() && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	if err := touch("go"); err != nil {
		t.Fatal(err)
	}
	if body := <-answered; body != "fine\n" {
		t.Errorf("answer %q", body)
	}
	<-i.stopped
	if i.err != nil {
		t.Error(i.err)
	}
	if response, _ := i.do("GET", "/", nil); response != nil {
		t.Error("it still answers:", response.Status)
	}
}

// A body larger than memory would be passes through.
func TestLargeBodiesStream(t *testing.T) {
	const size, mostMemory = largeBody, 48 << 20
	stream := map[string]string{"mode": "streaming", "fprocess": "cat"}
	for name, env := range map[string]map[string]string{"streaming": stream, "http": program(t)} {
		i := begin(t, env)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		request, err := http.NewRequest("POST", i.url+"/echo", io.LimitReader(zeros{}, size))
		if err != nil {
			t.Fatal(err)
		}
		response, err := i.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		count, err := io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		runtime.ReadMemStats(&after)
		if err != nil || count != size || response.StatusCode != 200 {
			t.Errorf("%s: %s, %d bytes, %v", name, response.Status, count, err)
		}
		if grown := int64(after.Sys) - int64(before.Sys); grown > mostMemory {
			t.Errorf("%s: memory grew by %d MiB", name, grown>>20)
		}
		i.stop()
		<-i.stopped
		i.server.Close()
	}
}

// zeros is an endless body.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
