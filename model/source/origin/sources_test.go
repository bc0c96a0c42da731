package origin

import (
	"net/netip"
	"testing"
)

// TestPublic: no address of the machine, its network or its cloud counts as public.
func TestPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "::ffff:8.8.8.8": true, "127.0.0.1": false,
		"127.9.9.9": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.0.1": false,
		"169.254.169.254": false, "0.0.0.0": false, "0.1.2.3": false, "100.64.0.1": false, "198.18.0.1": false,
		"224.0.0.1": false, "255.255.255.255": false, "240.0.0.1": false, "::": false, "::1": false,
		"::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "fe80::1": false, "fe80::1%eth0": false,
		"fc00::1": false, "fd12::1": false, "192.88.99.1": false, "3fff::1": false, "3fff:fff:ffff::1": false,
		"4000::1": false, "100::1": false, "100:0:0:1::1": false, "::127.0.0.1": false, "::10.0.0.1": false,
		"::ffff:0:10.0.0.1": false, "::ffff:0:8.8.8.8": false, "::8.8.8.8": false, "2001:10::1": false,
		"2001:4860:4860::8888": true, "a00::1": false, "ff02::1": false, "64:ff9b::7f00:1": false,
		"64:ff9b::a00:1": false, "64:ff9b::808:808": true, "64:ff9b:1::808:808": false, "2002:7f00:1::": false,
		"2001:db8::1": false, "fec0::1": false, "93.184.216.34": true, "2606:2800:220:1::1": true,
		"64:ff9b::5db8:d822": true, "192.168.1.1": false, "fd00::1": false, "::ffff:169.254.169.254": false,
		"168.63.129.16": false,
	} {
		if got := Public(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestSources: names allow, whatever their address, and parts of names do not.
func TestSources(t *testing.T) {
	for _, wrong := range []string{"", "https://x", "a b", "x/8", "/absent-directory"} {
		if _, err := ParseSources([]string{wrong}); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}
