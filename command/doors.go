package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/instance/duplex"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/web"
)

// RegisterDoors adds the flags for addresses that have a part of the routes. "up" has none: its
// gateway needs all routes at one address.
func (f *ProviderFlags) RegisterDoors(flags *pflag.FlagSet) {
	flags.StringVar(&f.doors.data, "listen-data", "", "further address, for functions and health only")
	flags.StringVar(&f.doors.admin, "listen-admin", "", `further address, for /system, /build, /metrics, /api/v1/query and health only; with it and --listen-data, "--listen off" closes the address that has all routes`)
}

// openDoors listens at the addresses of the flags.
func (s *runningProvider) openDoors() error {
	f := s.flags
	if f.listen == noAddress && (f.doors.data == "" || f.doors.admin == "") {
		return errors.New("--listen is off: give --listen-data and --listen-admin then")
	}
	all := []door{
		{flag: "--listen", address: strings.TrimSuffix(f.listen, noAddress), routes: func(h http.Handler) http.Handler { return h }},
		{flag: "--listen-admin", address: f.doors.admin, routes: provider.AdminOnly},
		{flag: "--listen-data", address: f.doors.data, routes: provider.DataOnly},
	}
	if s.acme != nil {
		all = append(all, door{flag: "--acme-http", address: f.acme.http, plain: true, routes: func(http.Handler) http.Handler { return s.acme.HTTPHandler(nil) }})
	}
	all = slices.DeleteFunc(all, func(d door) bool { return d.address == "" })
	if err := checkApart(append(slices.Clone(all), door{flag: "--nats-listen", address: strings.TrimSuffix(f.nats.listen, noAddress)})); err != nil {
		return err
	}
	for _, d := range all {
		l, err := web.Listen(d.address)
		if err != nil {
			return fmt.Errorf("%s: %w; %s", d.flag, err, addressFix(err, "if a provider is running already, stop it, or give another address"))
		}
		d.listener = l
		s.doors = append(s.doors, d)
	}
	return nil
}

// addressFix says what to do about an error of listening at an address: taken if another program has it.
func addressFix(err error, taken string) string {
	if errors.Is(err, syscall.EADDRINUSE) {
		return taken
	}
	return "give an address of this machine, HOST:PORT, at which this user may listen"
}

// checkApart refuses an address that two flags have: the process would wait for the port that it has itself. Addresses
// that cannot be read, and those without a port of their own, fit all.
func checkApart(all []door) error {
	for i, d := range all {
		is, err := net.ResolveTCPAddr("tcp", d.address)
		if err != nil || is.Port == 0 {
			continue
		}
		for _, other := range all[:i] {
			was, err := net.ResolveTCPAddr("tcp", other.address)
			if err == nil && was.Port == is.Port && (was.IP.Equal(is.IP) || isEvery(was.IP) || isEvery(is.IP)) {
				return fmt.Errorf("%s %s and %s %s are one address: give each its own port", other.flag, other.address, d.flag, d.address)
			}
		}
	}
	return nil
}

// isEvery reports whether an address stands for all addresses of the machine.
func isEvery(ip net.IP) bool { return ip == nil || ip.IsUnspecified() }

// address is the first address, which has the routes for operators.
func (s *runningProvider) address() string { return s.doors[0].listener.Addr().String() }

// serve serves a handler's routes at all addresses.
func (s *runningProvider) serve(handler http.Handler) {
	served := make(chan error, len(s.doors))
	s.served = served
	identity := s.identity
	if s.acme != nil {
		identity = s.acme.identity
	}
	for _, d := range s.doors {
		routes := d.routes(handler)
		listener := duplex.LimitStalls(s.bounds.Listen(d.listener), s.flags.answerTimeout)
		if identity != nil && !d.plain {
			routes, listener = mutual.Guard(routes, providerRules), identity.Listen(listener, "h2")
		}
		if s.acme != nil {
			routes = s.acme.HTTPHandler(routes)
		}
		server := web.NewServer(routes, s.bounds)
		bound := server.ConnContext
		server.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return mutual.WithConn(bound(ctx, c), c) }
		s.servers = append(s.servers, server)
		web.Serve(served, server, listener)
	}
}
