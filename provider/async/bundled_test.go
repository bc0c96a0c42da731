package async

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/stan.go"
	"go.yaml.in/yaml/v3"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/mutual/mutualtest"
)

// bundled runs a NATS server with the configuration of yaml/options/nats and some more, and these
// passwords in its environment, as its container has them.
func bundled(t *testing.T, password, gatewayPassword, more string) *server.Server {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "yaml", "options", "nats", "nats.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var config string
	for _, part := range strings.Split(string(text), "\n---\n") {
		var object struct {
			Kind string
			Data map[string]string
		}
		if err := yaml.Unmarshal([]byte(part), &object); err != nil {
			t.Fatal(err)
		}
		if object.Kind == "ConfigMap" {
			config = object.Data["nats.conf"]
		}
	}
	for name, value := range map[string]string{"NATS_USERNAME": "provider", "NATS_PASSWORD": password, "NATS_GATEWAY_USERNAME": "gateway", "NATS_GATEWAY_PASSWORD": gatewayPassword} {
		if !strings.Contains(string(text), `{name: `+name+`, value: '"$(`) {
			t.Errorf("the container has no quotes around %s", name)
		}
		t.Setenv(name, `"`+value+`"`)
	}
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(config+more), 0o600); err != nil {
		t.Fatal(err)
	}
	// As the container's arguments: a reload keeps what these say.
	o, err := server.ConfigureOptions(flag.NewFlagSet("nats-server", flag.ContinueOnError),
		[]string{"--config=" + file, "--jetstream", "--store_dir=" + t.TempDir(), "--addr=127.0.0.1", "--port=-1"}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.NoSigs, o.NoLog = true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server does not start")
	}
	return s
}

// The bundled NATS server admits the provider and the gateway, each with its password. The gateway
// publishes requests, and can neither read the queue nor write to it; nobody else gets in.
func TestBundledServer(t *testing.T) {
	const password, gatewayPassword = "1e5", "007"
	s := bundled(t, password, gatewayPassword, "")
	dir := t.TempDir()
	for name, text := range map[string]string{"username": "provider", "password": password, "gateway-username": "gateway", "gateway-password": gatewayPassword} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	executed := make(chan string, 1)
	q := start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		executed <- string(r.Body)
		return respond(200, ""), nil
	}, func(o *Options) { o.URL, o.Login.Credentials = s.ClientURL(), dir })
	if err := q.broker.Usable(); err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(s.ClientURL(), "nats://", "nats://gateway:"+gatewayPassword+"@", 1)
	g := gateway(t, url, time.Minute, stan.ConnectWait(5*time.Second)) // A subscription takes as long to fail.
	if err := g.Publish("faas-request", request("echo", "hello")); err != nil {
		t.Fatal(err)
	}
	if got := <-executed; got != "hello" {
		t.Errorf("%q was executed", got)
	}
	if _, err := g.Subscribe("faas-request", func(*stan.Msg) {}); err == nil {
		t.Error("a gateway can subscribe")
	}
	denied := make(chan error, 4)
	c, err := nats.Connect(url, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, subject := range []string{"faas-infer.async.>", "_FAAS_INFER.>", "$JS.>", ">"} {
		if _, err := c.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		if err := <-denied; err == nil || !strings.Contains(strings.ToLower(err.Error()), "permissions violation") {
			t.Errorf("%s: %v", subject, err)
		}
	}
	if err := c.Publish("faas-infer.async.run.openfaas-fn.echo", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := <-denied; err == nil || !strings.Contains(strings.ToLower(err.Error()), "permissions violation") {
		t.Errorf("publishing to the queue: %v", err)
	}
	for _, as := range []string{"", "gateway:" + password + "@", "provider:" + gatewayPassword + "@"} {
		if c, err := nats.Connect(strings.Replace(s.ClientURL(), "nats://", "nats://"+as, 1)); err == nil {
			c.Close()
			t.Errorf("%q gets in", as)
		}
	}
}

// ofTheChart is what the chart adds to the server's configuration with TLS, with the files in a directory.
func ofTheChart(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "yaml", "chart", "faas-infer", "templates", "nats.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "\n    tls {\n")
	block, _, closed := strings.Cut(block, "\n    }\n")
	if !found || !closed || strings.Contains(block, "{{") {
		t.Fatalf("the chart has no block tls: %s", block)
	}
	return "\ntls {\n" + strings.ReplaceAll(block, "/etc/nats-tls", dir) + "\n}\n"
}

// With TLS the bundled server shows its certificate, and a renewed one once it is told to. Provider and
// gateway know its authority; who knows another one, or speaks without TLS, sends no password.
func TestBundledTLS(t *testing.T) {
	const password, gatewayPassword = "secret", "gate"
	a, dir := mutualtest.NewAuthority(t, time.Now().Add(time.Hour)), t.TempDir()
	issue := func() {
		a.Issue(t, dir, mutualtest.Certificate{Names: []string{"127.0.0.1"}, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	}
	issue()
	s := bundled(t, password, gatewayPassword, ofTheChart(t, dir))
	folder := func(files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	text, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	credentials, authority := folder(map[string]string{"username": "provider", "password": password}), folder(map[string]string{"ca.crt": string(text)})
	stranger := t.TempDir()
	mutualtest.NewAuthority(t, time.Now().Add(time.Hour)).Issue(t, stranger, mutualtest.Certificate{Names: []string{"127.0.0.1"}})
	url := strings.Replace(s.ClientURL(), "nats://", "tls://", 1)
	executed := make(chan string, 1)
	execute := func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		executed <- string(r.Body)
		return respond(200, ""), nil
	}
	q := start(t, execute, func(o *Options) { o.URL, o.Login.Credentials, o.Login.TLS = url, credentials, authority })
	if err := q.broker.Usable(); err != nil {
		t.Fatal(err)
	}
	// The stock gateway's library knows a plain address, and takes TLS because the server asks for it.
	plain := strings.Replace(url, "tls://", "nats://gateway:"+gatewayPassword+"@", 1)
	c, err := nats.Connect(plain, nats.RootCAs(filepath.Join(authority, "ca.crt")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g, err := stan.Connect("faas-cluster", "faas-publisher-tls", stan.NatsConn(c), stan.ConnectWait(time.Minute), stan.PubAckWait(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := g.Publish("faas-request", request("echo", "hello")); err != nil {
		t.Fatal(err)
	}
	if got := <-executed; got != "hello" {
		t.Errorf("%q was executed", got)
	}
	if c, err := nats.Connect(plain); err == nil || !strings.Contains(err.Error(), "certificate") {
		c.Close()
		t.Errorf("a client that does not know the authority: %v", err)
	}
	other := start(t, execute, func(o *Options) { o.URL, o.Login.Credentials, o.Login.TLS = url, credentials, stranger })
	if err := other.broker.Usable(); err == nil || !strings.Contains(err.Error(), "--nats-tls") {
		t.Errorf("a provider with another authority: %v", err)
	}
	serial := func() string {
		t.Helper()
		c, err := nats.Connect(plain, nats.RootCAs(filepath.Join(authority, "ca.crt")))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		state, err := c.TLSConnectionState()
		if err != nil || state.Version < tls.VersionTLS12 {
			t.Fatalf("%v, %v", state, err)
		}
		return state.PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	issue()
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if serial() == before {
		t.Error("after a reload it shows the certificate of before")
	}
	if err := g.Publish("faas-request", request("echo", "again")); err != nil {
		t.Fatal(err)
	}
	if got := <-executed; got != "again" {
		t.Errorf("%q was executed", got)
	}
}
