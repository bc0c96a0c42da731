package watchdog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster/local/sandbox"
	"github.com/faas-infer/faas-infer/instance/duplex"
	"github.com/faas-infer/faas-infer/instance/logtest"
)

// TestMain lets the test binary be the program of a function.
func TestMain(m *testing.M) {
	if os.Getenv("WATCHDOG_TEST_PROGRAM") == "" {
		goleak.VerifyTestMain(m)
	}
	if err := playProgram(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// playProgram serves HTTP as a function's program does.
func playProgram() error {
	fmt.Println("on standard output")
	fmt.Fprintln(os.Stderr, "on standard error")
	time.Sleep(20 * time.Millisecond) // It takes a moment to serve.
	began := time.Now()
	http.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Got-Length", fmt.Sprint(r.ContentLength))
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(w, r.Body)
	})
	http.HandleFunc("/about", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Method, " ", r.Host, " ", r.RequestURI, " ", r.Header.Get("X-Forwarded-For"), " ", r.Header.Get("X-Call-Id"))
	})
	http.HandleFunc("/teapot", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	http.HandleFunc("/break", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	http.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(time.Hour):
		}
	})
	http.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: first\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	http.HandleFunc("/upgrade", func(w http.ResponseWriter, _ *http.Request) {
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := both.ReadString('\n')
		fmt.Fprint(conn, "you said ", line)
	})
	http.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if time.Since(began) < 100*time.Millisecond {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	curtly := func(answer string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, answer)
		}
	}
	http.HandleFunc("/curt", curtly("HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\n\r\ntoo large"))
	var posts atomic.Int64
	http.HandleFunc("/posts", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, posts.Load()) })
	http.HandleFunc("/brief", func(w http.ResponseWriter, r *http.Request) { // It closes the connection and does not say so.
		body, err := io.ReadAll(r.Body)
		if err == nil && r.Method == http.MethodPost {
			posts.Add(1)
		}
		if err == nil && r.URL.Query().Has("mute") {
			curtly("")(w, r)
		} else if err == nil {
			curtly(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body))(w, r)
		}
	})
	http.HandleFunc("/long", curtly("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", duplex.MaxAnswerHead)+"\r\n\r\n"))
	http.HandleFunc("/fields", curtly("HTTP/1.1 200 OK\r\n"+strings.Repeat("X:\r\n", duplex.MaxFields+1)+"\r\n"))
	http.HandleFunc("/zero", curtly("HTTP/1.1 000 Nothing\r\n\r\n"))
	http.HandleFunc("/nonsense", curtly("nonsense\r\n\r\n"))
	http.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	address := "127.0.0.1:" + os.Getenv("PORT")
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	http.HandleFunc("/close", func(w http.ResponseWriter, r *http.Request) { // It runs on, with its port closed.
		w.Header().Set("Connection", "close")
		listener.Close()
		if r.URL.Query().Has("again") {
			if listener, err = net.Listen("tcp", address); err == nil {
				go http.Serve(listener, nil)
			}
		}
	})
	if err := http.Serve(listener, nil); !errors.Is(err, net.ErrClosed) {
		return err
	}
	select {}
}

// instance is a watchdog that serves in this process, with real processes of
// the function.
type instance struct {
	t      *testing.T
	server *Server
	url    string
	client *http.Client
	// stop ends it as SIGTERM does, stopped is closed then and err what Serve
	// returned.
	stop    context.CancelFunc
	stopped chan struct{}
	err     error
	log     *buffer
}

// buffer is the instance's log.
type buffer struct{ logtest.Log }

// lines returns the lines without their times, which it checks.
func (b *buffer) lines(t *testing.T) []string {
	t.Helper()
	var texts []string
	for line := range strings.Lines(b.String()) {
		stamp, text, _ := strings.Cut(line, " ")
		if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil {
			t.Errorf("log line %q: %v", line, err)
		}
		texts = append(texts, strings.TrimSuffix(text, "\n"))
	}
	return texts
}

// prepare makes a watchdog that does not serve yet.
func prepare(t *testing.T, env map[string]string) *instance {
	t.Helper()
	config, err := read(env)
	if err != nil {
		t.Fatal(err)
	}
	cell, err := sandbox.EnterFunction(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	i := &instance{t: t, log: &buffer{}, stopped: make(chan struct{})}
	environment := append(os.Environ(), cell.Environment()...)
	for name, value := range env {
		environment = append(environment, name+"="+value)
	}
	i.server, err = New(Options{Config: config, Launcher: cell, Log: NewLineLog(i.log), Environment: environment})
	if err != nil {
		cell.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		i.server.Close()
		cell.Close()
	})
	return i
}

// begin makes one that serves until the test ends.
func begin(t *testing.T, env map[string]string) *instance {
	t.Helper()
	i := prepare(t, env)
	err := i.server.Start(t.Context())
	// The program's port was free; anybody's connection may have got it meanwhile.
	for try := 0; try < 3 && err != nil && strings.Contains(i.log.String(), "address already in use"); try++ {
		i.server.Close()
		i = prepare(t, env)
		err = i.server.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	i.url = "http://" + listener.Addr().String()
	i.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	ctx, cancel := context.WithCancel(context.Background())
	i.stop = cancel
	go func() {
		defer close(i.stopped)
		i.err = i.server.Serve(ctx, []net.Listener{listener}, func() error { return nil })
	}()
	t.Cleanup(func() {
		i.client.CloseIdleConnections()
		i.stop()
		<-i.stopped
	})
	return i
}

// program is the environment of a function whose program is this test binary.
func program(t *testing.T) map[string]string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"mode": "http", "fprocess": self, "WATCHDOG_TEST_PROGRAM": "1", "GORACE": "atexit_sleep_ms=0"}
}

// do sends a request and returns the answer and its body.
func (i *instance) do(method, path string, body io.Reader, change ...func(*http.Request)) (*http.Response, string) {
	i.t.Helper()
	request, err := http.NewRequest(method, i.url+path, body)
	if err != nil {
		i.t.Fatal(err)
	}
	for _, f := range change {
		f(request)
	}
	response, err := i.client.Do(request)
	if err != nil {
		return nil, err.Error()
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil && !errors.Is(err, io.EOF) {
		return response, string(answer) + " ... " + err.Error()
	}
	return response, string(answer)
}

// header returns a change of a request.
func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// processes counts the processes whose environment holds the mark.
func processes(t *testing.T, mark string) (count int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		environ, err := os.ReadFile("/proc/" + entry.Name() + "/environ")
		if err == nil && strings.Contains(string(environ), mark) {
			count++
		}
	}
	return count
}

func touch(name string) error { return os.WriteFile(name, nil, 0o644) }
