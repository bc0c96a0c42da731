package queue

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/rs/zerolog"
)

// directory makes a directory with files, as Kubernetes mounts a Secret.
func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// authority is a certificate authority of a test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         string
}

// issue makes a certificate signed by a, or an authority that signs itself if a is nil. It
// returns the certificate and its key in PEM.
func (a *authority) issue(t *testing.T, name string) (certificate, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, k
	if a.key == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		parent, signer = a.certificate, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, k.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	key = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	if a.key == nil {
		a.key, a.pem = k, certificate
		if a.certificate, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := new(authority)
	a.issue(t, "authority")
	return a
}

// keptBy publishes a message at a server with a login, and reads it back.
func keptBy(t *testing.T, url string, login Login) error {
	t.Helper()
	b := open(t, func(o *BrokerOptions) { o.URL, o.Login = url, login })
	defer b.Close()
	if err := b.Usable(); err != nil {
		return err
	}
	if err := publish(t, b, "x"); err != nil {
		return err
	}
	if queued(t, b) == 0 {
		return fmt.Errorf("nothing is queued")
	}
	return nil
}

// The broker logs in with what a Secret holds, and is refused without.
func TestLogin(t *testing.T) {
	public, seed, _ := keys(t, nkeys.CreateUser)
	ofAnOperator, creds := operated(t)
	for _, c := range []struct {
		name   string
		server func(o *server.Options)
		files  map[string]string
	}{
		{"user", func(o *server.Options) { o.Username, o.Password = "queue", "p@ss/word" }, map[string]string{"username": "queue\n", "password": "p@ss/word\n", "gateway-username": "g"}},
		{"token", func(o *server.Options) { o.Authorization = "s3cret" }, map[string]string{"token": "s3cret"}},
		{"nkey", func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} }, map[string]string{"nkey": seed}},
		{"creds", ofAnOperator, map[string]string{"user.creds": creds}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, url := external(t, func(o *server.Options) { o.JetStreamMaxStore = 64 << 30; c.server(o) })
			if err := keptBy(t, url, Login{Credentials: directory(t, c.files)}); err != nil {
				t.Error(err)
			}
			if err := keptBy(t, url, Login{}); err == nil || !strings.Contains(err.Error(), "--nats-credentials") {
				t.Errorf("without: %v", err)
			}
		})
	}
}

// keys makes a pair of keys, and returns the public one and the seed.
func keys(t *testing.T, make func() (nkeys.KeyPair, error)) (public, seed string, pair nkeys.KeyPair) {
	t.Helper()
	pair, err := make()
	if err == nil {
		public, err = pair.PublicKey()
	}
	var secret []byte
	if err == nil {
		secret, err = pair.Seed()
	}
	if err != nil {
		t.Fatal(err)
	}
	return public, string(secret), pair
}

// operated returns the settings of a server that admits the users of an operator's account,
// and the file user.creds of such a user.
func operated(t *testing.T) (settings func(o *server.Options), creds string) {
	t.Helper()
	operator, _, signer := keys(t, nkeys.CreateOperator)
	system, _, _ := keys(t, nkeys.CreateAccount)
	account, _, accountSigner := keys(t, nkeys.CreateAccount)
	user, seed, _ := keys(t, nkeys.CreateUser)
	resolver := &server.MemAccResolver{}
	for _, name := range []string{system, account} {
		claims := jwt.NewAccountClaims(name)
		if name == account {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1, Streams: -1, Consumer: -1}
		}
		token, err := claims.Encode(signer)
		if err == nil {
			err = resolver.Store(name, token)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	token, err := jwt.NewUserClaims(user).Encode(accountSigner)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.FormatUserConfig(token, []byte(seed))
	if err != nil {
		t.Fatal(err)
	}
	return func(o *server.Options) {
		o.TrustedKeys, o.AccountResolver, o.SystemAccount = []string{operator}, resolver, system
	}, string(text)
}

// A password that changes holds from the next connection on, without a new start.
func TestChangedPassword(t *testing.T) {
	_, url := external(t, func(o *server.Options) { o.JetStreamMaxStore, o.Username, o.Password = 64<<30, "queue", "new" })
	dir := directory(t, map[string]string{"username": "queue", "password": "old"})
	b := open(t, func(o *BrokerOptions) { o.URL, o.Login = url, Login{Credentials: dir} })
	if err := b.Usable(); err == nil || strings.Contains(err.Error(), "old") {
		t.Errorf("with the old password: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "password"), []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	becomesUsable(t, b)
}

// A seed that changes does not matter before the next start: a connection that is made again fits
// the user of the first one, which the server knows.
func TestChangedSeed(t *testing.T) {
	public, seed, _ := keys(t, nkeys.CreateUser)
	_, other, _ := keys(t, nkeys.CreateUser)
	_, url := external(t, func(o *server.Options) {
		o.JetStreamMaxStore, o.Nkeys = 64<<30, []*server.NkeyUser{{Nkey: public}}
	})
	dir := directory(t, map[string]string{"nkey": seed})
	b := open(t, func(o *BrokerOptions) { o.URL, o.Login = url, Login{Credentials: dir} })
	becomesUsable(t, b)
	if err := os.WriteFile(filepath.Join(dir, "nkey"), []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	again := b.publishing.StatusChanged(nats.CONNECTED)
	if err := b.publishing.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-again:
	case <-time.After(time.Minute):
		t.Fatalf("it does not connect again: %v", b.publishing.LastError())
	}
	if err := publish(t, b, "x"); err != nil {
		t.Error(err)
	}
}

// The broker checks the server's certificate, and shows its own where the server asks.
func TestTLS(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	certificate, key := ours.issue(t, "nats")
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ours.certificate)
	_, url := external(t, func(o *server.Options) {
		o.JetStreamMaxStore, o.Username, o.Password = 64<<30, "queue", "secret"
		o.TLS, o.TLSVerify, o.TLSTimeout = true, true, 10
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12}
	})
	credentials := directory(t, map[string]string{"username": "queue", "password": "secret"})
	client, clientKey := ours.issue(t, "provider")
	files := map[string]string{"ca.crt": ours.pem, "tls.crt": client, "tls.key": clientKey}
	if err := keptBy(t, url, Login{Credentials: credentials, TLS: directory(t, files)}); err != nil {
		t.Error(err)
	}
	for what, files := range map[string]map[string]string{
		"another authority":        {"ca.crt": others.pem, "tls.crt": client, "tls.key": clientKey},
		"no client certificate":    {"ca.crt": ours.pem},
		"the system's authorities": {"tls.crt": client, "tls.key": clientKey},
	} {
		if err := keptBy(t, url, Login{Credentials: credentials, TLS: directory(t, files)}); err == nil || !strings.Contains(err.Error(), "--nats-tls") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A directory that cannot work is refused at the start, with a sentence that names the flag.
func TestBadLogin(t *testing.T) {
	for want, o := range map[string]BrokerOptions{
		"it has 0 of these":          {Login: Login{Credentials: directory(t, nil)}},
		"it has 2 of these":          {Login: Login{Credentials: directory(t, map[string]string{"token": "a", "nkey": "b"})}},
		"password":                   {Login: Login{Credentials: directory(t, map[string]string{"username": "a"})}},
		"the file nkey is no seed":   {Login: Login{Credentials: directory(t, map[string]string{"nkey": "SUAX"})}},
		"the file token is empty":    {Login: Login{Credentials: directory(t, map[string]string{"token": "\n"})}},
		"ca.crt":                     {Login: Login{TLS: directory(t, nil)}},
		"both tls.crt and tls.key":   {Login: Login{TLS: directory(t, map[string]string{"ca.crt": "x", "tls.key": "y"})}},
		"no certificate in PEM":      {Login: Login{TLS: directory(t, map[string]string{"ca.crt": "x"})}},
		"--nats-replicas is 7":       {Replicas: 7},
		"--nats-replicas is -1":      {Replicas: -1},
		"are for an external server": {Replicas: 3, Dir: t.TempDir()},
	} {
		if o.Dir == "" {
			o.URL = "nats://127.0.0.1:1"
		}
		b, err := OpenBroker(t.Context(), o)
		if err == nil {
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--nats-") {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

// Streams have as many replicas as configured, those that exist too; without a number they
// keep theirs. A server without a cluster refuses with the reason.
func TestReplicas(t *testing.T) {
	urls := clustered(t, 3)
	replicas := func(want int) int {
		t.Helper()
		b := open(t, func(o *BrokerOptions) { o.URL, o.Replicas = strings.Join(urls, ","), want })
		defer b.Close()
		becomesUsable(t, b)
		// A stream has no leader for a moment when its replicas change. A message that is sent
		// then gets no answer.
		for end := time.Now().Add(time.Minute); ; {
			err := publishWithin(b, "x", 5*time.Second)
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
		s, err := b.JetStream().Stream(t.Context(), WorkStream)
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().Config.Replicas
	}
	for _, c := range []struct{ want, is int }{{0, 1}, {3, 3}, {0, 3}, {1, 1}} {
		if got := replicas(c.want); got != c.is {
			t.Errorf("with --nats-replicas %d there are %d", c.want, got)
		}
	}
	_, alone := external(t, func(o *server.Options) { o.JetStreamMaxStore = 64 << 30 })
	b := open(t, func(o *BrokerOptions) { o.URL, o.Replicas = alone, 3 })
	if err := b.Usable(); err == nil || !strings.Contains(err.Error(), "--nats-replicas is 3") {
		t.Errorf("without a cluster: %v", err)
	}
}

// clustered runs a cluster of NATS servers until the test ends.
func clustered(t *testing.T, n int) (urls []string) {
	t.Helper()
	// Each server must know the others' addresses before it starts.
	var routes []*url.URL
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var servers []*server.Server
	for i, own := range routes {
		port, err := strconv.Atoi(own.Port())
		if err != nil {
			t.Fatal(err)
		}
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprint("n", i), Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, StoreDir: t.TempDir(), JetStream: true, JetStreamMaxStore: 64 << 30,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port}, Routes: routes,
		})
		if err != nil {
			t.Fatal(err)
		}
		go s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		servers = append(servers, s)
	}
	for _, s := range servers {
		if !s.ReadyForConnections(time.Minute) {
			t.Fatal("a NATS server does not start")
		}
		urls = append(urls, s.ClientURL())
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == n {
				return urls
			}
		}
		if time.Now().After(end) {
			t.Fatal("the NATS servers elect no leader")
		}
	}
}

// The log has no credentials.
func TestQuietAboutCredentials(t *testing.T) {
	_, url := external(t, func(o *server.Options) { o.Username, o.Password = "queue", "right" })
	var log bytes.Buffer
	b := open(t, func(o *BrokerOptions) {
		o.URL, o.Logger = url, zerolog.New(&log)
		o.Login.Credentials = directory(t, map[string]string{"username": "queue", "password": "hunter2"})
	})
	b.Close()
	if log.Len() == 0 || strings.Contains(log.String(), "hunter2") {
		t.Errorf("the log says %s", log.String())
	}
}
