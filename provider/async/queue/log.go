package queue

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/rs/zerolog"
)

// serverLog writes the NATS server's log to ours. Its notices become debug lines: most
// users do not know that there is a NATS server inside.
type serverLog struct {
	log zerolog.Logger
	// first is the first fatal error.
	first atomic.Pointer[string]
	// troubled is called at each error. The server does not answer a publisher whose
	// message it could not write, so its log is the only sign.
	troubled func()
}

func newServerLog(log zerolog.Logger, troubled func()) *serverLog {
	return &serverLog{log: log.With().Str("part", "nats").Logger(), troubled: troubled}
}

// fatal returns the first error that ended the server, nil if there is none.
func (l *serverLog) fatal() error {
	if text := l.first.Load(); text != nil {
		return errors.New(*text)
	}
	return nil
}

func (l *serverLog) Noticef(format string, v ...any) { l.log.Debug().Msgf(format, v...) }
func (l *serverLog) Debugf(string, ...any)           {}
func (l *serverLog) Tracef(string, ...any)           {}

func (l *serverLog) Errorf(format string, v ...any) {
	l.log.Error().Msgf(format, v...)
	l.troubled()
}

func (l *serverLog) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.first.CompareAndSwap(nil, &text)
	l.log.Error().Msg(text)
}

// known are the beginnings of warnings that are not logged. The plaintext password is
// random at each start and stays in this process, and large messages are rare.
var known = []string{"Plaintext passwords detected", "Maximum payloads over"}

func (l *serverLog) Warnf(format string, v ...any) {
	for _, prefix := range known {
		if strings.HasPrefix(format, prefix) {
			return
		}
	}
	l.log.Warn().Msgf(format, v...)
}
