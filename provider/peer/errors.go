package peer

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Error is why another replica has not answered a request with a function's answer.
type Error struct {
	status     int
	retryAfter time.Duration
	message    string
}

// Error is a sentence for the client.
func (e *Error) Error() string { return e.message }

// HTTPStatus is the status to answer with.
func (e *Error) HTTPStatus() int { return e.status }

// RetryAfter is when the client may try again; 0 says nothing about it.
func (e *Error) RetryAfter() time.Duration { return e.retryAfter }

// errNotTaken is wrapped where a replica has certainly not executed a request, so
// that the next one may.
var errNotTaken = errors.New("not taken")

// A replica may have executed a request, and does not say so: errDied is where it broke
// the connection off, errMute where it has not answered in all the time that it had.
var (
	errDied = &Error{http.StatusBadGateway, 0, "the replicas of the provider that had this request died with it, one after the other"}
	errMute = &Error{http.StatusBadGateway, 0, "the replica of the provider that had this request has not answered; the request may have been executed"}
)

// unconnected is an error of connecting: nothing was sent.
type unconnected struct{ error }

// Unwrap returns what was found.
func (u unconnected) Unwrap() error { return u.error }

// dial marks the errors of connecting.
func (g *Group) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	c, err := g.options.Dial(ctx, network, address)
	if err != nil {
		return nil, unconnected{err}
	}
	return c, nil
}
