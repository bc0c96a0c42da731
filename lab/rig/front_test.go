package rig

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/model/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers with the request's body.
type echo struct{}

func (echo) Inputs() []tensor.Info {
	return []tensor.Info{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, 2}}}
}

func (echo) Outputs() []tensor.Info {
	return []tensor.Info{{Name: "y", Type: tensor.FP32, Shape: []int64{-1, 2}}}
}
func (echo) Close() error { return nil }

func (echo) Run(_ context.Context, _ int, in []tensor.Tensor) ([]tensor.Tensor, error) {
	return []tensor.Tensor{{Name: "y", Type: in[0].Type, Shape: in[0].Shape, Data: in[0].Data}}, nil
}

// The fronts answer with the instance's answer, and stop when their context ends. The full one takes requests over
// TLS with an API key only, counts them against a rate, and sends its traces when it stops.
func TestFronts(t *testing.T) {
	s, err := instance.NewServer(echo{}, instance.Options{Name: FunctionName, MaxBatch: 1, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	over, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	local := &httptest.Server{Listener: over, Config: &http.Server{Handler: s}}
	local.Start()
	defer local.Close()
	remote := httptest.NewServer(s)
	defer remote.Close()
	keys := filepath.Join(t.TempDir(), "keys")
	const key = "0123456789abcdef0123456789abcdef"
	if err := os.WriteFile(keys, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	var exports atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/v1/traces" {
			exports.Add(1)
		}
	}))
	defer collector.Close()
	for _, kind := range []string{"provider", "full", "faas-proxy"} {
		address, err := engine.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() {
			served <- Front{Kind: kind, Listen: address, Socket: socket, Address: strings.TrimPrefix(remote.URL, "http://"),
				Exec: time.Millisecond, Keys: keys, Collector: collector.URL}.Serve(ctx)
		}()
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		ready, scheme, header := "/function/"+FunctionName+"/v2/health/ready", "http", http.Header{}
		if kind == "full" {
			ready, scheme = "/healthz", "https"
			header.Set("X-API-Key", key)
			header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
			for _, scheme := range []string{"http", "https"} {
				await(t, client, "http://"+address+ready)
				if got := infer(t, client, scheme+"://"+address, nil); got.StatusCode != http.StatusUnauthorized {
					t.Errorf("full by %s without a key: %s", scheme, got.Status)
				}
			}
		}
		await(t, client, "http://"+address+ready)
		got := infer(t, client, scheme+"://"+address, header)
		if got.StatusCode != http.StatusOK || !strings.Contains(strings.ReplaceAll(got.text, " ", ""), `"data":[3,4]`) {
			t.Errorf("%s: %s %s", kind, got.Status, got.text)
		}
		if full := kind == "full"; full != (got.Header.Get("Ratelimit-Remaining") != "") {
			t.Errorf("%s: the answer's header is %v", kind, got.Header)
		}
		client.CloseIdleConnections()
		http.DefaultClient.CloseIdleConnections()
		stop()
		if err := <-served; err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if exports.Load() == 0 {
		t.Error("the collector has got no trace")
	}
}

// answered is an answer whose body was read.
type answered struct {
	*http.Response
	text string
}

// infer sends a request with a header to the front at a URL.
func infer(t *testing.T, client *http.Client, url string, header http.Header) answered {
	t.Helper()
	const body = `{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[3,4]}]}`
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/function/"+FunctionName+"/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header.Clone()
	if header == nil {
		request.Header = http.Header{}
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{response, string(text)}
}

// await waits until url answers with success.
func await(t *testing.T, client *http.Client, url string) {
	t.Helper()
	tick := time.Tick(5 * time.Millisecond)
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); <-tick {
		if status, _, err := Get(t.Context(), client, url); err == nil && status == http.StatusOK {
			return
		}
	}
	t.Fatalf("%s does not answer", url)
}

func TestOtherKinds(t *testing.T) {
	if err := (Front{Kind: "nginx", Listen: "127.0.0.1:0"}).Serve(t.Context()); err == nil || !strings.Contains(err.Error(), "full or faas-proxy") {
		t.Errorf("%v", err)
	}
}
