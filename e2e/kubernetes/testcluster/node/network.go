package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// NodeAddress is an address of the namespace. A node's address must not be a loopback
// address.
const NodeAddress = "10.89.0.1"

// Addresses are the addresses of a cluster, all of one family.
type Addresses struct {
	// Family is the family's name in EndpointSlices.
	Family string
	// Node is the node's address, and All stands for all of them.
	Node, All string
	// Pods and Services are the ranges of pods and of services. API and DNS are the services of
	// the API server and of names.
	Pods, Services, API, DNS string
	// Registry is the name of the node's address in the names of images. It is "" if the address
	// itself can be in them. Clients take a registry with this name to speak plain HTTP.
	Registry string
}

// IPv4 and IPv6 are the addresses that a cluster can have. The namespaces have both nodes'.
var (
	IPv4 = Addresses{Family: "IPv4", Node: NodeAddress, All: "0.0.0.0", Pods: "10.88.0.0/16", Services: "10.96.0.0/16", API: "10.96.0.1", DNS: "10.96.0.10"}
	IPv6 = Addresses{Family: "IPv6", Node: "fd00:89::1", All: "::", Pods: "fd00:88::/64", Services: "fd00:96::/112", API: "fd00:96::1", DNS: "fd00:96::a",
		Registry: "registry.localhost"}
)

// IPv6Possible returns nil if the namespaces have addresses of IPv6, otherwise an error that
// says what is missing.
func IPv6Possible() error {
	l, err := net.Listen("tcp6", net.JoinHostPort(IPv6.Node, "0"))
	if err != nil {
		return fmt.Errorf("a cluster of IPv6 needs a kernel with IPv6: %w", err)
	}
	return l.Close()
}

// network turns on the loopback interface, gives it the nodes' addresses, and turns on
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
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1\n"), 0); err != nil {
		return err
	}
	return network6()
}

// network6 does the rest for IPv6. It does nothing on a machine without.
func network6() error {
	s, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(s)
	// Pods' addresses are known to be free. Before that were found out, nobody could use them.
	for file, value := range map[string]string{"all/disable_ipv6": "0", "default/disable_ipv6": "0", "all/forwarding": "1", "default/accept_dad": "0"} {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+file, []byte(value+"\n"), 0); err != nil {
			return err
		}
	}
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	// As in6_ifreq of linux/ipv6.h.
	r := struct {
		address [16]byte
		prefix  uint32
		index   int32
	}{netip.MustParseAddr(IPv6.Node).As16(), 128, int32(lo.Index)}
	if _, _, wrong := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCSIFADDR, uintptr(unsafe.Pointer(&r))); wrong != 0 {
		return fmt.Errorf("give the loopback interface %s: %w", IPv6.Node, wrong)
	}
	return nil
}
