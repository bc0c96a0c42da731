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

// gatewayURL is the only address of the stock gateway, and the default one of "faas-infer up". Tests that need
// it have a network of their own, or run one after another.
const gatewayURL = "http://127.0.0.1:8080"

// stack is "faas-infer up", which clients reach at its door: the provider, or the stock gateway in front of it.
type stack struct {
	*daemon
	// door is a URL, faas OpenFaaS's own client there, and password theirs.
	door     string
	faas     *sdk.Client
	http     *http.Client
	password string
}

// up starts "faas-infer up" with testdata/stack.yml and waits until it prints what to try.
// On a cluster it starts the same parts one by one.
func (p *place) up(t *testing.T, arguments ...string) *stack {
	t.Helper()
	if onCluster != nil {
		return onCluster.up(t, p, false, arguments...)
	}
	return p.welcomed(t, arguments)
}

// upBehind is up with the stock gateway in front of the provider.
func (p *place) upBehind(t *testing.T, arguments ...string) *stack {
	t.Helper()
	if onCluster != nil {
		return onCluster.up(t, p, true, arguments...)
	}
	p.awaitGatewayPorts(t)
	s := p.welcomed(t, append([]string{"--gateway", "stock"}, arguments...))
	s.door = gatewayURL
	s.connect(t)
	return s
}

// welcomed starts "faas-infer up" on this machine for its own door.
func (p *place) welcomed(t *testing.T, arguments []string) *stack {
	t.Helper()
	arguments = append([]string{"up", "--listen", "127.0.0.1:0", "--stack", filepath.Join("testdata", "stack.yml")}, arguments...)
	s := &stack{daemon: p.run(t, suite.binary, arguments...), http: p.network.client(t)}
	s.await(t, patience, "the welcome", func() bool { return strings.Contains(s.output(), "Ctrl-C stops") })
	for line := range strings.Lines(s.output()) {
		if rest, ok := strings.CutPrefix(line, "Provider"); ok {
			s.url = strings.TrimSpace(rest)
			s.door = s.url
		}
	}
	s.password = strings.TrimSpace(readAll(filepath.Join(p.state, "secrets", "basic-auth-password")))
	s.connect(t)
	return s
}

// connect makes the client for the door.
func (s *stack) connect(t *testing.T) {
	t.Helper()
	at, err := url.Parse(s.door)
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

// through is a function's URL at the door.
func (s *stack) through(function string) string { return s.door + "/function/" + function }
