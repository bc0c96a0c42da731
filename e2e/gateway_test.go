package e2e

import (
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/openfaas/go-sdk"

	"github.com/faas-infer/faas-infer/provider/web"
)

// gatewayURL is the only address of the stock gateway. Tests that need it have a network of their own,
// or run one after another.
const gatewayURL = "http://127.0.0.1:8080"

// stack is "faas-infer up" with the gateway in front of it.
type stack struct {
	*daemon
	// faas is OpenFaaS's own client, password that of the gateway.
	faas     *sdk.Client
	http     *http.Client
	password string
}

// up starts "faas-infer up" with testdata/stack.yml and waits until it prints what to try.
// On a cluster it starts the same parts one by one.
func (p *place) up(t *testing.T, arguments ...string) *stack {
	t.Helper()
	if onCluster != nil {
		return onCluster.up(t, p, arguments...)
	}
	p.awaitGatewayPorts(t)
	arguments = append([]string{"up", "--listen", "127.0.0.1:0", "--stack", filepath.Join("testdata", "stack.yml")}, arguments...)
	s := &stack{daemon: p.run(t, suite.binary, arguments...), http: p.network.client(t)}
	s.await(t, patience, "the welcome", func() bool { return strings.Contains(s.output(), "Ctrl-C stops") })
	for line := range strings.Lines(s.output()) {
		if rest, ok := strings.CutPrefix(line, "Provider"); ok {
			s.url = strings.TrimSpace(rest)
		}
	}
	s.password = strings.TrimSpace(readAll(filepath.Join(p.state, "secrets", "basic-auth-password")))
	s.connect(t)
	return s
}

// connect makes the client for the gateway.
func (s *stack) connect(t *testing.T) {
	t.Helper()
	at, err := url.Parse(gatewayURL)
	if err != nil {
		t.Fatal(err)
	}
	s.faas = sdk.NewClient(at, &sdk.BasicAuth{Username: "admin", Password: s.password}, s.http)
}

// gatewayPlace waits for a turn and makes a place for the gateway: in a network of its own if the user may make
// one, otherwise while no other test has the gateway.
func gatewayPlace(t *testing.T) *place {
	t.Helper()
	apart := onCluster == nil && ownNetworks()
	if apart {
		providerTests.takeHere(t)
	} else {
		gatewayTests.takeHere(t)
	}
	p := newPlace(t)
	if apart {
		p.network = newNetwork(t)
	}
	return p
}

// awaitGatewayPorts waits until the ports of the gateway and of the queue are free.
func (p *place) awaitGatewayPorts(t *testing.T) {
	t.Helper()
	if p.network != nil {
		return
	}
	await(t, patience, "ports 8080, 8082 and 4222 to be free", func() bool {
		for _, address := range []string{":8080", ":8082", "127.0.0.1:4222"} {
			if web.CheckFree(address) != nil {
				return false
			}
		}
		return true
	})
}

func throughGateway(function string) string { return gatewayURL + "/function/" + function }
