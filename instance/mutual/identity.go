// Package mutual makes TLS connections on which both sides may show a certificate, between the
// provider's replicas and between the provider and instances. It reads a party's certificate, key
// and authorities from a directory, and again when the files change. It does not issue
// certificates. Begin reading at [Open], then [Identity.Listen], [Identity.Client] and [Guard].
package mutual

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

const (
	// ProviderName is the DNS name in the provider's certificate. It says who a party is, whatever
	// address it has.
	ProviderName = "provider.faas-infer"
	// InstanceName is the DNS name in the certificate of instances.
	InstanceName = "instance.faas-infer"
	// Network is the network of instances that speak TLS, beside "tcp" and "unix".
	Network = "tls"
)

// handshakeTime bounds a client's handshake.
const handshakeTime = 5 * time.Second

// files are the names of a directory's files: those of a Secret of the type kubernetes.io/tls to
// which cert-manager adds the authorities.
var files = [...]string{"tls.crt", "tls.key", "ca.crt"}

// Dial connects to a network and address, as [net.Dialer.DialContext].
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// Identity is a party's certificate and key, and the authorities by which it knows others. It is
// safe for concurrent use.
type Identity struct {
	dir, name string
	log       zerolog.Logger

	mu sync.Mutex
	// found are the files of now; failed are those that could not be read, which was logged.
	found, failed stamp
	// now is changed under mu. looked is when renewed looked at the files, complained when refused
	// logged, and warned when warnExpired did; nil for never.
	now                        atomic.Pointer[material]
	looked, complained, warned atomic.Pointer[time.Time]
}

// material is the contents of a directory.
type material struct {
	texts       map[string][]byte
	pair        tls.Certificate
	authorities *x509.CertPool
	server      *tls.Config
}

// stamp tells whether files have changed.
type stamp [len(files)]os.FileInfo

func (s *stamp) equal(o *stamp) bool {
	for n := range s {
		a, b := s[n], o[n]
		if a == nil || b == nil || !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) {
			return false
		}
	}
	return true
}

// Open reads a directory with tls.crt, tls.key and ca.crt. The certificate must have the DNS name
// and be good for both sides of a connection. The error names the file and the fix.
func Open(dir, name string, log zerolog.Logger) (*Identity, error) {
	i := &Identity{dir: dir, name: name, log: log}
	found, err := i.look()
	if err == nil {
		i.found = found
		var m *material
		m, err = i.read()
		i.now.Store(m)
	}
	if err != nil {
		return nil, err
	}
	return i, nil
}

// look returns the stamp of the files.
func (i *Identity) look() (s stamp, err error) {
	for n, name := range files {
		if s[n], err = os.Stat(filepath.Join(i.dir, name)); errors.Is(err, fs.ErrNotExist) {
			return s, fmt.Errorf("the file %s is missing: the directory must have %s, for example as the mount of a Secret that cert-manager has made", name, strings.Join(files[:], ", "))
		} else if err != nil {
			return s, fmt.Errorf("the file %s: %w", name, err)
		}
	}
	return s, nil
}

// read reads and checks the files.
func (i *Identity) read() (*material, error) {
	m := &material{texts: map[string][]byte{}}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(i.dir, name))
		if err != nil {
			return nil, fmt.Errorf("the file %s: %w", name, err)
		}
		m.texts[name] = text
	}
	var err error
	if m.pair, err = tls.X509KeyPair(m.texts["tls.crt"], m.texts["tls.key"]); err != nil {
		return nil, fmt.Errorf("tls.crt and tls.key: %w: give a certificate and its own key, both in PEM", err)
	}
	if m.authorities, err = authorities(m.texts["ca.crt"], time.Now()); err != nil {
		return nil, err
	}
	if err := m.check(i.name, time.Now()); err != nil {
		return nil, err
	}
	m.server = &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{m.pair}, NextProtos: []string{"http/1.1"},
		// Gateways and probes have no certificate; Guard decides what they may ask for.
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: m.authorities,
		// A resumed connection would skip the authorities of today.
		SessionTicketsDisabled: true,
		// Nobody shows the beginning of an answer before its end.
		DynamicRecordSizingDisabled: true,
	}
	return m, nil
}

// authorities reads the certificates of ca.crt.
func authorities(text []byte, now time.Time) (*x509.CertPool, error) {
	pool, usable, last := x509.NewCertPool(), 0, time.Time{}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("ca.crt: %w: give the authority's certificate in PEM", err)
		}
		if last.Before(c.NotAfter) {
			last = c.NotAfter
		}
		if !now.After(c.NotAfter) {
			pool.AddCert(c)
			usable++
		}
	}
	switch {
	case last.IsZero():
		return nil, errors.New("ca.crt has no certificate: give the authority's certificate in PEM")
	case usable == 0:
		return nil, fmt.Errorf("ca.crt: the authority expired on %s: renew it, and the certificates that it has issued", last.Format(time.DateOnly))
	}
	return pool, nil
}

// check reports why nobody would accept the certificate as that of a name.
func (m *material) check(name string, now time.Time) error {
	leaf := m.pair.Leaf
	if now.After(leaf.NotAfter) {
		return fmt.Errorf("tls.crt expired on %s: renew it", leaf.NotAfter.Format(time.DateOnly))
	}
	if name == InstanceName && leaf.VerifyHostname(ProviderName) == nil {
		return fmt.Errorf("tls.crt is also good for %s, so each instance could pass for the provider: issue it for %s only", ProviderName, InstanceName)
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if err := m.verify(m.authorities, name, usage, now); err != nil {
			return fmt.Errorf("tls.crt: %w: it must be issued by an authority in ca.crt, for the DNS name %s and for the usages \"server auth\" and \"client auth\"", err, name)
		}
	}
	return nil
}

// verify checks the certificate as another party does.
func (m *material) verify(by *x509.CertPool, name string, usage x509.ExtKeyUsage, now time.Time) error {
	between := x509.NewCertPool()
	for _, raw := range m.pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(raw); err == nil {
			between.AddCert(c)
		}
	}
	_, err := m.pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: by, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: now})
	return err
}

// current returns the contents of the files. Where they cannot be used, for example in the middle of
// a change, the earlier contents hold.
func (i *Identity) current() *material {
	if i.dir == "" { // It is given.
		return i.now.Load()
	}
	defer i.warnExpired(time.Now())
	i.mu.Lock()
	defer i.mu.Unlock()
	found, err := i.look()
	if err == nil && found.equal(&i.found) {
		return i.now.Load()
	}
	var m *material
	if err == nil {
		m, err = i.read()
	}
	switch {
	case err == nil:
		i.found, i.failed = found, stamp{}
		i.now.Store(m)
		i.log.Info().Str("directory", i.dir).Time("expires", m.pair.Leaf.NotAfter).Msg("the certificates were renewed")
	case !found.equal(&i.failed):
		i.failed = found
		i.log.Warn().Err(err).Str("directory", i.dir).Msg("the renewed certificates cannot be used; the earlier ones hold")
	}
	return i.now.Load()
}

// lookPause is the time between two looks at the files for connections that are open.
const lookPause = time.Second

// renewed reports whether the contents that a connection began with are of before. It is quick, and
// looks at the files once a second.
func (i *Identity) renewed(began *material) bool {
	now, last := time.Now(), i.looked.Load()
	if (last == nil || now.Sub(*last) >= lookPause) && i.looked.CompareAndSwap(last, &now) {
		return i.current() != began
	}
	return i.now.Load() != began
}

// Files returns the contents of the files by their names. The caller must not change them.
func (i *Identity) Files() map[string][]byte { return i.current().texts }

// Fits returns why a provider with this certificate and instances with another one do not accept
// each other, nil if they do.
func (i *Identity) Fits(instances *Identity) error {
	mine, theirs := i.current(), instances.current()
	now := time.Now()
	if err := theirs.verify(mine.authorities, InstanceName, x509.ExtKeyUsageServerAuth, now); err != nil {
		return fmt.Errorf("tls.crt does not fit the ca.crt of --tls: %w", err)
	}
	if err := mine.verify(theirs.authorities, ProviderName, x509.ExtKeyUsageClientAuth, now); err != nil {
		return fmt.Errorf("ca.crt does not fit the tls.crt of --tls: %w", err)
	}
	return nil
}

// Client makes a connection to a server with a name secure. After an error conn is closed.
func (i *Identity) Client(ctx context.Context, conn net.Conn, name string) (net.Conn, error) {
	m := i.current()
	secure := tls.Client(conn, &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: name, RootCAs: m.authorities, Certificates: []tls.Certificate{m.pair}, NextProtos: []string{"http/1.1"},
		DynamicRecordSizingDisabled: true,
	})
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("TLS with %s as %s: %w", conn.RemoteAddr(), name, err), conn.Close())
	}
	return secure, nil
}

// Dial returns a function that connects as [net.Dialer.DialContext] does. The network [Network] is
// TLS over TCP to an instance. It fits a nil Identity, which has no certificate for that network.
func (i *Identity) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if network != Network {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	if i == nil {
		return nil, fmt.Errorf("the instance at %s speaks TLS: give this program a certificate with --tls", address)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return i.Client(ctx, conn, InstanceName)
}
