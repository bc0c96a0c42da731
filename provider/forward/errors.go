package forward

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/provider/web"
)

// Errors of requests that get no answer from the function.
var (
	// ErrCold: no instance became ready in time.
	ErrCold = unavailable("no instance of the function became ready in time; see its logs for the reason")
	// ErrQueueFull: too many requests wait for the function already.
	ErrQueueFull = &web.Error{Status: http.StatusTooManyRequests, After: time.Second, Text: "too many requests wait for an instance of this function; try again later"}
	// ErrBusy: every instance has its maximum number of requests.
	ErrBusy = &web.Error{Status: http.StatusTooManyRequests, After: time.Second, Text: "every instance of this function has as many requests as it takes at once; try again later"}
	// ErrInstanceLost: the instance died after the request, or a part of it, was
	// sent. It may have executed the request, so the request is not sent again.
	ErrInstanceLost = &web.Error{Status: http.StatusBadGateway, Text: "the instance that had this request broke the connection off before it answered; see the function's logs for the reason"}
	// ErrExecTimeout: the instance has not begun to answer within the function's
	// exec_timeout.
	ErrExecTimeout = &web.Error{Status: http.StatusGatewayTimeout, Text: "the function took longer than exec_timeout, and its watchdog did not say so"}
	// ErrEndless: no client waits for the answer, and it did not end in time.
	ErrEndless = &web.Error{Status: http.StatusGatewayTimeout, Final: true,
		Text: fmt.Sprintf("the answer did not end within exec_timeout, or within %v because the function has none; set exec_timeout if it may take longer", maxHeldTime)}
	// ErrExhausted: the provider has no file descriptor or memory left to
	// reach an instance.
	ErrExhausted = unavailable("the provider is out of connections; try again later")
	// ErrClosed: the function was removed or the provider is stopping.
	ErrClosed = unavailable("the function is being removed or the provider is stopping")
	// ErrAnswerTooLarge: the answer must be held in memory and is larger than
	// maxAnswer.
	ErrAnswerTooLarge = &web.Error{Status: http.StatusBadGateway, Text: fmt.Sprintf("the function's answer is larger than %d MiB, the limit for answers that are not streamed", maxAnswer>>20)}
)

var (
	errLateBody      = &web.Error{Status: http.StatusRequestTimeout, Text: "the request body stopped coming; the provider's --body-timeout says how long it waits for more"}
	errSwitchedEarly = &web.Error{Status: http.StatusBadGateway, Text: "the function switched protocols before it had read the request's body"}
)

func unavailable(message string) *web.Error {
	return &web.Error{Status: http.StatusServiceUnavailable, After: time.Second, Text: message}
}

// dialError says that connecting to an instance failed, so nothing was sent.
type dialError struct{ error }

// Unwrap returns the cause.
func (e *dialError) Unwrap() error { return e.error }

// exhausted reports whether err is a shortage in this process, which is no fault of
// the instance.
func exhausted(err error) bool {
	for _, shortage := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EAGAIN, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, shortage) {
			return true
		}
	}
	return false
}
