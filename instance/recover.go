package instance

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// errPanic is the error that a client gets when this program panics.
var errPanic = errors.New("the instance failed on this request; see the instance's log")

// recovered turns a panic into an error and logs the stack. Call it with defer.
// Without it, one request's panic would break the connection of the whole batch.
func (s *Server) recovered(err *error) {
	if cause := recover(); cause != nil {
		s.options.Logger.Error().Str("cause", fmt.Sprint(cause)).Bytes("stack", debug.Stack()).Msg("a request made the instance panic")
		*err = errPanic
	}
}

// decode decodes one member of a batch. call is nil if that fails; response then has
// the reason.
func (s *Server) decode(r frame.Request) (call *protocol.Call, response frame.Response) {
	err := func() (err error) {
		defer s.recovered(&err)
		call, response = s.model.Decode(r)
		return nil
	}()
	if err != nil {
		return nil, protocol.Failure(http.StatusInternalServerError, err)
	}
	return call, response
}

// respond writes one member's response from its own rows of the outputs.
func (s *Server) respond(m member, outputs []tensor.Tensor) (response frame.Response) {
	err := func() (err error) {
		defer s.recovered(&err)
		response = m.Respond(outputs)
		if _, lent := s.engine.(LendingEngine); lent {
			response = unalias(response, outputs)
		}
		return nil
	}()
	if err != nil {
		return protocol.Failure(http.StatusInternalServerError, err)
	}
	return response
}
