package web

import (
	"context"
	"net"
	"time"
)

// Dial connects to an instance, as net.Dialer's DialContext.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Alive asks for an instance's health on a new connection. Any answer within the time counts;
// otherwise it returns why there was none.
func Alive(dial Dial, network, address string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	conn, err := dial(ctx, network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("GET /_/health HTTP/1.1\r\nHost: instance\r\nConnection: close\r\n\r\n")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}
