package mutual_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/mutual/mutualtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var names = []string{mutual.InstanceName, "faas-infer.openfaas.svc"}

// authority returns one that is good for an hour.
func authority(t testing.TB) *mutualtest.Authority {
	return mutualtest.NewAuthority(t, time.Now().Add(time.Hour))
}

// identity returns the identity of a party with a certificate for the names.
func identity(t testing.TB, a *mutualtest.Authority, names ...string) (*mutual.Identity, string) {
	t.Helper()
	dir := t.TempDir()
	a.Issue(t, dir, mutualtest.Certificate{Names: names})
	i, err := mutual.Open(dir, names[0], zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	return i, dir
}

// rules are those of an instance.
var rules = mutual.Rules{Open: []string{"/ready"}, Callers: func(path string) []string {
	if path == "/open" {
		return nil
	}
	return []string{mutual.ProviderName}
}}

// serve serves with an identity and returns the address.
func serve(t testing.TB, i *mutual.Identity) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ConnContext: mutual.WithConn, Handler: mutual.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
		if r.TLS != nil {
			_, _ = io.WriteString(w, " over TLS")
		}
	}), rules)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(i.Listen(l))
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return l.Addr().String()
}

// ask sends a POST over a new connection and returns the status and the answer.
func ask(t testing.TB, dial mutual.Dial, network, address, path string) (status int, text string, err error) {
	t.Helper()
	conn, err := dial(t.Context(), network, address)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: i\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello")
	if err != nil {
		return 0, "", err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

// Only a caller with the certificate of the right name gets through; others are told why.
func TestWhoMayAsk(t *testing.T) {
	a := authority(t)
	instance, _ := identity(t, a, names...)
	provider, _ := identity(t, a, mutual.ProviderName)
	other, _ := identity(t, a, mutual.InstanceName)
	stranger, _ := identity(t, authority(t), mutual.ProviderName)
	at := serve(t, instance)
	if status, text, err := ask(t, provider.Dial, mutual.Network, at, "/"); status != 200 || text != "hello over TLS" {
		t.Errorf("the provider gets %d %q, %v", status, text, err)
	}
	if status, text, err := ask(t, other.Dial, mutual.Network, at, "/"); status != 401 || !strings.Contains(text, mutual.ProviderName) {
		t.Errorf("another instance gets %d %q, %v", status, text, err)
	}
	if status, _, err := ask(t, stranger.Dial, mutual.Network, at, "/"); err == nil {
		t.Errorf("a stranger gets %d", status)
	}
	// The server's own authority does not make its clients trust another one.
	same, _ := identity(t, authority(t), names...)
	impostor := serve(t, same)
	if status, _, err := ask(t, provider.Dial, mutual.Network, impostor, "/"); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("the provider asks a server of another authority: %d, %v", status, err)
	}
	named, _ := identity(t, a, "x.faas-infer")
	if status, _, err := ask(t, provider.Dial, mutual.Network, serve(t, named), "/"); err == nil || !strings.Contains(err.Error(), mutual.InstanceName) {
		t.Errorf("the provider asks a server of another name: %d, %v", status, err)
	}
	if status, text, err := ask(t, provider.Dial, "tcp", at, "/"); status != 401 || !strings.Contains(text, "https") {
		t.Errorf("without TLS: %d %q, %v", status, text, err)
	}
	if _, err := (*mutual.Identity)(nil).Dial(t.Context(), mutual.Network, at); err == nil || !strings.Contains(err.Error(), "--tls") {
		t.Errorf("a provider without a certificate: %v", err)
	}
}

// A client without a certificate gets what needs none: open paths with and without TLS, and what
// needs no caller over TLS.
func TestWithoutCertificate(t *testing.T) {
	a := authority(t)
	instance, dir := identity(t, a, names...)
	at := serve(t, instance)
	text, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	// The stock gateway is such a client, and offers HTTP/2.
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: names[1]}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for _, c := range []struct {
		method, url string
		status      int
	}{
		{"GET", "https://" + at + "/ready", 200}, {"GET", "http://" + at + "/ready", 200}, {"HEAD", "http://" + at + "/ready", 200},
		{"POST", "http://" + at + "/ready", 401}, {"GET", "http://" + at + "/ready/", 401}, {"GET", "http://" + at + "//ready", 401},
		{"POST", "https://" + at + "/open", 200}, {"POST", "http://" + at + "/open", 401}, {"POST", "https://" + at + "/", 401},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Errorf("%s %s: %v", c.method, c.url, err)
			continue
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != c.status || answer.ProtoMajor != 1 {
			t.Errorf("%s %s: %s %s, want %d", c.method, c.url, answer.Proto, answer.Status, c.status)
		}
	}
}

// Renewed files hold from the next connection on, and files that cannot be used change nothing.
func TestRotation(t *testing.T) {
	before, after := authority(t), authority(t)
	instance, dir := identity(t, before, names...)
	provider, own := identity(t, before, mutual.ProviderName)
	at := serve(t, instance)
	kept, err := provider.Dial(t.Context(), mutual.Network, at)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	first := string(instance.Files()["tls.crt"])
	works := func(when string) {
		t.Helper()
		if status, _, err := ask(t, provider.Dial, mutual.Network, at, "/"); status != 200 {
			t.Errorf("%s: %d, %v", when, status, err)
		}
	}
	before.Issue(t, dir, mutualtest.Certificate{Names: names})
	works("with a renewed certificate of the instance")
	if string(instance.Files()["tls.crt"]) == first {
		t.Error("the renewed certificate was not read")
	}
	for name, text := range map[string]string{"tls.key": "torn", "ca.crt": ""} {
		good, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		works("with a damaged " + name)
		if err := os.WriteFile(filepath.Join(dir, name), good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Another authority: it holds for the instance at once, for clients of before no more.
	after.Issue(t, dir, mutualtest.Certificate{Names: names})
	if status, _, err := ask(t, provider.Dial, mutual.Network, at, "/"); err == nil {
		t.Errorf("the authority of before still gets %d", status)
	}
	after.Issue(t, own, mutualtest.Certificate{Names: []string{mutual.ProviderName}})
	works("with renewed authorities")
	// A kept connection gets one more answer, so no request is lost, and ends: its authority may be
	// trusted no more.
	if _, err := io.WriteString(kept, "POST / HTTP/1.1\r\nHost: i\r\nContent-Length: 0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := http.ReadResponse(bufio.NewReader(kept), nil); err != nil || answer.StatusCode != 200 || !answer.Close {
		t.Errorf("over a kept connection: %v", err)
	}
	now, err := provider.Dial(t.Context(), mutual.Network, at)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	in := bufio.NewReader(now)
	for range 2 {
		_, _ = io.WriteString(now, "POST / HTTP/1.1\r\nHost: i\r\nContent-Length: 0\r\n\r\n")
		answer, err := http.ReadResponse(in, nil)
		if err != nil || answer.StatusCode != 200 || answer.Close {
			t.Fatalf("over a new connection: %v", err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
	}
}

// A server logs why it refused a client: the client's certificate has expired, or is of another
// authority, or is none. It logs nothing about clients that do not speak TLS.
func TestRefusalsAreLogged(t *testing.T) {
	a := authority(t)
	shown := func(by *mutualtest.Authority, until time.Time) *tls.Config {
		dir := t.TempDir()
		by.Issue(t, dir, mutualtest.Certificate{Names: []string{mutual.ProviderName}, Until: until})
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}
	}
	distrustful := shown(a, time.Time{})
	distrustful.InsecureSkipVerify, distrustful.ServerName = false, mutual.InstanceName // It knows the system's authorities only.
	for name, c := range map[string]struct {
		strict bool
		client *tls.Config
		says   string
	}{
		"expired":             {false, shown(a, time.Now().Add(-time.Hour)), "certificate has expired"},
		"another authority":   {false, shown(authority(t), time.Time{}), "unknown authority"},
		"expired, strict":     {true, shown(a, time.Now().Add(-time.Hour)), "certificate has expired"},
		"another name":        {true, shown(a, time.Time{}), "not " + mutual.InstanceName},
		"none":                {true, &tls.Config{InsecureSkipVerify: true}, "didn't provide a certificate"},
		"a distrustful one":   {false, distrustful, "remote error: tls: "},
		"one that is trusted": {false, &tls.Config{InsecureSkipVerify: true}, ""},
		"not TLS":             {true, nil, ""},
	} {
		var log bytes.Buffer
		dir := t.TempDir()
		a.Issue(t, dir, mutualtest.Certificate{Names: []string{mutual.InstanceName}})
		i, err := mutual.Open(dir, mutual.InstanceName, zerolog.New(&log).With().Str("function", "f").Logger())
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := i.Listen(l)
		if c.strict {
			server = i.ListenTo(l, mutual.InstanceName)
		}
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		taken, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		spoken := make(chan struct{})
		go func() {
			defer close(spoken)
			if c.client == nil {
				_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: i\r\n\r\n")
			} else if s := tls.Client(client, c.client); s.Handshake() == nil {
				_, _ = io.WriteString(s, "x")
			}
			_ = client.(*net.TCPConn).CloseWrite()
		}()
		_, _ = taken.Read(make([]byte, 1))
		<-spoken
		_, _ = taken.Close(), client.Close()
		_ = l.Close()
		said := log.String()
		if c.says == "" && said != "" || c.says != "" && (strings.Count(said, "\n") != 1 || !strings.Contains(said, c.says) || !strings.Contains(said, `"function":"f"`)) {
			t.Errorf("%s: it says %q, want %q once", name, said, c.says)
		}
	}
}

// Wrong files are a sentence at the start that names the file.
func TestWrongFiles(t *testing.T) {
	good := mutualtest.Certificate{Names: []string{mutual.ProviderName}}
	day := time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		make func(t *testing.T, dir string)
		says string
	}{
		"nothing there": {func(*testing.T, string) {}, "the file tls.crt is missing"},
		"no authority": {func(t *testing.T, dir string) {
			authority(t).Issue(t, dir, good)
			_ = os.Remove(filepath.Join(dir, "ca.crt"))
		}, "the file ca.crt is missing"},
		"an empty authority": {func(t *testing.T, dir string) {
			authority(t).Issue(t, dir, good)
			_ = os.WriteFile(filepath.Join(dir, "ca.crt"), nil, 0o600)
		}, "ca.crt has no certificate"},
		"the key of another": {func(t *testing.T, dir string) {
			authority(t).Issue(t, dir, good)
			authority(t).Issue(t, dir+"-2", good)
			_ = os.Rename(filepath.Join(dir+"-2", "tls.key"), filepath.Join(dir, "tls.key"))
		}, "private key does not match public key"},
		"the authority of another": {func(t *testing.T, dir string) {
			authority(t).Issue(t, dir, good)
			authority(t).Issue(t, dir+"-2", good)
			_ = os.Rename(filepath.Join(dir+"-2", "ca.crt"), filepath.Join(dir, "ca.crt"))
		}, "issued by an authority in ca.crt"},
		"an authority of before": {func(t *testing.T, dir string) { mutualtest.NewAuthority(t, day).Issue(t, dir, good) }, "ca.crt: the authority expired on " + day.Format(time.DateOnly)},
		"a certificate of before": {func(t *testing.T, dir string) {
			authority(t).Issue(t, dir, mutualtest.Certificate{Names: good.Names, Until: day})
		}, "tls.crt expired on " + day.Format(time.DateOnly)},
		"another name": {func(t *testing.T, dir string) {
			authority(t).Issue(t, dir, mutualtest.Certificate{Names: []string{"faas-infer.openfaas.svc"}})
		}, "for the DNS name " + mutual.ProviderName},
		"a server's only": {func(t *testing.T, dir string) {
			authority(t).Issue(t, dir, mutualtest.Certificate{Names: good.Names, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		}, "client auth"},
	} {
		dir := filepath.Join(t.TempDir(), "tls")
		c.make(t, dir)
		if _, err := mutual.Open(dir, mutual.ProviderName, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// The certificates of provider and instances must fit.
func TestFits(t *testing.T) {
	a := authority(t)
	provider, _ := identity(t, a, mutual.ProviderName)
	instance, _ := identity(t, a, mutual.InstanceName)
	if err := provider.Fits(instance); err != nil {
		t.Error(err)
	}
	stranger, _ := identity(t, authority(t), mutual.InstanceName)
	if err := provider.Fits(stranger); err == nil || !strings.Contains(err.Error(), "ca.crt of --tls") {
		t.Errorf("another authority: %v", err)
	}
}

// No certificate of instances is good for the provider, neither at the start nor after a renewal.
func TestNoInstanceIsTheProvider(t *testing.T) {
	a, dir := authority(t), t.TempDir()
	for _, name := range []string{mutual.ProviderName, "*.faas-infer"} {
		a.Issue(t, dir, mutualtest.Certificate{Names: []string{mutual.InstanceName, name}})
		if _, err := mutual.Open(dir, mutual.InstanceName, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "pass for the provider") {
			t.Errorf("an instance that is also %s: %v", name, err)
		}
	}
	instance, dir := identity(t, a, mutual.InstanceName)
	before := string(instance.Files()["tls.crt"])
	a.Issue(t, dir, mutualtest.Certificate{Names: []string{mutual.InstanceName, mutual.ProviderName}})
	if string(instance.Files()["tls.crt"]) != before {
		t.Error("a renewed certificate makes instances the provider")
	}
}

// A client that says nothing costs the server no handshake, and one that breaks off in the middle ends.
func TestBrokenClients(t *testing.T) {
	instance, _ := identity(t, authority(t), names...)
	at := serve(t, instance)
	for _, text := range []string{"", "\x16", "\x16\x03\x01\x00\x05hello", "GET /ready HTTP/1.1\r\nHost: i\r\nConnection: close\r\n\r\n"} {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.(*net.TCPConn).CloseWrite()
		answer, _ := io.ReadAll(conn)
		if ok := strings.HasPrefix(string(answer), "HTTP/1.1 200"); ok != strings.HasPrefix(text, "GET") {
			t.Errorf("%q gets %q", text, answer)
		}
		_ = conn.Close()
	}
}

// BenchmarkExchange sends batches of eight members over one kept connection, as the dispatcher does,
// and reads an answer, with and without TLS.
func BenchmarkExchange(b *testing.B) {
	a := authority(b)
	instance, _ := identity(b, a, names...)
	provider, _ := identity(b, a, mutual.ProviderName)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{ConnContext: mutual.WithConn, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "0123456789")
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(instance.Listen(l))
	}()
	defer func() { _ = server.Close(); <-done }()
	for _, size := range []int{128, 8 << 10} {
		for _, network := range []string{"tcp", mutual.Network} {
			b.Run(fmt.Sprintf("%d/%s", size, network), func(b *testing.B) {
				conn, err := provider.Dial(b.Context(), network, l.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				defer conn.Close()
				in, member := bufio.NewReader(conn), make([]byte, size)
				head := fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: i\r\nContent-Length: %d\r\n\r\n", 8*size)
				for b.Loop() {
					batch := net.Buffers{head}
					for range 8 {
						batch = append(batch, member)
					}
					if network == mutual.Network {
						batch = net.Buffers{bytes.Join(batch, nil)}
					}
					if _, err := batch.WriteTo(conn); err != nil {
						b.Fatal(err)
					}
					answer, err := http.ReadResponse(in, nil)
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, answer.Body)
				}
			})
		}
	}
	b.Run("handshake", func(b *testing.B) {
		for b.Loop() {
			conn, err := provider.Dial(b.Context(), mutual.Network, l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			_ = conn.Close()
		}
	})
}
