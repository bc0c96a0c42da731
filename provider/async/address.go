package async

import (
	"fmt"
	"net/netip"
)

// checkAddress refuses an address at which a cloud's metadata service may answer, because that hands
// out credentials of the machine. If strict, it refuses all addresses that are not public.
func checkAddress(address string, strict bool) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return &CallbackRefusedError{fmt.Sprintf("the callback leads to %q, which is not an IP address", address)}
	}
	switch a := at.Addr().Unmap().WithZone(""); {
	case within(metadata, a), within(embedding, a) && within(metadata, embedded(a)):
		return &CallbackRefusedError{fmt.Sprintf("the callback leads to %v, at which a metadata service may answer", a)}
	case strict && !public(a):
		return &CallbackRefusedError{fmt.Sprintf("the callback leads to %v, which is not a public address", a)}
	}
	return nil
}

// metadata are the addresses of clouds' metadata services: the link-local ones, and those of AWS and
// Google over IPv6, of Alibaba and of Azure.
var metadata = prefixes("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "fd20:ce::254/128", "100.100.100.200/32", "168.63.129.16/32")

// notPublic4 are the IPv4 networks that are not public: those of IANA's special-purpose registry that are not
// globally reachable, the deprecated ones, and multicast.
var notPublic4 = prefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4")

// global6 is the only part of IPv6 that IANA allocates to the public internet. notPublic6 are its
// networks in the special-purpose registry that are not globally reachable.
var (
	global6    = netip.MustParsePrefix("2000::/3")
	notPublic6 = prefixes("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)

// nat64 are the addresses by which hosts without IPv4 reach those with IPv4 (RFC 6052). embedding are all
// networks whose last 32 bits are an IPv4 address that they may lead to, beside the mapped ones: also those of
// local NAT64 (RFC 8215), and the IPv4-compatible (deprecated) and IPv4-translated addresses (RFC 7915).
var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	embedding = append(prefixes("64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96"), nat64)
)

// embedded returns the IPv4 address in the last 32 bits of an IPv6 address.
func embedded(a netip.Addr) netip.Addr {
	bits := a.As16()
	return netip.AddrFrom4([4]byte(bits[12:]))
}

// public reports whether an address belongs to the public internet.
func public(a netip.Addr) bool {
	if a = a.Unmap().WithZone(""); nat64.Contains(a) {
		a = embedded(a)
	}
	if a.Is4() {
		return !within(notPublic4, a)
	}
	return global6.Contains(a) && !within(notPublic6, a)
}

func within(networks []netip.Prefix, a netip.Addr) bool {
	for _, n := range networks {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}
