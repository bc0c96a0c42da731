package command

import (
	"context"
	"crypto/tls"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"github.com/faas-infer/faas-infer/instance/mutual"
)

// register adds the flags of a provider on one machine. Replicas could not answer for each other.
func (a *acmeFlags) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&a.domains, "acme-domain", nil, "names, such as functions.example.com, for which the provider gets certificates by ACME: requests need TLS then, as with --tls. It accepts the authority's terms of service. Port 443 of the name must lead to the provider, or port 80 to it or to --acme-http")
	flags.StringVar(&a.directory, "acme-directory", autocert.DefaultACMEDirectory, "URL of the authority's directory, with --acme-domain")
	flags.StringVar(&a.email, "acme-email", "", "address to which the authority may write about the certificates, with --acme-domain")
	flags.StringVar(&a.http, "acme-http", "", "further address, such as :80, that answers the authority's questions over HTTP and redirects other requests to https, with --acme-domain")
}

// certificates are those that an authority issues by ACME. They are kept on the disk, and renewed 30
// days before they expire.
type certificates struct {
	*autocert.Manager
	identity *mutual.Identity
	domains  []string
	// log writes a line a minute at most: any client can cause one.
	log zerolog.Logger

	mu      sync.Mutex
	expires map[string]time.Time
}

// certificates returns those of --acme-domain, nil without it. Nothing is asked for yet.
func (a *acmeFlags) certificates(state string, log zerolog.Logger) *certificates {
	if len(a.domains) == 0 {
		return nil
	}
	listed := autocert.HostWhitelist(a.domains...)
	c := &certificates{
		domains: a.domains, expires: map[string]time.Time{}, log: log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute}),
		Manager: &autocert.Manager{
			Prompt: autocert.AcceptTOS, Email: a.email, Cache: autocert.DirCache(filepath.Join(state, "acme")),
			Client: &acme.Client{DirectoryURL: a.directory, UserAgent: "faas-infer"},
			HostPolicy: func(ctx context.Context, host string) error {
				if name, _, err := net.SplitHostPort(host); err == nil {
					host = name
				}
				return listed(ctx, host)
			},
		},
	}
	c.identity = mutual.Given(c.find, log, acme.ALPNProto)
	return c
}

// withECDSA are the cipher suites of a client that can use a certificate with an ECDSA key. Every client
// with TLS 1.3 can, but shows only suites that do not say so, and would get a second certificate.
var withECDSA = []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}

// find returns the certificate for a handshake. It asks the authority for one that is not there, which
// may take seconds.
func (c *certificates) find(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	h := *hello
	h.CipherSuites = withECDSA
	found, err := c.GetCertificate(&h)
	question := slices.Equal(hello.SupportedProtos, []string{acme.ALPNProto}) // The authority asks.
	switch {
	case err != nil && (question || c.HostPolicy(context.Background(), h.ServerName) != nil):
		return nil, err
	case err != nil:
		c.log.Error().Err(err).Str("domain", h.ServerName).Msg("there is no certificate: the authority must reach the provider at port 443 of the name, or at port 80")
		return nil, err
	case !question && found.Leaf != nil:
		c.note(h.ServerName, found.Leaf.NotAfter, time.Now())
	}
	return found, nil
}

// note remembers when a certificate expires.
func (c *certificates) note(domain string, expires, now time.Time) {
	c.mu.Lock()
	c.expires[strings.ToLower(strings.TrimSuffix(domain, "."))] = expires
	c.mu.Unlock()
	if now.After(expires) {
		c.log.Error().Str("domain", domain).Time("expired", expires).Msg("the certificate has expired and could not be renewed, so clients refuse connections")
	}
}

// firstExpiry is when the first of the certificates expires, the zero time if there is none yet.
func (c *certificates) firstExpiry() (first time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.expires {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// obtain gets the certificates, so that the first clients need not wait for them.
func (c *certificates) obtain() {
	for _, name := range c.domains {
		_, _ = c.find(&tls.ClientHelloInfo{ServerName: name}) // It logs the error.
	}
}
