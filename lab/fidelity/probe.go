package fidelity

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// A batch of each size is executed probes times, in rounds over all sizes: a noisy moment
// must not affect only one size. The first warmups rounds do not count.
const (
	probes  = 60
	warmups = 5
)

// measureInstance measures batches of all sizes, sent as the provider sends them to an
// instance, the process pid.
func measureInstance(ctx context.Context, pid int, socket string, f *Subject) (*Curve, error) {
	w, err := dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	sizes := powers(f.MaxBatch)
	exec, way := make([][]time.Duration, len(sizes)), make([][]time.Duration, len(sizes))
	began, executed := time.Duration(0), time.Duration(0)
	for n := range warmups + probes {
		if n == warmups {
			if began, err = processorTime(pid); err != nil {
				return nil, err
			}
		}
		for i, b := range sizes {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			engine, all, err := w.exchange(f, b)
			if err != nil {
				return nil, fmt.Errorf("a batch of %d: %w", b, err)
			}
			if n >= warmups {
				executed += engine
				exec[i], way[i] = append(exec[i], engine), append(way[i], all-engine)
			}
		}
	}
	worked, err := processorTime(pid)
	if err != nil {
		return nil, err
	}
	c := &Curve{handling: max(0, worked-began-executed) / time.Duration(probes*len(sizes))}
	for i, b := range sizes {
		c.add(b, exec[i], way[i])
	}
	return c, nil
}

// wire is a connection to an instance like those of the provider's dispatcher.
type wire struct {
	net.Conn
	reader *bufio.Reader
}

func dial(ctx context.Context, socket string) (*wire, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to the instance: %w", err)
	}
	return &wire{c, bufio.NewReader(c)}, nil
}

// longest is how long one exchange may take.
const longest = time.Minute

// exchange sends a batch of b requests and reads the answers. engine is the time of its
// execution, all that of the whole exchange.
func (w *wire) exchange(f *Subject, b int) (engine, all time.Duration, err error) {
	began := time.Now()
	requests := make([]frame.Request, b)
	for i := range requests {
		requests[i] = frame.Request{Method: http.MethodPost, Path: "/", Header: f.Header, Body: f.Bodies[i%len(f.Bodies)]}
	}
	body, length := frame.EncodeRequests(requests)
	head := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: instance\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", frame.Path, frame.ContentType, length)
	buffers := append(net.Buffers{head}, body...)
	if err := w.SetDeadline(began.Add(longest)); err != nil {
		return 0, 0, err
	}
	if _, err := buffers.WriteTo(w.Conn); err != nil {
		return 0, 0, err
	}
	response, err := http.ReadResponse(w.reader, nil)
	if err != nil {
		return 0, 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, 0, err
	}
	answers, err := frame.DecodeResponses(text)
	all = time.Since(began)
	if err != nil {
		return 0, 0, err
	}
	for _, a := range answers {
		if a.Status != http.StatusOK {
			return 0, 0, fmt.Errorf("the instance answers a request with status %d", a.Status)
		}
	}
	micros, err := strconv.ParseInt(response.Header.Get(frame.ExecHeader), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("the instance's %s: %w", frame.ExecHeader, err)
	}
	return time.Duration(micros) * time.Microsecond, all, nil
}
