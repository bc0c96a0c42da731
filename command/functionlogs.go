package command

import (
	"context"
	"time"

	openfaas "github.com/openfaas/faas-provider/logs"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster/local/logs"
	"github.com/faas-infer/faas-infer/provider"
)

// functionLogs reads functions' output from the log files of the local backend.
type functionLogs struct {
	files *logs.Store
	// name returns the name by which the logs of a function's instances are kept; nil for its own.
	name func(function string) string
	log  zerolog.Logger
}

var _ provider.LogSource = functionLogs{}

// pendingLines is how many lines may wait for a client that reads slowly. Beyond that,
// the reader of the files waits for the client.
const pendingLines = 256

// Query implements [provider.LogSource].
func (f functionLogs) Query(ctx context.Context, q openfaas.Request) (<-chan openfaas.Message, error) {
	function := provider.FullName(q.Name, q.Namespace)
	if f.name != nil {
		function = f.name(function)
	}
	var since time.Time
	if q.Since != nil {
		since = *q.Since
	}
	reader, err := f.files.Reader(logs.Query{Function: function, Instance: q.Instance, Since: since, Tail: q.Tail, Follow: q.Follow})
	if err != nil {
		return nil, err
	}
	return logs.Stream(ctx, reader, pendingLines, func(l logs.Line) openfaas.Message {
		return openfaas.Message{Name: q.Name, Namespace: q.Namespace, Instance: l.Instance, Timestamp: l.Time, Text: l.Text}
	}, func(err error) {
		f.log.Error().Err(err).Str("function", function).Msg("cannot read a function's logs to their end")
	}), nil
}
