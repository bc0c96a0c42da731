package load

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// function is a server that answers as a deployed function does.
type function struct {
	mu     sync.Mutex
	header http.Header
	body   []byte
}

func (f *function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/function/mnist/v2/models/mnist":
		w.Write([]byte(`{"name":"mnist","inputs":[{"name":"image","datatype":"FP32","shape":[-1,28,28]}]}`))
	case r.Method == http.MethodPost && r.URL.Path == "/function/mnist":
		body, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.header, f.body = r.Header.Clone(), body
	default:
		http.NotFound(w, r)
	}
}

// execute runs "faas-infer load" with args.
func execute(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	c := NewCommand()
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(io.Discard)
	c.SilenceUsage, c.SilenceErrors = true, true
	err = c.ExecuteContext(t.Context())
	return out.String(), err
}

func figures(t *testing.T, out string) map[string]float64 {
	t.Helper()
	var rep report.Report
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	values := map[string]float64{}
	for _, r := range rep.Results {
		values[r.Name] = r.Value
	}
	return values
}

func TestLoadAsksForInputs(t *testing.T) {
	f := &function{}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	out, err := execute(t, "--url", s.URL+"/function/mnist", "--rate", "200", "--duration", "100ms", "--slo", "1h", "--json")
	if err != nil {
		t.Fatal(err)
	}
	got := figures(t, out)
	if got["requests.good"] != 20 || got["offered.rps"] != 200 || got["within_slo.share"] != 1 || got["achieved.rps"] <= 0 {
		t.Errorf("figures %v", got)
	}
	n, err := strconv.Atoi(f.header.Get(HeaderLength))
	if err != nil || !json.Valid(f.body[:n]) || len(f.body)-n != 28*28*4 {
		t.Errorf("header length %d (%v) of a body of %d bytes", n, err, len(f.body))
	}
}

func TestLoadFromModel(t *testing.T) {
	f := &function{}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "model.onnx")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	out, err := execute(t, "--url", s.URL+"/function/mnist", "--model", file, "--poisson", "--rate", "200", "--duration", "100ms")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "latency.p99_ms") {
		t.Errorf("the table is %s", out)
	}
	if !strings.Contains(string(f.body), `"name":"`+m.Inputs()[0].Name+`"`) {
		t.Error("the body does not name the model's input")
	}
}

func TestLoadSendsBody(t *testing.T) {
	f := &function{}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "request.json")
	if err := os.WriteFile(file, []byte(`{"instances":[[1]]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := execute(t, "--url", s.URL+"/function/mnist", "--body", file, "--rate", "50", "--duration", "50ms"); err != nil {
		t.Fatal(err)
	}
	if string(f.body) != `{"instances":[[1]]}` || f.header.Get("Content-Type") != "application/json" {
		t.Errorf("sent %q as %s", f.body, f.header.Get("Content-Type"))
	}
}

func TestLoadFails(t *testing.T) {
	s := httptest.NewServer(&function{})
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	at := "--url=" + s.URL + "/function/mnist"
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no URL":        {[]string{"--rate=1"}, "url"},
		"bad URL":       {[]string{"--url=mnist", "--body=" + file}, "http://"},
		"no rate":       {[]string{at, "--rate=0"}, "rate"},
		"no rows":       {[]string{at, "--rows=0"}, "--rows"},
		"no function":   {[]string{"--url=" + s.URL + "/function/absent"}, "404"},
		"no model name": {[]string{"--url=" + s.URL}, "--model-name"},
		"not a model":   {[]string{at, "--model=" + file}, "x"},
		"two bodies":    {[]string{at, "--model=" + file, "--body=" + file}, "model"},
		"none answered": {[]string{"--url=" + s.URL + "/absent", "--body=" + file, "--duration=20ms"}, "no request got a good answer"},
	} {
		if _, err := execute(t, c.args...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.says)
		}
	}
}

// A function that listens at a socket is asked there for its inputs, too.
func TestLoadOverASocket(t *testing.T) {
	f := &function{}
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: listener, Config: &http.Server{Handler: f}}
	s.Start()
	t.Cleanup(s.Close)
	out, err := execute(t, "--url", "http://nowhere.invalid/function/mnist", "--socket", socket, "--rows", "3", "--rate", "100", "--duration", "50ms", "--json")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(f.header.Get(HeaderLength))
	if got := figures(t, out); got["requests.good"] != 5 || err != nil || len(f.body)-n != 3*28*28*4 {
		t.Errorf("%v, %d bytes after a header of %d, %v", got, len(f.body)-n, n, err)
	}
}

// The same seed sends the same requests, another seed sends others.
func TestSeedsSettleWhatIsSent(t *testing.T) {
	f := &function{}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	sent := func(seed string) string {
		if _, err := execute(t, "--url", s.URL+"/function/mnist", "--seed", seed, "--rate", "20", "--duration", "50ms"); err != nil {
			t.Fatal(err)
		}
		return string(f.body)
	}
	if first := sent("7"); sent("7") != first || sent("8") == first {
		t.Error("a seed does not settle the input")
	}
}
