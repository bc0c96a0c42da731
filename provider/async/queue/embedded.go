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

// Users of the embedded server: this process, and clients over the network.
const (
	ownUser   = "faas-infer"
	guestUser = "guest"
)

// maxTries is how often the server tries to listen at an address that was free a moment
// before.
const maxTries = 5

// maxGuests is the maximum number of network connections to the embedded server.
const maxGuests = 256

// embedded is a NATS server in this process. restart replaces it by another one in the
// same directory.
type embedded struct {
	running  atomic.Pointer[server.Server]
	options  BrokerOptions
	password string
	log      *serverLog
	// host and port are the address to listen at, host is "" for none. opened is set
	// once listen has been called.
	host   string
	port   atomic.Int64
	opened atomic.Bool
	// checked is the time of the last check of the disk, in ns since 1970. full is its
	// result.
	checked atomic.Int64
	full    atomic.Pointer[error]
}

// startEmbedded starts a server and returns when its streams are open. The server calls
// troubled when it logs an error.
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

// run starts a server and returns when it is ready. The server does not listen yet.
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

// restart replaces the server by another one. That one opens the streams again, which
// clears a write error. Clients reconnect by themselves.
func (e *embedded) restart(ctx context.Context) error {
	e.close()
	return e.run(ctx)
}

// InProcessConn is the method of nats.InProcessConnProvider. It connects to the server
// that runs now.
func (e *embedded) InProcessConn() (net.Conn, error) { return e.running.Load().InProcessConn() }

func (e *embedded) settings() *server.Options {
	every := e.options.Sync
	if every == 0 {
		every = DefaultSync
	}
	return &server.Options{
		ServerName: "faas-infer", NoSigs: true, NoSystemAccount: true,
		JetStream: true, StoreDir: e.options.Dir, JetStreamMaxMemory: 1 << 20,
		// The streams have their own limits, and room checks the disk.
		JetStreamMaxStore: 1 << 60,
		SyncInterval:      every, SyncAlways: e.options.SyncAlways, DisableJetStreamBanner: true,
		// It listens later, when publishers can be answered: see listen.
		DontListen: true, Host: e.host, Port: int(e.port.Load()),
		MaxPayload: MaxPayload, MaxPending: 8 * MaxPayload, MaxConn: maxGuests,
		// A client that sends without a pause must not fill the memory.
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

// resolve parses the address to listen at and checks that it is free.
func (e *embedded) resolve(listen string) error {
	if listen == "" || listen == Off {
		return nil
	}
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--nats-listen is %q: it must be HOST:PORT, for example 127.0.0.1:4222, or %s: %w", listen, Off, err)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("--nats-listen is %q: the port must be a number from 0 to 65535", listen)
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

// checkPort waits until an address is free. The server itself would not wait, and would
// report a taken port only in its log.
func checkPort(listen string) error {
	if err := web.CheckFree(listen); err != nil {
		return fmt.Errorf("the queue cannot listen for the gateway: %w; stop the program that listens there, or set --nats-listen to another address or %s", err, Off)
	}
	return nil
}

// sound returns an error if a stream could not be opened or written. A busy server is
// sound.
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

// listen lets clients connect over the network, if there is an address to listen at.
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
		e.port.Store(int64(at.Port)) // A port that the kernel chose stays the same over a restart.
	}
	return nil
}

// accept makes the server listen. Another process may take the address for a moment
// after checkPort, so accept repeats both.
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

// shut reports whether the server should listen and does not, as after a restart.
func (e *embedded) shut() bool {
	return e.opened.Load() && e.host != "" && e.running.Load().Addr() == nil
}

// address returns the address at which the server listens, "" if it does not.
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
