package client

import (
	"fmt"

	"github.com/go-logr/logr"
	"github.com/rs/zerolog"
	"k8s.io/klog/v2"
)

// RouteLogs sends client-go's log to log, for the whole program. Its messages become
// debug lines. Its errors become warnings, because client-go retries by itself.
func RouteLogs(log zerolog.Logger) {
	klog.SetLogger(logr.New(sink{log.With().Str("by", "client-go").Logger()}))
}

type sink struct{ log zerolog.Logger }

// Init implements [logr.LogSink].
func (sink) Init(logr.RuntimeInfo) {}

// Enabled implements [logr.LogSink].
func (s sink) Enabled(level int) bool { return level == 0 }

// Info implements [logr.LogSink].
func (s sink) Info(_ int, message string, values ...any) {
	withFields(s.log.Debug(), values).Msg(message)
}

// Error implements [logr.LogSink].
func (s sink) Error(err error, message string, values ...any) {
	withFields(s.log.Warn().Err(err), values).Msg(message)
}

// WithValues implements [logr.LogSink].
func (s sink) WithValues(values ...any) logr.LogSink {
	with := s.log.With()
	for i := 0; i+1 < len(values); i += 2 {
		with = with.Str(fmt.Sprint(values[i]), fmt.Sprint(values[i+1]))
	}
	return sink{with.Logger()}
}

// WithName implements [logr.LogSink].
func (s sink) WithName(name string) logr.LogSink {
	return sink{s.log.With().Str("part", name).Logger()}
}

// withFields adds keys and values to a line.
func withFields(line *zerolog.Event, values []any) *zerolog.Event {
	for i := 0; i+1 < len(values); i += 2 {
		line = line.Str(fmt.Sprint(values[i]), fmt.Sprint(values[i+1]))
	}
	return line
}
