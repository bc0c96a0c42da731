package rig

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
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

// Both fronts answer with the instance's answer, and stop when their context ends.
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
	for _, kind := range []string{"provider", "faas-proxy"} {
		address, err := engine.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() {
			served <- ServeFront(ctx, kind, address, socket, strings.TrimPrefix(remote.URL, "http://"), time.Millisecond)
		}()
		client := &http.Client{Transport: &http.Transport{}}
		url := "http://" + address + "/function/" + FunctionName
		await(t, client, url+"/v2/health/ready")
		response, err := client.Post(url+"/", "application/json", strings.NewReader(`{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[3,4]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK || !strings.Contains(strings.ReplaceAll(string(text), " ", ""), `"data":[3,4]`) {
			t.Errorf("%s: %s %s", kind, response.Status, text)
		}
		client.CloseIdleConnections()
		http.DefaultClient.CloseIdleConnections()
		stop()
		if err := <-served; err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// await waits until url answers with success.
func await(t *testing.T, client *http.Client, url string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); <-tick.C {
		if status, _, err := Get(t.Context(), client, url); err == nil && status == http.StatusOK {
			return
		}
	}
	t.Fatalf("%s does not answer", url)
}

func TestOtherKinds(t *testing.T) {
	if err := ServeFront(t.Context(), "nginx", "127.0.0.1:0", "", "", 0); err == nil || !strings.Contains(err.Error(), "provider or faas-proxy") {
		t.Errorf("%v", err)
	}
}
