package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Users of the embedded server: this process, and whoever connects over the
// network.
const (
	ownUser   = "faas-infer"
	guestUser = "guest"
)

// mostGuests is how many network connections the embedded server takes.
const mostGuests = 256

// embedded is a NATS server in this process.
type embedded struct {
	server   *server.Server
	options  *server.Options
	password string
	log      *serverLog
	// listens tells whether it is to listen on the network at all.
	listens bool
	// checked is when the disk was looked at last, in ns; full is what was
	// found.
	checked atomic.Int64
	full    atomic.Pointer[error]
}

// startEmbedded starts a server and returns when its streams are open. troubled is
// called when it logs an error.
func startEmbedded(ctx context.Context, o Options, troubled func()) (*embedded, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of the queue: %w", err)
	}
	e := &embedded{password: rand.Text(), log: newServerLog(o.Logger, troubled)}
	var err error
	if e.options, err = e.settings(o); err != nil {
		return nil, err
	}
	if err := checkPort(o.Listen); err != nil {
		return nil, err
	}
	if e.server, err = server.NewServer(e.options); err != nil {
		return nil, fmt.Errorf("NATS server: %w", err)
	}
	e.server.SetLoggerV2(e.log, false, false, false)
	go e.server.Start()
	if err := e.await(ctx); err != nil {
		e.close()
		return nil, err
	}
	if err := e.sound(); err != nil {
		e.close()
		return nil, fmt.Errorf("the queue in %s cannot be opened: %w; move that directory away (its requests are lost to this provider) or restore it, and start again", o.Dir, err)
	}
	return e, nil
}

func (e *embedded) settings(o Options) (*server.Options, error) {
	if o.Sync == 0 {
		o.Sync = DefaultSync
	}
	s := &server.Options{
		ServerName: "faas-infer", NoSigs: true, NoSystemAccount: true,
		JetStream: true, StoreDir: o.Dir, JetStreamMaxMemory: 1 << 20,
		// The streams have limits of their own; the disk is looked at by room.
		JetStreamMaxStore: 1 << 60,
		SyncInterval:      o.Sync, SyncAlways: o.SyncAlways, DisableJetStreamBanner: true,
		MaxPayload: MaxPayload, MaxPending: 8 * MaxPayload, MaxConn: mostGuests,
		// A guest that sends without a pause must not fill the memory.
		StreamMaxBufferedSize: 4 * MaxPayload, StreamMaxBufferedMsgs: 1 << 17,
		NoAuthUser: guestUser,
		Users: []*server.User{
			{Username: ownUser, Password: e.password},
			{Username: guestUser, Password: rand.Text(), Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: []string{"_STAN.>"}},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>", "_STAN.acks.>"}},
			}},
		},
	}
	// It listens later, when there is somebody to answer: see listen.
	s.DontListen = true
	if o.Listen == "" || o.Listen == Off {
		return s, nil
	}
	e.listens = true
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("--nats-listen %q must be HOST:PORT, as in 127.0.0.1:4222, or %s: %w", o.Listen, Off, err)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 {
		return nil, fmt.Errorf("--nats-listen %q: the port must be a number from 0 to 65535", o.Listen)
	}
	s.Host, s.Port = host, n
	if host == "" {
		s.Host = "0.0.0.0"
	}
	if n == 0 {
		s.Port = server.RANDOM_PORT
	}
	return s, nil
}

// checkPort tries an address, since the server itself tells of a port that is
// taken only in its log.
func checkPort(listen string) error {
	if listen == "" || listen == Off {
		return nil
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("the queue cannot listen for the gateway: %w; stop what listens there, or give --nats-listen another address or %s", err, Off)
	}
	return l.Close()
}

// await returns when the server is ready. Opening a long queue takes a while.
func (e *embedded) await(ctx context.Context) error {
	for !e.server.ReadyForConnections(50 * time.Millisecond) {
		if err := e.log.fatal(); err != nil {
			return fmt.Errorf("NATS server: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("NATS server: %w", err)
		}
	}
	if err := e.log.fatal(); err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	return nil
}

// sound tells what is wrong with the streams: one that could not be opened or
// written; nil if nothing is. A server that is merely busy is sound.
func (e *embedded) sound() error {
	if !e.server.JetStreamEnabled() {
		return errors.New("JetStream is off")
	}
	for _, wrong := range e.server.Healthz(&server.HealthzOptions{Details: true}).Errors {
		switch wrong.Type {
		case server.HealthzErrorStream, server.HealthzErrorJetStream, server.HealthzErrorAccount:
			return errors.New(wrong.Error)
		default:
		}
	}
	return nil
}

// listen lets clients connect over the network.
func (e *embedded) listen() error {
	if !e.listens {
		return nil
	}
	if err := checkPort(net.JoinHostPort(e.options.Host, strconv.Itoa(max(e.options.Port, 0)))); err != nil {
		return err
	}
	ready := make(chan struct{})
	e.server.AcceptLoop(ready)
	<-ready
	if err := e.log.fatal(); err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	return nil
}

// address is where the server listens, "" if nowhere.
func (e *embedded) address() string {
	if a := e.server.Addr(); a != nil {
		return a.String()
	}
	return ""
}

// restartJetStream closes the streams and opens them again, which clears a write
// error. Connections stay.
func (e *embedded) restartJetStream() error {
	if err := e.server.ShutdownJetStream(); err != nil {
		return err
	}
	return e.server.EnableJetStream(&server.JetStreamConfig{
		StoreDir: e.options.StoreDir, MaxMemory: e.options.JetStreamMaxMemory, MaxStore: e.options.JetStreamMaxStore,
		SyncInterval: e.options.SyncInterval, SyncAlways: e.options.SyncAlways, Strict: true,
	})
}

func (e *embedded) close() {
	if e.server != nil {
		e.server.Shutdown()
		e.server.WaitForShutdown()
	}
}
