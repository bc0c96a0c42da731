package origin

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/model/source"
)

// Sources are the places beside public addresses from which models may come. The zero value has none.
type Sources struct {
	// hosts are names, and suffixes that begin with a dot.
	hosts    []string
	networks []netip.Prefix
	dirs     []string
}

// ParseSources reads a list of hosts (minio.example.com, .example.com for all below it), addresses and networks
// (10.0.0.5, 10.0.0.0/8) and absolute directories. The error names the part that is wrong.
func ParseSources(list []string) (s Sources, err error) {
	for _, text := range list {
		if filepath.IsAbs(text) {
			dir, err := filepath.EvalSymlinks(text)
			if err != nil {
				return Sources{}, fmt.Errorf("%q: %w; name a directory that is there", text, err)
			}
			s.dirs = append(s.dirs, dir)
			continue
		}
		if network, err := netip.ParsePrefix(text); err == nil {
			s.networks = append(s.networks, network)
			continue
		}
		if address, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
			s.networks = append(s.networks, netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()))
			continue
		}
		name := strings.ToLower(strings.TrimPrefix(text, "*"))
		if name == "" || name == "." || strings.ContainsAny(name, "/:*@ ?#") {
			return Sources{}, fmt.Errorf("%q: it must be a host such as minio.example.com or "+
				".example.com, a network such as 10.0.0.0/8, or an absolute directory", text)
		}
		s.hosts = append(s.hosts, name)
	}
	return s, nil
}

// named reports whether a host is allowed by its name, whatever its address is.
func (s Sources) named(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return slices.ContainsFunc(s.hosts, func(allowed string) bool {
		return host == allowed || strings.HasPrefix(allowed, ".") && strings.HasSuffix(host, allowed)
	})
}

// within reports whether one of the networks has an address.
func (s Sources) within(address netip.Addr) bool {
	return slices.ContainsFunc(s.networks, func(n netip.Prefix) bool { return n.Contains(address.Unmap()) || n.Contains(address) })
}

// trusts reports whether a host is allowed by name or by the address that the text is.
func (s Sources) trusts(host string) bool {
	address, err := netip.ParseAddr(host)
	return s.named(host) || err == nil && s.within(address)
}

// global6 is the only part of IPv6 that IANA allocates to the public internet.
var global6 = netip.MustParsePrefix("2000::/3")

// notPublic are the networks that are not public: those of IANA's special-purpose registries that are not globally
// reachable, multicast, and the address of Azure's metadata service.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("168.63.129.16/32"),
	netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("3fff::/20"),
}

// nat64 are the addresses by which hosts without IPv4 reach those with IPv4 (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Public reports whether an address is one of the Internet, and not of this machine, its network or its cloud.
func Public(address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	if bytes := address.As16(); nat64.Contains(address) {
		address = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return (address.Is4() || global6.Contains(address)) && !slices.ContainsFunc(notPublic, func(n netip.Prefix) bool { return n.Contains(address) })
}

// Check refuses a URI from a place that is never asked. Names are checked again when their addresses are known.
func (s Sources) Check(u source.URI) error {
	switch u.Scheme {
	case source.PVC:
		return errors.New("pvc:// is for functions on Kubernetes; on one machine use file://")
	case source.HTTP:
		return s.checkPlain(u.Host, u.Sum)
	}
	if endpoint, err := url.Parse(u.Endpoint); err == nil && endpoint.Scheme == source.HTTP {
		return s.checkPlain(endpoint.Host, u.Sum)
	}
	return nil
}

// checkPlain refuses content that anybody on the way could replace.
func (s Sources) checkPlain(host, sum string) error {
	address := url.URL{Host: host}
	if sum != "" || s.trusts(address.Hostname()) {
		return nil
	}
	return fmt.Errorf("http:// is not encrypted, so the content could be anybody's; use https://, add "+
		"#sha256= with the file's hash, or allow the host with the provider's --model-sources %s", address.Hostname())
}

// refused is the error for an address that is not public.
func refused(host string, address netip.Addr) error {
	return Fatal{fmt.Errorf("its host %s has the address %s, which is not public; models come from there "+
		"only if the provider allows it with --model-sources %s", host, address, host)}
}
