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

// errPanic is what a client is told of a fault in this program.
var errPanic = errors.New("the instance failed on this request; its log tells where")

// recovered, deferred, makes an error of a panic and logs where it was. Without
// it, what one request lays bare would cost the whole batch its connection.
func (s *Server) recovered(err *error) {
	if cause := recover(); cause != nil {
		s.options.Logger.Error().Str("cause", fmt.Sprint(cause)).Bytes("stack", debug.Stack()).Msg("a request made the instance panic")
		*err = errPanic
	}
}

// decode reads one member of a batch.
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
			response = own(response, outputs)
		}
		return nil
	}()
	if err != nil {
		return protocol.Failure(http.StatusInternalServerError, err)
	}
	return response
}
