package objects

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/faas-infer/faas-infer/provider/web"
)

// again is how long a client should wait if the API server cannot answer now.
const again = 2 * time.Second

// problemFrom returns an answer for an error of the API server, nil if err is nil. format
// and args say what failed, for example "secret x was not stored".
func problemFrom(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	e := &web.Error{Status: http.StatusInternalServerError, Text: fmt.Sprintf(format, args...) + ": " + err.Error(), Cause: err}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		e.Status, e.After = http.StatusConflict, again
		e.Text = fmt.Sprintf(format, args...) + ": the namespace is being deleted; try again in a moment"
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		e.Status = http.StatusForbidden
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		e.Status = http.StatusBadRequest
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		e.Status, e.After = http.StatusConflict, again
	case unreachable(err):
		e.Status, e.After = http.StatusServiceUnavailable, again
		e.Text = fmt.Sprintf(format, args...) + ": the Kubernetes API server cannot answer now: " + err.Error()
	}
	return e
}

// namespaceProblem is problemFrom for a change of a namespace. If the provider has no right to it,
// the answer names the option that grants it, and instead, an administrator's command.
func namespaceProblem(err error, instead, failed string) error {
	// A policy refuses with the same status, and says why itself.
	if !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
		return problemFrom(err, "%s", failed)
	}
	return &web.Error{Status: http.StatusForbidden, Cause: err, Text: failed + ": " + err.Error() +
		"; install with the option manage-namespaces (chart: functions.manageNamespaces), or let an administrator run: " + instead}
}

// unreachable reports whether another try may succeed without any other change.
func unreachable(err error) bool {
	var connection net.Error
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || errors.As(err, &connection)
}
