package watchdog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// defaultDrain is how long requests in flight may take at the end where
	// neither exec_timeout nor write_timeout tells.
	defaultDrain = time.Minute
	// stopTime is how long a program that serves may take to leave.
	stopTime = 5 * time.Second
	// headerTime is how long a client may take to send a request's head.
	headerTime = 10 * time.Second
	// idleTime is how long connections are kept between requests. The provider
	// gives them up much sooner: were the watchdog the first, a request might
	// just be on its way.
	idleTime = 5 * time.Minute
)

// Serve answers at the listeners until ctx ends, then takes nothing new,
// finishes what runs, ends the program and returns nil. It returns an
// [upstream.ExitError] if the program of mode HTTP ends by itself. It closes the
// listeners. ready is called once requests are answered.
func (s *Server) Serve(ctx context.Context, listeners []net.Listener, ready func() error) error {
	fresh := &fresh{conns: map[net.Conn]bool{}}
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTime,
		ReadTimeout: s.config.ReadTimeout, WriteTimeout: s.config.WriteTimeout, IdleTimeout: idleTime,
		ErrorLog: s.log.Logger(), ConnState: fresh.note,
	}
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { failed <- server.Serve(l) }()
	}
	running := len(listeners)
	err := ready()
	if err == nil {
		select {
		case <-ctx.Done():
		case <-s.exited():
			err = s.upstream.Exit()
		case err = <-failed:
			running--
		}
	}
	s.stopping.Store(true)
	closing := time.AfterFunc(freshTime, fresh.close)
	defer closing.Stop()
	err = errors.Join(err, s.drain(server, err == nil))
	for range running {
		<-failed
	}
	return err
}

// drain ends the server, in order if there is something to finish.
func (s *Server) drain(server *http.Server, inOrder bool) error {
	patience := max(s.config.ExecTimeout, s.config.WriteTimeout)
	switch {
	case !inOrder:
		patience = time.Second
	case patience == 0:
		patience = defaultDrain
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	if server.Shutdown(ctx) != nil {
		err = server.Close()
		if inOrder {
			err = errors.Join(fmt.Errorf("requests were still in flight after %v", patience), err)
		}
	}
	if s.upstream != nil {
		s.upstream.Stop(stopTime)
	}
	return err
}
