package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/faas-infer/faas-infer/provider/web"
)

// Users of the embedded server: this process, and whoever connects over the
// network.
const (
	ownUser   = "faas-infer"
	guestUser = "guest"
)

// maxTries is how often the server tries to listen at an address that was free
// just before.
const maxTries = 5

// maxGuests is how many network connections the embedded server takes.
const maxGuests = 256

// embedded is a NATS server in this process. It may be replaced by another one in
// the same directory: see restart.
type embedded struct {
	running  atomic.Pointer[server.Server]
	options  BrokerOptions
	password string
	log      *serverLog
	// host and port are where it is to listen, host is "" for nowhere; opened
	// tells that it has been told to.
	host   string
	port   atomic.Int64
	opened atomic.Bool
	// checked is when the disk was looked at last, in ns; full is what was
	// found.
	checked atomic.Int64
	full    atomic.Pointer[error]
}

// startEmbedded starts a server and returns when its streams are open. troubled is
// called when it logs an error.
func startEmbedded(ctx context.Context, o BrokerOptions, troubled func()) (*embedded, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of the queue: %w", err)
	}
	e := &embedded{options: o, password: rand.Text(), log: newServerLog(o.Logger, troubled)}
	if err := e.resolve(o.Listen); err != nil {
		return nil, err
	}
	if err := e.run(ctx); err != nil {
		e.close()
		return nil, err
	}
	if err := e.sound(); err != nil {
		e.close()
		return nil, fmt.Errorf("the queue in %s cannot be opened: %w; move that directory away (its requests are lost to this provider) or restore it, and start again", o.Dir, err)
	}
	return e, nil
}

// run starts a server, which listens nowhere yet, and returns when it is ready.
// Opening a long queue takes a while.
func (e *embedded) run(ctx context.Context) error {
	e.log.first.Store(nil)
	s, err := server.NewServer(e.settings())
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	e.running.Store(s)
	s.SetLoggerV2(e.log, false, false, false)
	go s.Start()
	for !s.ReadyForConnections(50*time.Millisecond) && e.log.fatal() == nil && ctx.Err() == nil {
	}
	if err := errors.Join(e.log.fatal(), ctx.Err()); err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	return nil
}

// restart replaces the server by another one, which opens the streams anew and so
// clears a write error. Connections break off and come back by themselves.
func (e *embedded) restart(ctx context.Context) error {
	e.close()
	return e.run(ctx)
}

// InProcessConn is nats.InProcessConnProvider's: a connection to whichever server
// runs.
func (e *embedded) InProcessConn() (net.Conn, error) { return e.running.Load().InProcessConn() }

func (e *embedded) settings() *server.Options {
	every := e.options.Sync
	if every == 0 {
		every = DefaultSync
	}
	return &server.Options{
		ServerName: "faas-infer", NoSigs: true, NoSystemAccount: true,
		JetStream: true, StoreDir: e.options.Dir, JetStreamMaxMemory: 1 << 20,
		// The streams have limits of their own; the disk is looked at by room.
		JetStreamMaxStore: 1 << 60,
		SyncInterval:      every, SyncAlways: e.options.SyncAlways, DisableJetStreamBanner: true,
		// It listens later, when there is somebody to answer: see listen.
		DontListen: true, Host: e.host, Port: int(e.port.Load()),
		MaxPayload: MaxPayload, MaxPending: 8 * MaxPayload, MaxConn: maxGuests,
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
}

// resolve takes the address to listen at apart, and tries it.
func (e *embedded) resolve(listen string) error {
	if listen == "" || listen == Off {
		return nil
	}
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--nats-listen %q must be HOST:PORT, as in 127.0.0.1:4222, or %s: %w", listen, Off, err)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("--nats-listen %q: the port must be a number from 0 to 65535", listen)
	}
	if e.host = host; host == "" {
		e.host = "0.0.0.0"
	}
	if n == 0 {
		n = server.RANDOM_PORT
	}
	e.port.Store(int64(n))
	return checkPort(listen)
}

// checkPort tries an address, since the server itself tells of a port that is
// taken only in its log, and does not wait for one.
func checkPort(listen string) error {
	if err := web.CheckFree(listen); err != nil {
		return fmt.Errorf("the queue cannot listen for the gateway: %w; stop what listens there, or give --nats-listen another address or %s", err, Off)
	}
	return nil
}

// sound tells what is wrong with the streams: one that could not be opened or
// written; nil if nothing is. A server that is merely busy is sound.
func (e *embedded) sound() error {
	if !e.running.Load().JetStreamEnabled() {
		return errors.New("JetStream is off")
	}
	for _, wrong := range e.running.Load().Healthz(&server.HealthzOptions{Details: true}).Errors {
		switch wrong.Type {
		case server.HealthzErrorStream, server.HealthzErrorJetStream, server.HealthzErrorAccount:
			return errors.New(wrong.Error)
		default:
		}
	}
	return nil
}

// listen lets clients connect over the network, if they are to.
func (e *embedded) listen() error {
	e.opened.Store(true)
	if e.host == "" {
		return nil
	}
	s := e.running.Load()
	if err := e.accept(s); err != nil {
		return err
	}
	if at, ok := s.Addr().(*net.TCPAddr); ok {
		e.port.Store(int64(at.Port)) // One that was free is kept over a restart.
	}
	return nil
}

// accept has the server listen. Somebody else may take the address for a moment
// between the look at it and that, so both are tried again.
func (e *embedded) accept(s *server.Server) error {
	at := net.JoinHostPort(e.host, strconv.FormatInt(max(e.port.Load(), 0), 10))
	for tries := 1; ; tries++ {
		if err := checkPort(at); err != nil {
			return err
		}
		ready := make(chan struct{})
		s.AcceptLoop(ready)
		<-ready
		err := e.log.fatal()
		switch {
		case err == nil:
			return nil
		case tries == maxTries || !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()):
			return fmt.Errorf("NATS server: %w", err)
		}
		e.log.first.Store(nil)
	}
}

// shut reports whether clients are to connect and cannot, as after a restart.
func (e *embedded) shut() bool {
	return e.opened.Load() && e.host != "" && e.running.Load().Addr() == nil
}

// address is where the server listens, "" if nowhere.
func (e *embedded) address() string {
	if a := e.running.Load().Addr(); a != nil {
		return a.String()
	}
	return ""
}

func (e *embedded) close() {
	if s := e.running.Load(); s != nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
}
