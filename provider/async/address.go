package async

import (
	"fmt"
	"net/netip"

	"github.com/faas-infer/faas-infer/model/source/origin"
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
	case strict && !origin.Public(a):
		return &CallbackRefusedError{fmt.Sprintf("the callback leads to %v, which is not a public address", a)}
	}
	return nil
}

// metadata are the addresses of clouds' metadata services: the link-local ones, and those of AWS and
// Google over IPv6, of Alibaba and of Azure.
var metadata = prefixes("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "fd20:ce::254/128", "100.100.100.200/32", "168.63.129.16/32")

// embedding are all networks whose last 32 bits are an IPv4 address that they may lead to, beside the mapped ones:
// those of NAT64 (RFC 6052), also local (RFC 8215), and the IPv4-compatible (deprecated) and IPv4-translated
// addresses (RFC 7915).
var embedding = prefixes("64:ff9b::/96", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96")

// embedded returns the IPv4 address in the last 32 bits of an IPv6 address.
func embedded(a netip.Addr) netip.Addr {
	bits := a.As16()
	return netip.AddrFrom4([4]byte(bits[12:]))
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
