package testcluster_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// A server and a client with certificates of one authority accept each other. A server
// under another name is refused.
func TestBothSides(t *testing.T) {
	a, err := testcluster.NewAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Issue("server", "server", nil, []string{"127.0.0.1", "right.example.com"}); err != nil {
		t.Fatal(err)
	}
	if err := a.Issue("client", "someone", []string{"system:masters"}, nil); err != nil {
		t.Fatal(err)
	}
	pool, text := x509.NewCertPool(), read(t, a.File("ca.crt"))
	if !pool.AppendCertsFromPEM(text) {
		t.Fatal("the authority's certificate cannot be read")
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		w.Header().Set("User", subject.CommonName+" of "+strings.Join(subject.Organization, ","))
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair(t, a, "server")}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	s.StartTLS()
	defer s.Close()
	for name, right := range map[string]bool{"127.0.0.1": true, "right.example.com": true, "wrong.example.com": false} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: name, Certificates: []tls.Certificate{pair(t, a, "client")}}}
		response, err := (&http.Client{Transport: transport}).Get(s.URL)
		if (err == nil) != right {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			response.Body.Close()
			if got := response.Header.Get("User"); got != "someone of system:masters" {
				t.Errorf("the client is %q", got)
			}
		}
		transport.CloseIdleConnections()
	}
}

func TestKeyPair(t *testing.T) {
	a, err := testcluster.NewAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.KeyPair("tokens"); err != nil {
		t.Fatal(err)
	}
	if text := read(t, a.File("tokens.pub")); !strings.HasPrefix(string(text), "-----BEGIN PUBLIC KEY-----") {
		t.Errorf("%s", text)
	}
	if info, err := os.Stat(a.File("tokens.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func pair(t *testing.T, a *testcluster.Authority, name string) tls.Certificate {
	t.Helper()
	c, err := tls.LoadX509KeyPair(a.File(name+".crt"), a.File(name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
