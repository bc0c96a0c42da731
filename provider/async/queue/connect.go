package queue

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// firstPatience is how long OpenBroker waits for an external server.
const firstPatience = 3 * time.Second

// connect opens both connections.
func (b *Broker) connect() (err error) {
	var login []nats.Option
	if b.embedded == nil {
		if err := checkURL(b.options.URL); err != nil {
			return err
		}
		if login, err = b.options.Login.options(); err != nil {
			return err
		}
		b.probe(login)
	}
	// With a negative buffer, sending fails while the connection is away.
	if b.publishing, err = b.dial(publisher, append(login, nats.ReconnectBufSize(-1))); err != nil {
		return err
	}
	b.settling, err = b.dial("faas-infer consumer", append(login, nats.ReconnectBufSize(settleBuffer)))
	return err
}

// publisher is the name of the publishing connection. Only that connection logs that the
// server has gone or come back.
const publisher = "faas-infer"

// inboxes begins the subjects at which the provider receives requests and answers. Clients
// that may subscribe to the usual _INBOX.> of an external server, such as gateways, do not
// see them.
const inboxes = "_FAAS_INFER"

// settleBuffer is the most bytes of acknowledgements that are buffered while the server
// is away.
const settleBuffer = 16 << 20

func (b *Broker) dial(name string, more []nats.Option) (*nats.Conn, error) {
	options := append([]nats.Option{
		nats.Name(name), nats.CustomInboxPrefix(inboxes), nats.MaxReconnects(-1), nats.ReconnectWait(500 * time.Millisecond), nats.RetryOnFailedConnect(true), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectHandler(func(c *nats.Conn) {
			if b.embedded == nil && name == publisher {
				b.log.Info().Str("server", c.ConnectedUrlRedacted()).Msg("connected to NATS again")
			}
			b.Check()
		}),
		nats.DisconnectErrHandler(func(c *nats.Conn, err error) {
			if !c.IsClosed() && b.embedded == nil && name == publisher {
				b.log.Warn().Err(err).Msg("connection to NATS lost; requests are refused until it is back")
				b.Check()
			}
		}),
		nats.ConnectHandler(func(*nats.Conn) { b.Check() }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			b.log.Warn().Err(err).Msg("NATS")
		}),
	}, more...)
	if b.embedded != nil {
		options = append(options, nats.InProcessServer(b.embedded))
	}
	c, err := nats.Connect(b.options.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return c, nil
}

// probe connects to an external server once. If it cannot, it logs and keeps the reason.
func (b *Broker) probe(login []nats.Option) {
	c, err := nats.Connect(b.options.URL, append(login, nats.Timeout(firstPatience), nats.NoReconnect())...)
	if err == nil {
		c.Close()
		return
	}
	why := b.away(err)
	b.setTrouble(why)
	b.log.Error().Err(why).Msg("asynchronous requests are refused")
}

// away returns the reason why there is no connection to an external server. last is the
// connection's last error.
func (b *Broker) away(last error) error {
	if errors.Is(last, nats.ErrAuthorization) || errors.Is(last, nats.ErrAuthExpired) || errors.Is(last, nats.ErrAuthRevoked) {
		return fmt.Errorf("--nats %s: the server refuses the credentials (%w); correct the files of --nats-credentials, or write them into the URL: nats://USER:PASSWORD@HOST:4222", b.URL(), last)
	}
	if distrusts(last) {
		return fmt.Errorf("--nats %s: there is no TLS connection (%w); --nats-tls needs the server's authority in ca.crt, and the client's certificate if the server asks for one", b.URL(), last)
	}
	if b.options.Login.TLS != "" && hangsUp(last) {
		return fmt.Errorf("--nats %s: the server ends the connection (%w); if it asks for the client's certificate, --nats-tls needs tls.crt and tls.key", b.URL(), last)
	}
	return fmt.Errorf("NATS cannot be reached at %s; the provider keeps trying", b.URL())
}

func checkURL(servers string) error {
	for one := range strings.SplitSeq(servers, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil {
			return fmt.Errorf("--nats is %q: it must be a URL, for example nats://HOST:4222", redact(one))
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return fmt.Errorf("--nats is %q: it must begin with nats://, tls://, ws:// or wss://, for example nats://HOST:4222", redact(one))
		}
		if u.Hostname() == "" {
			return fmt.Errorf("--nats is %q: it must name a host, for example nats://HOST:4222", redact(one))
		}
	}
	return nil
}

// redact removes the passwords from URLs separated by commas.
func redact(servers string) string {
	var out []string
	for one := range strings.SplitSeq(servers, ",") {
		if u, err := url.Parse(strings.TrimSpace(one)); err == nil {
			one = u.Redacted()
		} else if i := strings.LastIndexByte(one, '@'); i >= 0 {
			one = one[i+1:]
		}
		out = append(out, one)
	}
	return strings.Join(out, ",")
}

// hostPort returns "host:port" of the first of several servers, "" of none.
func hostPort(servers string) string {
	if servers == "" {
		return ""
	}
	first, _, _ := strings.Cut(servers, ",")
	u, err := url.Parse(strings.TrimSpace(first))
	if err != nil {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = strconv.Itoa(nats.DefaultPort)
	}
	return net.JoinHostPort(u.Hostname(), port)
}
