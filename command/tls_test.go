package command

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/mutual/mutualtest"
)

// A provider with --tls takes requests of clients without certificates over TLS, those of replicas from
// holders of its own certificate, and without TLS only what is open to all.
func TestProviderTLS(t *testing.T) {
	a := mutualtest.NewAuthority(t, time.Now().Add(time.Hour))
	open := func(name string) (*mutual.Identity, string) {
		dir := t.TempDir()
		a.Issue(t, dir, mutualtest.Certificate{Names: []string{name, "localhost"}})
		i, err := mutual.Open(dir, name, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		return i, dir
	}
	_, dir := open(mutual.ProviderName)
	_, instance := open(mutual.InstanceName)
	f := &ProviderFlags{tls: dir}
	own, err := f.identity(zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ConnContext: mutual.WithConn, Handler: mutual.Guard(http.NotFoundHandler(), providerRules), Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(own.Listen(l, "h2", "http/1.1"))
	}()
	defer func() {
		_ = server.Close()
		<-ended
	}()
	for _, c := range []struct {
		scheme, certificate, path string
		status                    int
	}{
		{"http", "", "/readyz", 404}, {"http", "", "/metrics", 404}, {"http", "", "/api/v1/query", 404},
		{"http", "", "/system/functions", 401}, {"http", "", "/function/f", 401}, {"http", "", "/system/peer/loads", 401},
		{"http", "", "//metrics", 401}, {"http", "", "/metrics/", 401}, {"http", "", "/function/..%2fmetrics", 401}, {"http", "", "/healthz%2f..%2fsystem/functions", 401},
		{"https", "", "/system/%70eer/loads", 401}, {"https", "", "/system/peer%2floads", 401},
		{"https", "", "/system/functions", 404}, {"https", "", "/function/f", 404},
		{"https", "", "/system/peer/loads", 401}, {"https", instance, "/system/peer/loads", 401}, {"https", dir, "/system/peer/loads", 404},
	} {
		config := &tls.Config{InsecureSkipVerify: true}
		if c.certificate != "" {
			pair, err := tls.LoadX509KeyPair(filepath.Join(c.certificate, "tls.crt"), filepath.Join(c.certificate, "tls.key"))
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		for _, version := range []int{1, 2} {
			protocols := new(http.Protocols)
			protocols.SetHTTP1(version == 1)
			protocols.SetHTTP2(version == 2)
			protocols.SetUnencryptedHTTP2(version == 2)
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: config.Clone(), DisableKeepAlives: true, Protocols: protocols}}
			answer, err := client.Get(c.scheme + "://" + l.Addr().String() + c.path)
			if err != nil {
				t.Errorf("%s %s over HTTP/%d: %v", c.scheme, c.path, version, err)
				continue
			}
			text, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if answer.StatusCode != c.status || answer.ProtoMajor != version {
				t.Errorf("%s %s with %q: %d %s over %s, want %d over HTTP/%d", c.scheme, c.path, c.certificate, answer.StatusCode, text, answer.Proto, c.status, version)
			}
		}
	}
}

// The sentence at the start names the flag and the file.
func TestWrongTLS(t *testing.T) {
	f := &ProviderFlags{tls: t.TempDir()}
	if _, err := f.identity(zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "--tls "+f.tls+": the file tls.crt is missing") {
		t.Error(err)
	}
	if _, err := execute(t, "instance", "--model", "m.onnx", "--tls", f.tls); err == nil || !strings.Contains(err.Error(), "--tls "+f.tls+": the file tls.crt is missing") {
		t.Error(err)
	}
	c := newWatchdogCommand()
	c.SetArgs([]string{"--tls", f.tls})
	c.SilenceUsage, c.SilenceErrors = true, true
	if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--tls "+f.tls+": the file tls.crt is missing") {
		t.Error(err)
	}
}
