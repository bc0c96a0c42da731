package async

import (
	"context"
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
)

// bundled runs a NATS server with the configuration of yaml/options/nats, and these passwords in
// its environment, as its container has them.
func bundled(t *testing.T, password, gatewayPassword string) *server.Server {
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
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o.Host, o.Port, o.NoSigs, o.NoLog, o.JetStream, o.StoreDir = "127.0.0.1", server.RANDOM_PORT, true, true, true, t.TempDir()
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	return s
}

// The bundled NATS server admits the provider and the gateway, each with its password. The gateway
// publishes requests, and can neither read the queue nor write to it; nobody else gets in.
func TestBundledServer(t *testing.T) {
	const password, gatewayPassword = "1e5", "007"
	s := bundled(t, password, gatewayPassword)
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
	g := gateway(t, url, 10*time.Second)
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
