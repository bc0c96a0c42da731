package command

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/mutual/mutualtest"
)

func TestWrongACMEFlags(t *testing.T) {
	for want, a := range map[string]acmeFlags{
		"":                             {domains: []string{"functions.example.com", "a.b"}, email: "me@example.com", http: ":80"},
		"--acme-email and --acme-http": {email: "me@example.com"}, `--acme-domain "*.example.com"`: {domains: []string{"*.example.com"}},
		`--acme-domain "localhost"`: {domains: []string{"localhost"}}, `--acme-domain "a.b:443"`: {domains: []string{"a.b:443"}}, `--acme-domain "10.0.0.1"`: {domains: []string{"10.0.0.1"}},
	} {
		if err := a.check(""); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v", a, err)
		}
	}
	if err := (&acmeFlags{domains: []string{"a.b"}}).check("dir"); err == nil {
		t.Error("--tls and --acme-domain go together")
	}
}

// An expired certificate is in the log and in the metric.
func TestExpiredCertificate(t *testing.T) {
	var log bytes.Buffer
	c := (&acmeFlags{domains: []string{"a.b", "c.d"}}).certificates(t.TempDir(), zerolog.New(&log))
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	if !c.firstExpiry().IsZero() {
		t.Error("a certificate that is not there expires")
	}
	c.note("a.b", now.Add(time.Hour), now)
	c.note("C.d.", now, now)
	if log.Len() > 0 || !c.firstExpiry().Equal(now) {
		t.Errorf("%v, %s", c.firstExpiry(), log.String())
	}
	c.note("c.d", now, now.Add(1))
	if !strings.Contains(log.String(), "the certificate has expired") {
		t.Errorf("the log has %q", log.String())
	}
}

const acmeDomain = "functions.faas-infer.test"

// authority is a pebble, Let's Encrypt's server for tests.
type authority struct {
	directory, management string
	// roots are those of its own address.
	roots *x509.CertPool
	stop  func()
}

// startPebble starts an authority that questions names at two ports of this machine.
func startPebble(t *testing.T, tlsPort, httpPort int) authority {
	t.Helper()
	script := exec.CommandContext(t.Context(), "../scripts/pebble.sh")
	script.Stderr = os.Stderr
	out, err := script.Output()
	if err != nil {
		t.Fatalf("building pebble: %v", err)
	}
	bin, dir, address := strings.TrimSpace(string(out)), t.TempDir(), freeAddresses(t, 4)
	own := mutualtest.NewAuthority(t, time.Now().Add(time.Hour))
	own.Issue(t, dir, mutualtest.Certificate{Names: []string{"127.0.0.1"}})
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": address[0], "managementListenAddress": address[1], "certificate": filepath.Join(dir, "tls.crt"), "privateKey": filepath.Join(dir, "tls.key"),
		"httpPort": httpPort, "tlsPort": tlsPort, "keyAlgorithm": "ecdsa", "retryAfter": map[string]int{"authz": 1, "order": 1},
		"profiles": map[string]any{"default": map[string]any{"description": "tests", "validityPeriod": 7776000}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "pebble.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running []*exec.Cmd
	for _, argv := range [][]string{
		{"pebble-challtestsrv", "-http01", "", "-https01", "", "-doh", "", "-tlsalpn01", "", "-dnsserver", address[2], "-management", address[3], "-defaultIPv6", ""},
		{"pebble", "-config", file, "-dnsserver", address[2]},
	} {
		c := exec.CommandContext(ctx, filepath.Join(bin, argv[0]), argv[1:]...)
		c.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0")
		if err := c.Start(); err != nil {
			cancel()
			t.Fatal(err)
		}
		running = append(running, c)
	}
	a := authority{directory: "https://" + address[0] + "/dir", management: "https://" + address[1], roots: x509.NewCertPool()}
	a.stop = func() {
		cancel()
		for _, c := range running {
			_ = c.Wait()
		}
	}
	t.Cleanup(a.stop)
	text, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil || !a.roots.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if answer, err := a.client().Get(a.directory); err == nil {
			_ = answer.Body.Close()
			return a
		} else if time.Now().After(end) {
			t.Fatalf("pebble does not answer: %v", err)
		}
	}
}

// client is a client of the authority.
func (a authority) client() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.roots}, DisableKeepAlives: true}, Timeout: 30 * time.Second}
}

// issued are the roots of the certificates that it issues.
func (a authority) issued(t *testing.T) *x509.CertPool {
	t.Helper()
	answer, err := a.client().Get(a.management + "/roots/0")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	roots := x509.NewCertPool()
	if block, _ := pem.Decode(text); err != nil || block == nil || !roots.AppendCertsFromPEM(text) {
		t.Fatalf("%v, %q", err, text)
	}
	return roots
}

// freeAddresses returns addresses of this machine at which nobody listens.
func freeAddresses(t *testing.T, n int) (all []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all
}

// A provider with --acme-domain gets its certificate from an authority that asks it over TLS, or over
// HTTP at the same port, and keeps it without the authority.
func TestCertificateByACME(t *testing.T) {
	for _, over := range []string{"TLS", "HTTP"} {
		t.Run(over, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			port, other := l.Addr().(*net.TCPAddr).Port, 1
			a := startPebble(t, map[string]int{"TLS": port, "HTTP": other}[over], map[string]int{"TLS": other, "HTTP": port}[over])
			state := t.TempDir()
			flags := acmeFlags{domains: []string{acmeDomain}, directory: a.directory, email: "me@example.com"}
			connect := func(l net.Listener, roots *x509.CertPool, host string) (*x509.Certificate, error) {
				c := flags.certificates(state, zerolog.New(zerolog.NewTestWriter(t)))
				c.Client.HTTPClient = a.client()
				routes := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "there") })
				server := &http.Server{ConnContext: mutual.WithConn, Handler: c.HTTPHandler(mutual.Guard(routes, providerRules))}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_ = server.Serve(c.identity.Listen(l))
				}()
				defer func() {
					_ = server.Close()
					<-ended
				}()
				client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
					TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true,
					DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
						return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
					},
				}}
				c.obtain()
				answer, err := client.Get("https://" + host + "/function/f")
				if err != nil {
					return nil, err
				}
				defer answer.Body.Close()
				if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "there" {
					t.Errorf("%v, %q", err, text)
				}
				leaf := answer.TLS.PeerCertificates[0]
				if !c.firstExpiry().Equal(leaf.NotAfter) {
					t.Errorf("it expires at %v, the metric says %v", leaf.NotAfter, c.firstExpiry())
				}
				return leaf, nil
			}
			roots := a.issued(t)
			leaf, err := connect(l, roots, acmeDomain)
			if err != nil {
				t.Fatal(err)
			}
			if leaf.VerifyHostname(acmeDomain) != nil || fmt.Sprint(leaf.PublicKeyAlgorithm) != "ECDSA" {
				t.Errorf("the certificate is for %q, with %v", leaf.DNSNames, leaf.PublicKeyAlgorithm)
			}
			a.stop()
			again := func(host string) (*x509.Certificate, error) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				return connect(l, roots, host)
			}
			if kept, err := again(acmeDomain); err != nil || !kept.Equal(leaf) {
				t.Errorf("without the authority: %v", err)
			}
			if _, err := again("other.faas-infer.test"); err == nil {
				t.Error("there is a certificate for another name")
			}
			info, err := os.Stat(filepath.Join(state, "acme"))
			if err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("others may read the key: %v, %v", info, err)
			}
		})
	}
}
