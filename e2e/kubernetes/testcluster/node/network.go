package node

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// NodeAddress is an address of the namespace. A node's address must not be a loopback
// address.
const NodeAddress = "10.89.0.1"

// network turns on the loopback interface, gives it the node's address, and turns on
// forwarding between pods.
func network() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(s)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, up); err != nil {
		return fmt.Errorf("turn on the loopback interface: %w", err)
	}
	for _, set := range []struct {
		request uint
		address string
	}{{unix.SIOCSIFADDR, NodeAddress}, {unix.SIOCSIFNETMASK, "255.255.255.255"}} {
		r, err := unix.NewIfreq("lo:1")
		if err != nil {
			return err
		}
		if err := r.SetInet4Addr(net.ParseIP(set.address).To4()); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(s, set.request, r); err != nil {
			return fmt.Errorf("give the loopback interface %s: %w", set.address, err)
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1\n"), 0)
}
