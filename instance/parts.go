package instance

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// PartsEngine is a LendingEngine whose model may compute answers in parts, one after the other. The parts of an
// answer, joined along the first axis of a row, are the whole answer, which the other methods return.
type PartsEngine interface {
	LendingEngine
	// InParts reports whether the model computes its answers in parts.
	InParts() bool
	// RunParts is RunLent, except that the requests of which takes is true get their outputs in parts. It calls take
	// with the position of the request and the next part, whose data are valid until take returns. If take returns
	// false the request needs no more parts. A request that takes parts has no outputs in the result.
	RunParts(ctx context.Context, rows []int, inputs []tensor.Tensor, takes []bool,
		take func(request int, part []tensor.Tensor) (more bool)) (outputs [][]tensor.Tensor, failed []error, release func(), err error)
}

// partsRun hands the parts of a group's answers on.
type partsRun struct {
	server *Server
	group  []member
	takes  []bool
	// begun says that a member has got a part: nothing of the group may run again. failed are the members whose parts
	// could not be written.
	begun  bool
	failed []frame.Response
}

// parts returns what hands the parts of a group's answers on, nil if no member takes any. A member that runs in
// several executions gets its answer as a whole.
func (s *Server) parts(group []member) *partsRun {
	engine, ok := s.engine.(PartsEngine)
	if !ok || !engine.InParts() || len(group) == 1 && group[0].Rows > s.options.MaxBatch {
		return nil
	}
	p := &partsRun{server: s, group: group, takes: make([]bool, len(group)), failed: make([]frame.Response, len(group))}
	some := false
	for i, m := range group {
		p.takes[i] = m.parts != nil
		some = some || p.takes[i]
	}
	if !some {
		return nil
	}
	return p
}

// errNotJSON refuses an answer in parts that is no JSON.
var errNotJSON = errors.New("an answer in parts is JSON, and this request asks for another form; " +
	"leave out Accept: text/event-stream, or ask for JSON")

// take writes a member's next part and hands it on.
func (p *partsRun) take(request int, outputs []tensor.Tensor) (more bool) {
	var response frame.Response
	err := func() (err error) {
		defer p.server.recovered(&err)
		response = p.group[request].RespondPlain(outputs)
		return nil
	}()
	switch {
	case err != nil:
		response = protocol.Failure(http.StatusInternalServerError, err)
	case response.Status == http.StatusOK && response.Header.Get("Content-Type") != "application/json":
		response = protocol.Failure(http.StatusNotAcceptable, errNotJSON)
	case response.Status == http.StatusOK && len(response.Body) > frame.MaxPart:
		response = protocol.Failure(http.StatusRequestEntityTooLarge, fmt.Errorf(
			"a part of the answer has %d bytes; at most %d are allowed; yield smaller parts, or send fewer rows in a request",
			len(response.Body), frame.MaxPart))
	case response.Status == http.StatusOK:
		p.begun = true
		return p.group[request].parts(response.Body) == nil
	}
	p.failed[request] = response
	return false
}

// respond is the end of an answer in parts. failed is why it ended early, nil if it did not.
func (p *partsRun) respond(request int, failed error) frame.Response {
	switch {
	case p.failed[request].Status != 0:
		return p.failed[request]
	case failed != nil:
		return protocol.Failure(statusOf(failed), failed)
	}
	return frame.Response{Status: http.StatusOK, Header: http.Header{}}
}

// partsKey is the context key of a partsRun.
type partsKey struct{}

// with returns the context of a run of p's group. p may be nil.
func (p *partsRun) with(ctx context.Context) context.Context {
	if p == nil {
		return ctx
	}
	return context.WithValue(ctx, partsKey{}, p)
}

// partsWriter writes a batch's answer in parts.
type partsWriter struct {
	http.ResponseWriter
	begun bool
	err   error
}

// errGone ends the parts of requests whose dispatcher has hung up.
var errGone = errors.New("the dispatcher has hung up")

// setParts makes the members take their answers in parts, as the headers of the batch say.
func (w *partsWriter) setParts(requests []frame.Request, header http.Header) error {
	positions, err := frame.ParseParts(header.Get(frame.PartsHeader), len(requests))
	for _, at := range positions {
		requests[at].Parts = func(part []byte) error { return w.write(frame.Part{Member: at, Body: part}) }
	}
	return err
}

// write sends a part at once.
func (w *partsWriter) write(p frame.Part) error {
	if !w.begun {
		w.begun = true
		h := w.Header()
		h["Content-Type"], h[frame.PartsHeader] = []string{frame.ContentType}, []string{"1"}
		h["Transfer-Encoding"] = []string{"identity"} // The last part says where the end is; then the connection closes.
		w.WriteHeader(http.StatusOK)
	}
	if w.err == nil {
		_, w.err = w.Write(frame.AppendPart(nil, p))
	}
	if w.err == nil {
		w.err = http.NewResponseController(w.ResponseWriter).Flush()
	}
	if w.err != nil {
		return errGone
	}
	return nil
}
