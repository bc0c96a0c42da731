package instance

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
)

func TestNewServerRefusesNonsense(t *testing.T) {
	for wrong, o := range map[string]Options{
		"at least 1":             {Name: "m"},
		"maximum number of rows": {Name: "m", MaxBatch: 1, MaxRows: -1},
		"name is empty":          {MaxBatch: 1},
	} {
		if _, err := NewServer(&doubler{width: 1}, o); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%+v: got %v", o, err)
		}
	}
}

func do(t *testing.T, s *Server, method, path, contentType string, body io.Reader) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, body)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

func bodyOf(t *testing.T, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A batch's answer says how large its requests' rows are, unless all have one size.
func TestBatchesReportTheirSize(t *testing.T) {
	for width, want := range map[int64]string{2: "", -1: "3"} {
		s := newTestServer(t, &doubler{maxBatch: 4, width: width})
		requests := []frame.Request{invoke(`{"instances":[[1,2]]}`), invoke(`{"instances":[[1,2],[3,4]]}`)}
		if width < 0 { // Four elements and two rows of two: 3 in a row on average.
			requests = []frame.Request{invoke(`{"instances":[[1,2,3,4]]}`), invoke(`{"instances":[[1,2],[3,4]]}`)}
		}
		var body bytes.Buffer
		buffers, _ := frame.EncodeRequests(requests)
		if _, err := buffers.WriteTo(&body); err != nil {
			t.Fatal(err)
		}
		response := do(t, s, http.MethodPost, frame.Path, frame.ContentType, &body)
		bodyOf(t, response)
		if got := response.Header.Get(frame.ElementsHeader); response.StatusCode != http.StatusOK || got != want {
			t.Errorf("width %d: %d, a size of %q, want %q", width, response.StatusCode, got, want)
		}
	}
}

func TestBatchRoute(t *testing.T) {
	s := newTestServer(t, &doubler{maxBatch: 4, width: 1})
	var body bytes.Buffer
	buffers, _ := frame.EncodeRequests([]frame.Request{invoke(`{"instances":[[1]]}`), invoke(`{`), binaryInvoke(3)})
	if _, err := buffers.WriteTo(&body); err != nil {
		t.Fatal(err)
	}
	response := do(t, s, http.MethodPost, frame.Path, frame.ContentType, &body)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != frame.ContentType {
		t.Fatalf("got %d %v", response.StatusCode, response.Header)
	}
	if us, err := strconv.Atoi(response.Header.Get(frame.ExecHeader)); err != nil || us < 0 {
		t.Errorf("%s is %q", frame.ExecHeader, response.Header.Get(frame.ExecHeader))
	}
	members, err := frame.DecodeResponses([]byte(bodyOf(t, response)))
	if err != nil || len(members) != 3 {
		t.Fatalf("got %v, %v", members, err)
	}
	for i, status := range []int{200, 400, 200} {
		if members[i].Status != status || members[i].Header.Get("Content-Type") == "" {
			t.Errorf("member %d: got %+v, want %d", i, members[i], status)
		}
	}
}

func TestBatchesThatCannotBeRead(t *testing.T) {
	s := newTestServer(t, &doubler{maxBatch: 4, width: 1})
	s.frameLimit = 4000
	for name, c := range map[string]struct {
		contentType string
		body        io.Reader
		status      int
	}{
		"not a frame":          {frame.ContentType, strings.NewReader("FIB2"), 400},
		"cut off":              {frame.ContentType, strings.NewReader("FIB1\x01\x00\x00\x00"), 400},
		"another content type": {"application/json", strings.NewReader("{}"), 415},
		"too large":            {frame.ContentType, strings.NewReader(strings.Repeat("x", 4001)), 413},
		"too large, unknown":   {frame.ContentType, io.MultiReader(strings.NewReader(strings.Repeat("x", 4001))), 413},
	} {
		if got := do(t, s, http.MethodPost, frame.Path, c.contentType, c.body); got.StatusCode != c.status {
			t.Errorf("%s: got %d %s, want %d", name, got.StatusCode, bodyOf(t, got), c.status)
		}
	}
}

func TestSingleRoutes(t *testing.T) {
	s := newTestServer(t, &doubler{maxBatch: 4, width: 1})
	for _, c := range []struct {
		method, path string
		body         io.Reader
		status       int
		want         string
	}{
		{http.MethodPost, "/", strings.NewReader(`{"instances":[[1.5]]}`), 200, `{"predictions":[[3]]}`},
		{http.MethodPost, "/", io.MultiReader(strings.NewReader(`{"instances":[[2]]}`)), 200, `{"predictions":[[4]]}`},
		{http.MethodPost, "/v1/models/double:predict", strings.NewReader(`{"inputs":[[1]]}`), 200, `{"outputs":[[2]]}`},
		{http.MethodPost, "/", strings.NewReader(strings.Repeat(" ", 1001)), 413, "larger than the limit of 1000 bytes"},
		{http.MethodPost, "/", io.MultiReader(strings.NewReader(strings.Repeat(" ", 1001))), 413, "larger than"},
		{http.MethodGet, "/_/health", nil, 200, "ok"},
		{http.MethodGet, "/_/ready", nil, 200, "ok"},
		{http.MethodGet, "/v2/models/double/ready", nil, 200, `"ready":true`},
		{http.MethodGet, "/nowhere", nil, 404, "there is no /nowhere here"},
	} {
		response := do(t, s, c.method, c.path, "", c.body)
		if got := bodyOf(t, response); response.StatusCode != c.status || !strings.Contains(got, c.want) {
			t.Errorf("%s %s: got %d %s, want %d %s", c.method, c.path, response.StatusCode, got, c.status, c.want)
		}
	}
	metrics := bodyOf(t, do(t, s, http.MethodGet, "/metrics", "", nil))
	for _, want := range []string{
		`faas_infer_instance_requests_total{code="200"} 4`, `faas_infer_instance_requests_total{code="413"} 2`,
		"faas_infer_instance_batch_rows_sum 3", "faas_infer_instance_exec_seconds_count 3",
		"faas_infer_instance_load_seconds 0", "faas_infer_instance_library_seconds 0", `faas_infer_instance_memory_bytes{kind="proportional"}`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

func TestReadMemory(t *testing.T) {
	m, err := ReadMemory(os.Getpid())
	if err != nil || m.Proportional <= 0 || m.Anonymous <= 0 || m.Proportional > m.Resident {
		t.Errorf("got %+v, %v", m, err)
	}
}

// TestServeFinishesWhatIsInFlight: on SIGTERM, a request that runs is still
// answered, and only then Serve returns.
func TestServeFinishesWhatIsInFlight(t *testing.T) {
	d := &doubler{maxBatch: 4, width: 1, gate: make(chan struct{})}
	s := newTestServer(t, d)
	path := filepath.Join(t.TempDir(), "instance.sock")
	listener, err := Listen(context.Background(), "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, terminate := context.WithCancel(context.Background())
	readiness, served := make(chan struct{}), make(chan error, 1)
	go func() {
		served <- Serve(ctx, s, []net.Listener{listener}, nil, zerolog.Nop(), func() error { close(readiness); return nil })
	}()
	<-readiness
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	answered := make(chan string, 1)
	go func() {
		response, err := (&http.Client{Transport: transport}).Post("http://instance/", "", strings.NewReader(`{"instances":[[1]]}`))
		if err != nil {
			answered <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		answered <- string(body)
	}()
	waitFor(t, func() bool { return len(s.turn) == 1 })
	terminate()
	select {
	case err := <-served:
		t.Fatalf("Serve left a request behind: %v", err)
	case d.gate <- struct{}{}:
	}
	if got := <-answered; got != `{"predictions":[[2]]}` {
		t.Errorf("the request in flight got %s", got)
	}
	transport.CloseIdleConnections()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// waitFor polls until another goroutine makes done true.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within a minute")
		}
	}
}

func TestListen(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "s")
	for _, address := range []string{"", "unix://", "unix://host/path", "http://127.0.0.1:0", "127.0.0.1:0", "tcp://127.0.0.1:0/path", ":"} {
		if l, err := Listen(ctx, address); err == nil {
			l.Close()
			t.Errorf("%q was taken", address)
		}
	}
	first, err := Listen(ctx, "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := Listen(ctx, "unix://"+path); err == nil {
		l.Close()
		t.Error("a socket that is in use was taken over")
	}
	// A killed instance leaves its file.
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	first.Close()
	second, err := Listen(ctx, "unix://"+path)
	if err != nil {
		t.Fatalf("the socket of a killed instance is in the way: %v", err)
	}
	second.Close()
}

func TestAnnounceReady(t *testing.T) {
	t.Setenv(ReadyEnv, "")
	if err := AnnounceReady(); err != nil {
		t.Error(err)
	}
	t.Setenv(ReadyEnv, "three")
	if err := AnnounceReady(); err == nil {
		t.Error(`"three" was taken for a file descriptor`)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fd, err := syscall.Dup(int(w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Setenv(ReadyEnv, strconv.Itoa(fd))
	if err := AnnounceReady(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); string(got) != "ready\n" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
