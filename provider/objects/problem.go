package objects

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Error is something that could not be done in the cluster.
type Error struct {
	status int
	text   string
	after  time.Duration
	err    error
}

// Error is one sentence.
func (e *Error) Error() string { return e.text }

// Unwrap returns what the API server said, if it did.
func (e *Error) Unwrap() error { return e.err }

// HTTPStatus is how the provider's routes answer.
func (e *Error) HTTPStatus() int { return e.status }

// RetryAfter is how long to wait before another try that may succeed, 0 if nothing
// is to be said of it.
func (e *Error) RetryAfter() time.Duration { return e.after }

// NewError is an error that the API server has no part in.
func NewError(status int, format string, args ...any) *Error {
	return &Error{status: status, text: fmt.Sprintf(format, args...)}
}

// again is how long a client is to wait for an API server that cannot answer now.
const again = 2 * time.Second

// problemFrom is why what format and args tell could not be done ("secret x was not kept");
// nil if err is.
func problemFrom(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	e := &Error{status: http.StatusInternalServerError, text: fmt.Sprintf(format, args...) + ": " + err.Error(), err: err}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		e.status, e.after = http.StatusConflict, again
		e.text = fmt.Sprintf(format, args...) + ": the namespace is being deleted; try again in a moment"
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		e.status = http.StatusForbidden
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		e.status = http.StatusBadRequest
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		e.status, e.after = http.StatusConflict, again
	case unreachable(err):
		e.status, e.after = http.StatusServiceUnavailable, again
		e.text = fmt.Sprintf(format, args...) + ": the Kubernetes API server cannot answer now: " + err.Error()
	}
	return e
}

// unreachable reports whether another try may succeed with nothing else changed.
func unreachable(err error) bool {
	var connection net.Error
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || errors.As(err, &connection)
}
