package mutual

import (
	"crypto/tls"
	"time"

	"github.com/rs/zerolog"
)

// Given returns an identity for [Identity.Listen] whose certificates a function finds for each
// handshake, for example from an authority that speaks ACME. protocols are further protocols
// of TLS for which it finds some. The identity asks clients for no certificate, and fits no other use.
func Given(find func(*tls.ClientHelloInfo) (*tls.Certificate, error), log zerolog.Logger, protocols ...string) *Identity {
	i := &Identity{log: log}
	i.now.Store(&material{server: &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: find, NextProtos: append([]string{"http/1.1"}, protocols...),
		SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
	}})
	return i
}

// Expires returns when the certificate expires, the zero time for one that is [Given].
func (i *Identity) Expires() time.Time {
	m := i.now.Load()
	if m.pair.Leaf == nil {
		return time.Time{}
	}
	return m.pair.Leaf.NotAfter
}

// expiryPause is the time between two lines of a log that say that a certificate has expired.
const expiryPause = time.Minute

// warnExpired logs that the certificate has expired, because clients only see that TLS fails.
func (i *Identity) warnExpired(now time.Time) {
	expires := i.Expires()
	if expires.IsZero() || !now.After(expires) {
		return
	}
	last := i.warned.Load()
	if last != nil && now.Sub(*last) < expiryPause || !i.warned.CompareAndSwap(last, &now) {
		return
	}
	i.log.Error().Str("directory", i.dir).Time("expired", expires).Msg("tls.crt has expired, so clients refuse connections: renew it")
}
